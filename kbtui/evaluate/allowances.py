"""What a machine lets a lane do, found by trying before anything is spent: profilers, counters, clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kbtui.evaluate.profile import Gpm, GpmUnavailable, find_ncu
from kbtui.state.records import DeviceInfo

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
ADMIN_ONLY = "RmProfilingAdminOnly: 1"


def allowances(device: DeviceInfo) -> dict[str, str]:
    """Name -> "on", or why it is off and what follows. On a `cpu` lane one plain sentence."""
    if device.kind == "cpu":
        return {
            "GPU": f"no GPU: Triton's interpreter checks values on small cases, times are modelled for {device.target}"
        }
    return {"ncu": _ncu(), **_counters(device.uuid)}


def _ncu() -> str:
    if find_ncu() is None:
        return "off: ncu is not installed, GPM or unknown takes its place"
    try:
        limited = ADMIN_ONLY in DRIVER_PARAMETERS.read_text()
    except OSError:
        return "found; whether the driver admits it shows at the first profile"
    return "off: the driver keeps its counters for administrators" if limited else "on"


def _counters(uuid: str) -> dict[str, str]:
    """GPM and the clocks, through NVML."""
    try:
        import pynvml
    except ImportError:
        missing = "off: nvidia-ml-py is not installed"
        return {"GPM": missing, "clocks": missing}
    return {"GPM": _gpm(pynvml, uuid), "clocks": _clocks(pynvml, uuid)}


def _gpm(nvml: Any, uuid: str) -> str:
    try:
        Gpm(nvml, uuid).close()
    except GpmUnavailable as why:
        return f"off: {why}"
    return "on"


def _clocks(nvml: Any, uuid: str) -> str:
    try:
        nvml.nvmlInit()
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
            megahertz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        return f"off: {error}"
    return f"on: {megahertz} MHz now"
