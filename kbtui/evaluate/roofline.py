"""Speed of light: the least time that the hardware allows for a case's compulsory traffic and operations.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009.
"""

from __future__ import annotations

from kbtui.state.peaks import peak_of
from kbtui.state.records import CaseInfo, DeviceInfo

REFUSED_BELOW = 0.8
"""A measured time below this share of `physical_floor_ms` cannot be: it is rejected, up to the floor it is suspicious."""


def floor_ms(case: CaseInfo, device: DeviceInfo) -> float:
    """Speed of light of a case in ms, for display; 0.0 when traffic or peaks are unknown."""
    return _floor(case.bytes_moved, case, device)


def physical_floor_ms(case: CaseInfo, device: DeviceInfo) -> float:
    """The time below which a measurement is wrong, in ms: what fits in the L2 cache need not come from memory at all."""
    return _floor(max(0, case.bytes_moved - device.l2_bytes), case, device)


def operations_ms(case: CaseInfo, device: DeviceInfo) -> float:
    """The time that a case's operations take at the device's peak rate, in ms; 0.0 when either is unknown."""
    return _floor(0, case, device)


def _floor(moved: int, case: CaseInfo, device: DeviceInfo) -> float:
    by_bytes = moved / device.peak_bytes_per_s if device.peak_bytes_per_s else 0.0
    peak = peak_of(case, device)
    by_operations = case.operations / peak if peak else 0.0
    return 1e3 * max(by_bytes, by_operations)
