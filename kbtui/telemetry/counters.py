"""The counters of one GPU, each read by itself: what fails is "n/a" with its reason and costs no other field.

PCIe throughput is left out: that one call takes 20 ms, all of these together 0.5 ms (H200).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kbtui.telemetry.nvml import Gpu, GpuUnavailable, explain

REASONS: tuple[tuple[int, str, bool], ...] = (
    (0x001, "idle", False),
    (0x002, "clocks fixed by the user", False),
    (0x004, "power limit", True),
    (0x008, "hardware slowdown", True),
    (0x010, "held back by sync boost", True),
    (0x020, "too hot (software)", True),
    (0x040, "too hot (hardware)", True),
    (0x080, "power brake", True),
    (0x100, "display clocks", False),
    (0x200, "board limit", True),
    (0x400, "reliability voltage", True),
)
"""NVML's clock event reasons: bit, words, and whether the clocks are throttled by it."""


class Counters(msgspec.Struct, frozen=True):
    """As in `GpuSampled`: what was read, what was not and why, and why the clocks are what they are."""

    values: dict[str, float]
    missing: dict[str, str]
    reasons: tuple[str, ...]


def read_counters(gpu: Gpu) -> Counters:
    """Read everything once. Raises GpuUnavailable when the GPU as a whole is gone."""
    values: dict[str, float] = {}
    missing: dict[str, str] = {}
    for read, keys in _READERS:
        try:
            values.update(zip(keys, read(gpu), strict=True))
        except gpu.nvml.NVMLError as error:
            if error.value in (gpu.nvml.NVML_ERROR_GPU_IS_LOST, gpu.nvml.NVML_ERROR_UNINITIALIZED):
                raise GpuUnavailable(explain(gpu.nvml, error)) from None
            missing.update(dict.fromkeys(keys, _why(gpu, error)))
    bits = int(values.pop("reasons", 0))
    if "reasons" in missing:
        missing["throttle"] = missing.pop("reasons")
    else:
        values["throttle"] = float(any(bits & bit for bit, _, throttled in REASONS if throttled))
    return Counters(values, missing, reasons_in_words(bits))


def reasons_in_words(bits: int) -> tuple[str, ...]:
    """The clock event reasons of a bit mask; bits NVML may add later are shown as numbers."""
    known = tuple(words for bit, words, _ in REASONS if bits & bit)
    unknown = bits & ~sum(bit for bit, _, _ in REASONS)
    return (*known, f"reason {unknown:#x}") if unknown else known


def _why(gpu: Gpu, error: Exception) -> str:
    if getattr(error, "value", None) == gpu.nvml.NVML_ERROR_NOT_SUPPORTED and gpu.migrated():
        return "not available while the GPU is split (MIG)"
    return explain(gpu.nvml, error)


def _busy(gpu: Gpu) -> tuple[float, ...]:
    # The share of time in which any kernel ran: "busy", not how much of the GPU worked.
    return (float(gpu.nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu),)


def _memory(gpu: Gpu) -> tuple[float, ...]:
    info = gpu.nvml.nvmlDeviceGetMemoryInfo(gpu.handle)
    return float(info.used), float(info.total)


def _power(gpu: Gpu) -> tuple[float, ...]:
    return (gpu.nvml.nvmlDeviceGetPowerUsage(gpu.handle) / 1000,)


def _power_limit(gpu: Gpu) -> tuple[float, ...]:
    return (gpu.nvml.nvmlDeviceGetEnforcedPowerLimit(gpu.handle) / 1000,)


def _temperature(gpu: Gpu) -> tuple[float, ...]:
    return (float(gpu.nvml.nvmlDeviceGetTemperature(gpu.handle, gpu.nvml.NVML_TEMPERATURE_GPU)),)


def _sm_clock(gpu: Gpu) -> tuple[float, ...]:
    return (float(gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_SM)),)


def _sm_clock_max(gpu: Gpu) -> tuple[float, ...]:
    return (float(gpu.nvml.nvmlDeviceGetMaxClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_SM)),)


def _memory_clock(gpu: Gpu) -> tuple[float, ...]:
    return (float(gpu.nvml.nvmlDeviceGetClockInfo(gpu.handle, gpu.nvml.NVML_CLOCK_MEM)),)


def _reasons(gpu: Gpu) -> tuple[float, ...]:
    # Renamed in driver 535; the old name goes with CUDA 14. The module may know only one, the driver only the other.
    newer = getattr(gpu.nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    older = getattr(gpu.nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None)
    if newer is None:
        return (float(older(gpu.handle)),) if older is not None else (0.0,)
    try:
        return (float(newer(gpu.handle)),)
    except gpu.nvml.NVMLError as error:
        if older is None or error.value != gpu.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return (float(older(gpu.handle)),)


_READERS: tuple[tuple[Callable[[Gpu], tuple[float, ...]], tuple[str, ...]], ...] = (
    (_busy, ("busy_percent",)),
    (_memory, ("memory_used_bytes", "memory_total_bytes")),
    (_power, ("power_w",)),
    (_power_limit, ("power_limit_w",)),
    (_temperature, ("temperature_c",)),
    (_sm_clock, ("sm_clock_mhz",)),
    (_sm_clock_max, ("sm_clock_max_mhz",)),
    (_memory_clock, ("memory_clock_mhz",)),
    (_reasons, ("reasons",)),
)
