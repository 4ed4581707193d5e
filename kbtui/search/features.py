"""Behaviour features of a candidate: φ = [log(1 + ms), registers, shared KiB, log2(block), occupancy %].

KernelBand (arXiv 2511.18868), section on clustering. All but the time come from the compiled kernels, never from the source text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kbtui.state.records import Features
from kbtui.state.run_state import Candidate

FEATURES: tuple[str, ...] = Features.__struct_fields__
"""Names in the order of φ."""


def features(candidate: Candidate) -> Features | None:
    """The candidate's features; None unless all five are known (compiled, and timed on every case)."""
    values = known_features(candidate)
    if any(value is None for value in values):
        return None
    return Features(**{name: float(value) for name, value in zip(FEATURES, values, strict=True) if value is not None})


def known_features(candidate: Candidate) -> tuple[float | None, ...]:
    """φ in order, None where unknown.

    Of several kernels the most demanding counts: most registers, most shared memory, most threads per block, least
    occupancy. Latency is the geometric mean over the cases, measured or modelled as the run is.
    """
    latency = latency_ms(candidate)
    return (None if latency is None else math.log1p(latency), *_compiled_features(candidate))


def latency_ms(candidate: Candidate) -> float | None:
    """Geometric mean of the cases' times in ms, measured or, in a modelled run, estimated; None unless every case has one."""
    timing = candidate.timing
    if timing is None:
        return None
    if timing.kind == "measured":
        return _geometric_mean([case.ms for case in timing.cases])
    return _geometric_mean([case.estimate_ms for case in timing.cases])


def _compiled_features(candidate: Candidate) -> tuple[float | None, ...]:
    kernels = candidate.compilation.kernels if candidate.compilation is not None else ()
    if not kernels:
        return (None, None, None, None)
    return (
        float(max(kernel.registers for kernel in kernels)),
        max(kernel.shared_bytes for kernel in kernels) / 1024,
        math.log2(max(1, *(kernel.threads for kernel in kernels))),
        float(min(kernel.occupancy_percent for kernel in kernels)),
    )


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None and value > 0]
    if not known or len(known) < len(values):
        return None
    return math.exp(math.fsum(map(math.log, known)) / len(known))
