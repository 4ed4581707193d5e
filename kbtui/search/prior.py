"""Masks as a prior: how much a saturated resource lowers an arm's chance before anything was tried. Never a ban.

The published mask (mask.py) forbids an arm whose resource is saturated, and holds fusion to work on DRAM bandwidth. But
fusion removes traffic, so it gains most where DRAM is saturated. Here its target is the traffic that it could remove.
"""

from __future__ import annotations

import math

import msgspec

from kbtui.search.mask import headroom, reason, threshold_of
from kbtui.search.settings import SoftSettings
from kbtui.state.records import Signature, Strategy
from kbtui.state.run_state import Candidate, RunState


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """What the hardware says of an arm. `weight` in (0, 1] scales what is expected of it, 1 where nothing is known.

    `headroom_percent`: threshold minus reading in percent points of peak; for fusion the traffic that it could remove.
    `reason` says why the weight is less than 1, "" where it is not.
    """

    weight: float = 1.0
    headroom_percent: float | None = None
    reason: str = ""


def prior(state: RunState, representative: Candidate, strategy: Strategy, settings: SoftSettings) -> Prior:
    """The prior of a strategy in the cluster that `representative` stands for."""
    signature = representative.signature or Signature()
    if strategy == "fusion":
        return _fusion(state, representative, signature, settings)
    room = headroom(signature, strategy, settings)
    if room is None or room > 0:
        return Prior(headroom_percent=room)
    weight = ramp(-room, 100.0 - threshold_of(settings, strategy), settings.saturated)
    return Prior(weight=weight, headroom_percent=room, reason=reason(signature, strategy, settings))


def ramp(excess: float, span: float, least: float) -> float:
    """1 at an excess of 0, falling on a line to `least` at `span` and beyond.

    A step at the threshold would let two readings that differ by noise decide over an arm.
    """
    share = 1.0 if span <= 0 else min(1.0, max(0.0, excess / span))
    return 1.0 - (1.0 - least) * share


def removable_percent(state: RunState, candidate: Candidate) -> float | None:
    """DRAM traffic beyond what the cases need at least, in percent points of peak: what fusion could remove.

    The DRAM reading minus 100 · Σ compulsory bytes / (peak · Σ time), over the cases with a time. None when the reading,
    the traffic of a case, a time or the peak is unknown. Below 0 where data stays in the cache.
    """
    reading = (candidate.signature or Signature()).dram.percent
    started, timing = state.started, candidate.timing
    if reading is None or started is None or timing is None or not started.device.peak_bytes_per_s:
        return None
    moved = {case.name: case.bytes_moved for case in started.problem.cases}
    total_bytes, total_ms = 0, 0.0
    for case in timing.cases:
        ms = case.ms if timing.kind == "measured" else case.estimate_ms
        if not ms or not moved.get(case.case):
            return None
        total_bytes += moved[case.case]
        total_ms += ms
    if not total_ms:
        return None
    return reading - 100.0 * total_bytes / (started.device.peak_bytes_per_s * total_ms / 1e3)


def _fusion(state: RunState, representative: Candidate, signature: Signature, settings: SoftSettings) -> Prior:
    removable = removable_percent(state, representative)
    if removable is None or not math.isfinite(removable):
        return Prior()
    # As much as separates a saturated resource from its peak is traffic worth a fusion.
    wanted = 100.0 - settings.threshold_dram
    weight = ramp(wanted - removable, wanted, settings.saturated)
    modelled = " modelled" if signature.dram.source == "model" else ""
    why = f"{max(0.0, removable):.0f} % of DRAM peak{modelled} is traffic to remove" if weight < 1 else ""
    return Prior(weight=weight, headroom_percent=removable, reason=why)
