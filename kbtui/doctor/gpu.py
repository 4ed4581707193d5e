"""The GPUs: driver, memory, who else uses them, and what they let be read."""

from __future__ import annotations

from typing import Any

from kbtui.doctor.finding import Finding
from kbtui.evaluate.allowances import allowances
from kbtui.state.records import DeviceInfo
from kbtui.text import clean_line, plural

_REMEDIES = {
    "ncu": "to allow it, have an administrator set the driver option NVreg_RestrictProfilingToAdminUsers=0 and reload it",
    "GPM": "SM and DRAM activity stay unknown without ncu",
    "clocks": "a clock that changes during a measurement goes unseen",
}


def gpu_findings() -> list[Finding]:
    """The driver and each device."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [
            Finding("gpu", "absent", f"no usable NVIDIA driver ({error}): runs use the cpu lane, times are modelled")
        ]
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        devices = [
            line for i in range(pynvml.nvmlDeviceGetCount()) for line in (_device(pynvml, i), *_allowed(pynvml, i))
        ]
    except pynvml.NVMLError as error:
        return [Finding("gpu", "limits", f"the driver answers in part ({error})")]
    finally:
        pynvml.nvmlShutdown()
    if not devices:
        return [Finding("gpu", "absent", f"driver {driver}, no device: runs use the cpu lane, times are modelled")]
    return [Finding("gpu", "ok", f"driver {driver}"), *devices]


def _device(nvml: Any, index: int) -> Finding:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = clean_line(nvml.nvmlDeviceGetName(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    gib = 1 << 30
    try:
        others = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError as error:
        return Finding(
            f"cuda:{index}", "ok", f"{name}, {memory.total / gib:.0f} GiB; its processes are unknown ({error})"
        )
    text = f"{name}, {memory.free / gib:.0f} of {memory.total / gib:.0f} GiB free"
    if others:
        return Finding(
            f"cuda:{index}", "limits", f"{text}, {plural(others, 'other process')}: times will be noisy while they run"
        )
    return Finding(f"cuda:{index}", "ok", text)


def _allowed(nvml: Any, index: int) -> list[Finding]:
    """What profilers and counters the device admits."""
    uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))
    device = DeviceInfo(lane=f"cuda:{index}", kind="cuda", name="", target="", uuid=uuid)
    return [
        Finding(
            f"cuda:{index} {name}",
            "limits" if held.startswith("off") else "ok",
            clean_line(f"{held}: {_REMEDIES[name]}" if held.startswith("off") else held, 300),
        )
        for name, held in allowances(device).items()
    ]
