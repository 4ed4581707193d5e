"""Job "device": what the GPU is, that it still works, and what it reaches in a copy and in matrix products.

Runs no candidate. Also the probe after a crash: it fails where the device can no longer be used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from kbtui.evaluate.inlane.candidate import CandidateFault
from kbtui.evaluate.inlane.faults import NO_DEVICE, formatted, one_line
from kbtui.evaluate.inlane.gpus import VISIBLE

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext

COPY_BYTES = 1 << 30
SIDE = 8192
REPEATS = 10


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: `measure`, whether to measure peaks (about a second). Reply: properties and `peaks`.

    Peaks are in bytes/s and operations/s: "copy", and by dtype "fp16", "bf16", "tf32", "fp32", "int8" where supported.
    """
    _require(ctx.device)
    torch.cuda.set_device(ctx.device)
    found = torch.cuda.get_device_properties(ctx.device)
    one = torch.ones(1024, device=ctx.device)
    if float(one.sum().item()) != 1024.0:
        raise RuntimeError("the device adds 1024 ones to something else")
    return {
        "name": found.name,
        "capability": [found.major, found.minor],
        "uuid": _uuid(found),
        "multiprocessors": found.multi_processor_count,
        "memory_bytes": found.total_memory,
        "l2_bytes": int(getattr(found, "L2_cache_size", 0)),
        "threads_per_multiprocessor": int(found.max_threads_per_multi_processor),
        "registers_per_multiprocessor": int(getattr(found, "regs_per_multiprocessor", 65536)),
        "shared_limit_bytes": _shared_limit(),
        "peaks": _peaks(ctx.device) if ctx.parameters["measure"] else {},
    }


def begin(device: str) -> None:
    """Make `device` the current one and bring CUDA up, before anything of a candidate runs: a driver that does not answer is
    then nobody's fault. Raises CandidateFault("unknown", "device") with what CUDA said."""
    try:
        torch.cuda.set_device(device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, AttributeError) as error:  # the latter from a torch without CUDA
        raise CandidateFault(
            "unknown", NO_DEVICE, f"CUDA did not start: {one_line(error)}", formatted(error)
        ) from error


def _require(device: str) -> None:
    """Raise RuntimeError in words where torch would fail in its own."""
    if torch.version.cuda is None:
        raise RuntimeError(
            f"torch {torch.__version__} is built without CUDA; install a CUDA build, or use --device cpu"
        )
    if not torch.cuda.is_available():
        shown = os.environ.get(VISIBLE)
        among = "" if shown is None else f" ({VISIBLE}={shown})"
        raise RuntimeError(f"torch finds no NVIDIA driver or no GPU{among}; see `kbtui doctor`, or use --device cpu")
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise RuntimeError(f"there are {torch.cuda.device_count()} GPUs, the first is cuda:0")


def rehearse(ctx: JobContext) -> dict[str, Any]:
    """The job that receives 0, 1, 2, ... and says whether they arrived: tries the way from the oracle by device memory."""
    torch.cuda.set_device(ctx.device)
    (found,) = ctx.inputs(0)
    return {"right": bool(torch.equal(found, torch.arange(len(found), dtype=torch.int32, device=ctx.device)))}


def _uuid(found: Any) -> str:
    """As NVML and nvidia-smi write it; torch leaves the prefix out. "" where torch does not say."""
    uuid = str(getattr(found, "uuid", ""))
    return uuid if not uuid or uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _shared_limit() -> int:
    """Shared memory that a block may opt in to, as Triton's driver reads it: torch has it only in newer versions.

    Also where that driver is built with the C compiler, so that a machine without one is told of here and not at the
    first candidate.
    """
    import triton

    driver = triton.runtime.driver.active
    return int(driver.utils.get_device_properties(driver.get_current_device())["max_shared_mem"])


def _copy(device: str) -> float:
    """Bytes read and written per second by a device-to-device copy."""
    free, _ = torch.cuda.mem_get_info()
    size = min(COPY_BYTES, int(free) // 8)
    source = torch.empty(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    moved: int = 2 * size
    return moved / _seconds(lambda: target.copy_(source))


def _peaks(device: str) -> dict[str, float]:
    peaks = {"copy": _copy(device)}
    for name, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        peaks[name] = _product(device, dtype, torch.matmul)
    allowed = torch.backends.cuda.matmul.allow_tf32
    try:
        for name, tf32 in (("tf32", True), ("fp32", False)):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            peaks[name] = _product(device, torch.float32, torch.matmul)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    integers = getattr(torch, "_int_mm", None)
    if integers is not None:
        try:
            peaks["int8"] = _product(device, torch.int8, integers)
        except RuntimeError:
            # No integer product on this architecture or in this build: its peak stays unknown.
            peaks.pop("int8", None)
    torch.cuda.empty_cache()
    return peaks


def _product(device: str, dtype: torch.dtype, multiply: Callable[[Any, Any], Any]) -> float:
    side = SIDE if dtype != torch.float32 else SIDE // 2
    if dtype.is_floating_point:
        left = torch.randn(side, side, device=device).to(dtype)
    else:
        left = torch.randint(-100, 100, (side, side), device=device, dtype=dtype)
    # int8 products want the right operand by columns; the others do not care.
    right = left.t().contiguous().t()
    return 2 * side**3 / _seconds(lambda: multiply(left, right))


def _seconds(work: Callable[[], Any]) -> float:
    """The best of REPEATS: a peak is what is reached once."""
    for _ in range(3):
        work()
    best = float("inf")
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        best = min(best, float(start.elapsed_time(end)) / 1e3)
    return best
