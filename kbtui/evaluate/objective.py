"""One figure out of a candidate's cases: geometric mean, total time or worst case. The same for measured and modelled."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kbtui.config import OBJECTIVES
from kbtui.errors import UsageError


class CasePair(msgspec.Struct, frozen=True):
    """Times of one case in ms: of what is compared against, and of the candidate. None where the case failed."""

    weight: float
    reference_ms: float | None
    ms: float | None

    @property
    def ratio(self) -> float:
        """How many times faster the candidate is; a failed case counts as 1.0."""
        if self.reference_ms is None or self.ms is None:
            return 1.0
        return self.reference_ms / self.ms


def combine(pairs: Sequence[CasePair], objective: str) -> float:
    """The speedup over all cases. `total` leaves failed cases out, which is the same as counting them as equal times
    of no length. Raises UsageError for an unknown objective; ValueError without cases."""
    if not pairs:
        raise ValueError("no cases to combine")
    if objective == "geomean":
        weight = sum(pair.weight for pair in pairs)
        if weight <= 0:
            raise ValueError("the weights of the cases add up to nothing")
        return math.exp(sum(pair.weight * math.log(pair.ratio) for pair in pairs) / weight)
    if objective == "total":
        whole = [(p.weight, p.reference_ms, p.ms) for p in pairs if p.reference_ms is not None and p.ms is not None]
        candidate = sum(weight * ms for weight, _, ms in whole)
        return sum(weight * reference for weight, reference, _ in whole) / candidate if candidate else 1.0
    if objective == "worst":
        return min(pair.ratio for pair in pairs)
    raise UsageError(f"unknown objective {objective!r}: choose one of {', '.join(OBJECTIVES)}")
