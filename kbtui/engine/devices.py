"""Which device a run evaluates on."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kbtui.errors import UsageError
from kbtui.telemetry.nvml import GpuUnavailable, gpu_count, load_nvml

_CUDA = re.compile(r"cuda(:\d+)?")


def choose_device(requested: str, dev: Path = Path("/dev")) -> str:
    """`requested` as "cpu" or "cuda:N"; "" is cuda:0 where the machine has a GPU, else cpu.

    Whether the GPU works is the lane's to find out: a GPU that is there and does not work is an error with its reason,
    not a reason to take the CPU. Raises UsageError for what is no device.
    """
    if requested == "":
        return "cuda:0" if _has_gpu(dev) else "cpu"
    if requested == "cpu":
        return "cpu"
    if "," in requested:
        raise UsageError(f"--device {requested}: one device per run in this version, such as --device cuda:0")
    if not _CUDA.fullmatch(requested):
        raise UsageError(f"--device {requested} is no device: use cuda:0, cuda:1, ... or cpu")
    return requested if ":" in requested else "cuda:0"


def _has_gpu(dev: Path) -> bool:
    """Whether a GPU is there and not hidden from us. A device file without a working driver counts: see above."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all").strip() in ("", "-1"):
        return False
    if any(dev.glob("nvidia[0-9]*")):
        return True
    try:
        return gpu_count(load_nvml()) > 0
    except GpuUnavailable:
        return False
