"""Which devices a run evaluates on."""

from __future__ import annotations

import os
import re
from pathlib import Path

from kbtui.errors import UsageError
from kbtui.telemetry.nvml import GpuUnavailable, gpu_count, load_nvml

_CUDA = re.compile(r"cuda(?::(\d+))?")
_CPU = re.compile(r"cpu(?::\d+)?")


def choose_device(requested: str, dev: Path = Path("/dev")) -> str:
    """`requested` as "cpu" or "cuda:N"; "" is cuda:0 where the machine has a GPU, else cpu.

    Whether the GPU works is the lane's to find out: a GPU that is there and does not work is an error with its reason,
    not a reason to take the CPU. Raises UsageError for what is no device, and for several.
    """
    found = choose_devices(requested, dev)
    if len(found) > 1:
        raise UsageError(f"--device {requested} names several devices, which only `kbtui run` uses: name one")
    return found[0]


def choose_devices(requested: str, dev: Path = Path("/dev"), *, here: bool = True) -> tuple[str, ...]:
    """As `choose_device`, of one device or several: "cuda:0,cuda:1" or "cuda:0,1", each once. "cpu,cpu" are two lanes on the
    processors of this machine, "cpu:0" and "cpu:1". Raises UsageError for what is no device, and for what one run cannot
    mix. With `here` False they are not this machine's, and nobody looks whether it has them."""
    if requested == "":
        return ("cuda:0" if _has_gpu(dev) else "cpu",)
    pieces = [piece.strip() for piece in requested.split(",")]
    if all(_CPU.fullmatch(piece) for piece in pieces):
        return ("cpu",) if len(pieces) == 1 else tuple(f"cpu:{number}" for number in range(len(pieces)))
    found: list[str] = []
    for piece in pieces:
        # "cuda:0,1": a number alone is one more of the same kind.
        name = f"cuda:{int(piece)}" if piece.isascii() and piece.isdigit() and found else _cuda(piece, requested)
        if name in found:
            raise UsageError(f"--device {requested} names {name} twice: a device has one lane, name it once")
        found.append(name)
    if here:
        _require_there(found)
    return tuple(found)


def _cuda(piece: str, requested: str) -> str:
    said = f"--device {requested}" + (f": {piece or 'an empty name'}" if piece != requested else "")
    if piece.upper().startswith("MIG-"):
        raise UsageError(
            f"{said} is a slice of a GPU, whose neighbours would be in every measurement: use whole ones, cuda:0, cuda:1, ..."
        )
    if piece.upper().startswith("GPU-"):
        raise UsageError(f"{said} is a UUID: use the number that torch gives the GPU, cuda:0, cuda:1, ...")
    if _CPU.fullmatch(piece):
        raise UsageError(f"--device {requested}: cpu models times and a GPU measures them, a run does one or the other")
    match = _CUDA.fullmatch(piece)
    if match is None:
        raise UsageError(f"{said} is no device: use cuda:0, cuda:1, ... or cpu")
    return f"cuda:{int(match[1] or 0)}"


def _require_there(names: list[str]) -> None:
    """Raises UsageError for a GPU that the machine does not have, where the driver says how many there are."""
    try:
        count = gpu_count(load_nvml())
    except GpuUnavailable:
        return  # the lane says what is wrong with the driver
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = min(count, len([one for one in visible.split(",") if one.strip() and one.strip() != "-1"]))
    there = "there is one GPU, cuda:0" if count == 1 else f"there are cuda:0 to cuda:{count - 1}"
    hidden = " (CUDA_VISIBLE_DEVICES is set)" if visible is not None else ""
    for name in names:
        if int(name.removeprefix("cuda:")) >= count > 0:
            raise UsageError(f"--device {name} does not exist: {there}{hidden}")


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
