"""The hardware signature of a measured candidate: by ncu where it is allowed, else by GPM, else unknown with the reason.

ncu says why, never how fast: it replays kernels, so nothing it sees is a time. GPM samples counters while the kernel is
looped; its own "SM utilisation" counts cycles with any warp and reads near 100 % for kernels that wait, so SM here is
the busiest pipe. GPM knows nothing of the L2 cache.
"""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kbtui.state.records import Reading, Signature
from kbtui.text import clean_line

NCU_METRICS = {
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
}
NCU_TIME = "gpu__time_duration.sum"
NCU_S = 90.0
NO_PERMISSION = "ERR_NVGPUCTRPERM"
SETTLE_S, WINDOW_S = 0.1, 0.2
"""GPM: time before the first sample, and between the two. An H200 in a virtual machine refreshed its counters so seldom that
50 ms gave nothing, or what ran before; from 200 ms on readings agreed within 1 %."""


class CaseReading(msgspec.Struct, frozen=True, kw_only=True):
    """Percent of peak for one case or kernel, None where unknown, and the time it weighs."""

    weight: float
    sm: float | None
    dram: float | None
    l2: float | None


def unknown(reason: str) -> Signature:
    """A signature of which nothing is known; an unknown resource never masks an arm."""
    nothing = Reading(None, "unknown", reason)
    return Signature(sm=nothing, dram=nothing, l2=nothing)


def combined(readings: Sequence[CaseReading], source: Any, missing: Mapping[str, str]) -> Signature:
    """Time-weighted means over the readings that have a value; `missing` says why a resource has none."""

    def one(resource: str) -> Reading:
        known = [(r.weight, getattr(r, resource)) for r in readings if getattr(r, resource) is not None]
        total = sum(weight for weight, _ in known)
        if not total:
            return Reading(None, "unknown", missing.get(resource, "not read"))
        return Reading(round(sum(weight * value for weight, value in known) / total, 1), source)

    return Signature(sm=one("sm"), dram=one("dram"), l2=one("l2"))


# ---------------------------------------------------------------- ncu


def find_ncu() -> str | None:
    """Path of Nsight Compute's command line tool, None when it is not installed."""
    found = shutil.which("ncu")
    usual = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "ncu"
    return found or (str(usual) if usual.exists() else None)


def ncu_refusal(output: str) -> str:
    """Why ncu read nothing, from what it printed."""
    if NO_PERMISSION in output:
        return "ncu is not permitted here (ERR_NVGPUCTRPERM): the driver keeps its counters for administrators"
    if "No kernels were profiled" in output:
        return "ncu saw no kernel"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if line.startswith("==ERROR=="):
            return f"ncu failed: {line.removeprefix('==ERROR==').strip()}"
    if not lines:
        return f"ncu was not done within {NCU_S:.0f} s"
    return f"ncu gave no reading of the candidate's kernels; its last words: {clean_line(lines[-1], 160)}"


def run_ncu(ncu: str, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> str:
    """What ncu prints about one run of `command`, as CSV among its own lines; the process group is gone afterwards.

    "" when it takes longer than NCU_S.
    """
    options = [
        "--csv", "--print-units", "base", "--target-processes", "application-only", "--profile-from-start", "off",
        # the device's clocks are whoever set them's business, and shares of peak do not depend on them
        "--clock-control", "none", "--kernel-name-base", "function",
        "--metrics", ",".join((*NCU_METRICS.values(), NCU_TIME)),
    ]  # fmt: skip
    process = subprocess.Popen(
        [ncu, *options, *command],
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=NCU_S)
    except subprocess.TimeoutExpired:
        output = ""
    finally:
        _end_group(process)
    return output


def _end_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def parse_ncu(output: str, kernels: frozenset[str]) -> list[CaseReading]:
    """One reading for each launch of a kernel named in `kernels`. Kernels of others (fills, copies) do not count."""
    rows = [line for line in output.splitlines() if line.startswith('"')]
    launches: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(rows))):
        if row.get("Kernel Name", "") not in kernels:
            continue
        value = (row.get("Metric Value") or "").replace(",", "")
        try:
            launches.setdefault(row["ID"], {})[row["Metric Name"]] = float(value)
        except (KeyError, ValueError):
            continue
    return [
        CaseReading(
            weight=metrics.get(NCU_TIME, 0.0),
            sm=metrics.get(NCU_METRICS["sm"]),
            dram=metrics.get(NCU_METRICS["dram"]),
            l2=metrics.get(NCU_METRICS["l2"]),
        )
        for metrics in launches.values()
    ]


# ---------------------------------------------------------------- GPM


class GpmUnavailable(Exception):
    """Why GPM cannot be read here, as a sentence."""


class Gpm:
    """Samples of the GPU's own counters through NVML (Hopper and later). Needs no privilege. Close it after use."""

    def __init__(self, nvml: Any, uuid: str) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise GpmUnavailable(f"NVML does not start: {error}") from error
        try:
            self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            support = nvml.nvmlGpmQueryDeviceSupport(self._handle)
            if not support.isSupportedDevice:
                raise GpmUnavailable("this GPU has no GPM counters (they came with Hopper)")
            self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        except (nvml.NVMLError, AttributeError) as error:
            nvml.nvmlShutdown()
            raise GpmUnavailable(f"GPM cannot be read: {error}") from error
        except GpmUnavailable:
            nvml.nvmlShutdown()
            raise

    def close(self) -> None:
        for sample in self._samples:
            self._nvml.nvmlGpmSampleFree(sample)
        self._nvml.nvmlShutdown()

    def read(self, sleep: Callable[[float], None] = time.sleep) -> tuple[float | None, float | None]:
        """(busiest pipe, DRAM bandwidth) in percent over the next WINDOW_S, None where the device does not say."""
        nvml = self._nvml
        pipes = (
            nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
            nvml.NVML_GPM_METRIC_FP64_UTIL,
            nvml.NVML_GPM_METRIC_FP32_UTIL,
            nvml.NVML_GPM_METRIC_FP16_UTIL,
            nvml.NVML_GPM_METRIC_INTEGER_UTIL,
        )
        wanted = (*pipes, nvml.NVML_GPM_METRIC_DRAM_BW_UTIL)
        try:
            sleep(SETTLE_S)
            nvml.nvmlGpmSampleGet(self._handle, self._samples[0])
            sleep(WINDOW_S)
            nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
            question = nvml.c_nvmlGpmMetricsGet_t()
            question.version = nvml.NVML_GPM_METRICS_GET_VERSION
            question.numMetrics = len(wanted)
            question.sample1, question.sample2 = self._samples
            for index, metric in enumerate(wanted):
                question.metrics[index].metricId = metric
            nvml.nvmlGpmMetricsGet(question)
        except nvml.NVMLError as error:
            raise GpmUnavailable(f"GPM stopped answering: {error}") from error
        values = [
            _number(question.metrics[index].value) if question.metrics[index].nvmlReturn == nvml.NVML_SUCCESS else None
            for index in range(len(wanted))
        ]
        known = [value for value in values[:-1] if value is not None]
        busiest, dram = (max(known) if known else None), values[-1]
        # a kernel runs: where nothing is busy, the counters were not refreshed in time
        return (None, None) if not busiest and not dram else (busiest, dram)


def _number(value: float) -> float | None:
    """None for what drivers may answer with success all the same: not a number (of DRAM, on an H200 in a virtual machine)."""
    return float(value) if math.isfinite(value) else None
