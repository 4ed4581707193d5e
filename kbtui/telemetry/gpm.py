"""GPM (Hopper and later): how much of the SMs and of the DRAM bandwidth was in use between two samples.

Needs no privilege (H200). Not while ncu runs on the same GPU: both want the same counters.
"""

from __future__ import annotations

import math
from typing import Any

from kbtui.telemetry.nvml import Gpu, explain

KEYS = ("sm_active_percent", "dram_active_percent")


class Gpm:
    """Keeps the last sample; `read` gives the shares since then."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._previous: Any = None
        self._unsupported = self._why_not()

    def read(self) -> tuple[dict[str, float], dict[str, str]]:
        """Values in percent and, for what could not be read, the reason; the first call only has reasons."""
        if self._unsupported:
            return {}, dict.fromkeys(KEYS, self._unsupported)
        nvml = self._gpu.nvml
        try:
            sample = nvml.nvmlGpmSampleAlloc()
        except nvml.NVMLError as error:
            return {}, dict.fromkeys(KEYS, explain(nvml, error))
        try:
            nvml.nvmlGpmSampleGet(self._gpu.handle, sample)
        except nvml.NVMLError as error:
            self._free(sample)
            return {}, dict.fromkeys(KEYS, explain(nvml, error))
        previous, self._previous = self._previous, sample
        if previous is None:
            return {}, dict.fromkeys(KEYS, "known from the second sample on")
        try:
            return self._between(previous, sample)
        except nvml.NVMLError as error:
            return {}, dict.fromkeys(KEYS, explain(nvml, error))
        finally:
            self._free(previous)

    @property
    def fresh(self) -> bool:
        """Whether the next `read` is the first of two that it takes for a value."""
        return not self._unsupported and self._previous is None

    def forget(self) -> None:
        """Drop the last sample: what lies between it and the next is not of interest (a pause)."""
        if self._previous is not None:
            self._free(self._previous)
            self._previous = None

    def _between(self, first: Any, second: Any) -> tuple[dict[str, float], dict[str, str]]:
        nvml = self._gpu.nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(KEYS)
        request.sample1, request.sample2 = first, second
        request.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        request.metrics[1].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
        nvml.nvmlGpmMetricsGet(request)
        values: dict[str, float] = {}
        missing: dict[str, str] = {}
        for key, metric in zip(KEYS, request.metrics, strict=False):  # the array holds room for every metric
            if metric.nvmlReturn == nvml.NVML_SUCCESS and math.isfinite(metric.value):
                values[key] = float(metric.value)
            elif metric.nvmlReturn == nvml.NVML_SUCCESS:
                missing[key] = "GPM gave no value"
            else:
                missing[key] = explain(nvml, nvml.NVMLError(metric.nvmlReturn))
        return values, missing

    def _why_not(self) -> str:
        nvml = self._gpu.nvml
        query = getattr(nvml, "nvmlGpmQueryDeviceSupport", None)
        if query is None:
            return "nvidia-ml-py is too old for GPM"
        try:
            supported = query(self._gpu.handle).isSupportedDevice
        except nvml.NVMLError as error:
            return explain(nvml, error)
        if not supported:
            return "GPM needs a Hopper GPU or later"
        return "not available while the GPU is split (MIG)" if self._gpu.migrated() else ""

    def _free(self, sample: Any) -> None:
        try:
            self._gpu.nvml.nvmlGpmSampleFree(sample)
        except self._gpu.nvml.NVMLError:
            return  # the driver is gone and its memory with it
