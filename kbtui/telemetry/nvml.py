"""One GPU through NVML: finding it, and saying in plain words why something cannot be read.

NVML is reached through the module `pynvml` (package nvidia-ml-py), passed in so that tests can pretend one.
"""

from __future__ import annotations

import os
from typing import Any

Nvml = Any
"""The module `pynvml` or what behaves like it."""


class GpuUnavailable(Exception):
    """No GPU can be asked; `str(error)` is a sentence for the GPU pane. Not an error of the run's."""


def load_nvml() -> Nvml:
    """The module. Raises GpuUnavailable when nvidia-ml-py is not installed."""
    try:
        import pynvml
    except ImportError:
        raise GpuUnavailable("nvidia-ml-py is not installed: pip install nvidia-ml-py") from None
    return pynvml


class Gpu:
    """An opened device. NVML stays initialised until `close`."""

    def __init__(self, nvml: Nvml, handle: Any, uuid: str) -> None:
        self.nvml, self.handle, self.uuid = nvml, handle, uuid

    @classmethod
    def open(cls, nvml: Nvml, device: str) -> Gpu:
        """The GPU that `device` means: a UUID, or "cuda:N" counted among CUDA_VISIBLE_DEVICES.

        By number NVML counts in PCI order and CUDA, unless told otherwise, fastest first: on machines with unlike GPUs
        give the UUID. Raises GpuUnavailable.
        """
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise GpuUnavailable(explain(nvml, error)) from None
        try:
            handle = _handle(nvml, _visible(device))
            return cls(nvml, handle, str(nvml.nvmlDeviceGetUUID(handle)))
        except nvml.NVMLError as error:
            _shutdown(nvml)
            raise GpuUnavailable(f"{device}: {explain(nvml, error)}") from None
        except ValueError:
            _shutdown(nvml)
            raise GpuUnavailable(f"{device} is no GPU: use cuda:N or a UUID") from None

    def close(self) -> None:
        """Let NVML go."""
        _shutdown(self.nvml)

    def migrated(self) -> bool:
        """Whether the GPU is split into MIG instances, which lack most counters. False where it cannot be asked."""
        try:
            current, _ = self.nvml.nvmlDeviceGetMigMode(self.handle)
        except self.nvml.NVMLError:
            return False
        return bool(current == self.nvml.NVML_DEVICE_MIG_ENABLE)


def gpu_count(nvml: Nvml) -> int:
    """How many GPUs the driver shows, whatever CUDA_VISIBLE_DEVICES says. Raises GpuUnavailable without a driver."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise GpuUnavailable(explain(nvml, error)) from None
    try:
        return int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise GpuUnavailable(explain(nvml, error)) from None
    finally:
        _shutdown(nvml)


def explain(nvml: Nvml, error: Exception) -> str:
    """What an NVMLError means for a person, with the remedy where there is one."""
    code = getattr(error, "value", None)
    sentences = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver: libnvidia-ml.so not found",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA kernel driver is not loaded",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the NVIDIA library and the loaded kernel driver are of different versions (upgraded?): reboot"
        ),
        nvml.NVML_ERROR_GPU_IS_LOST: "the GPU is lost (it fell off the bus): reset it or reboot",
        nvml.NVML_ERROR_RESET_REQUIRED: "the GPU needs a reset",
        nvml.NVML_ERROR_NOT_FOUND: "no such GPU",
        nvml.NVML_ERROR_INVALID_ARGUMENT: "no such GPU",
        nvml.NVML_ERROR_NO_PERMISSION: "not permitted",
        nvml.NVML_ERROR_NOT_SUPPORTED: "not supported on this GPU",
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old for it",
    }
    return sentences.get(code, str(error))


def _visible(device: str) -> str:
    """`device` as NVML knows it: "cuda:1" under CUDA_VISIBLE_DEVICES=4,6 is "6"; UUIDs stay."""
    if not device.startswith("cuda"):
        return device
    number = int(device.partition(":")[2] or "0")
    listed = [entry.strip() for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry.strip()]
    if not listed:
        return str(number)
    if number >= len(listed):
        raise ValueError(device)
    return listed[number]


def _handle(nvml: Nvml, name: str) -> Any:
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    # torch gives UUIDs without NVML's prefix
    prefixed = name if name.startswith(("GPU-", "MIG-")) else f"GPU-{name}"
    return nvml.nvmlDeviceGetHandleByUUID(prefixed)


def _shutdown(nvml: Nvml) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        return  # a lost driver cannot be shut down either
