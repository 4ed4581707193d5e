"""What is pruned before anything runs, in order of cost; every reason comes with the number behind it. Pure.

A duplicate syntax tree, the static policy and the compiler come first (`judging.compile_candidate`; the compiler itself
refuses a kernel that needs more shared memory than there is, naming both numbers). Then what is here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from kbtui.engine.host_code import host_digest
from kbtui.evaluate.objective import CasePair, combine
from kbtui.evaluate.roofline import operations_ms, physical_floor_ms
from kbtui.state.events import Pruned
from kbtui.state.records import CaseInfo, DeviceInfo, KernelFacts
from kbtui.state.run_state import Candidate, RunState


def duplicate(state: RunState, candidate: Candidate) -> Pruned | None:
    """Pruned when an older candidate has the same normalised syntax tree. Only a person's own version can come so far;
    a generator is asked again instead."""
    first = state.digests[candidate.syntax_digest]
    if first == candidate.id:
        return None
    return Pruned(candidate_id=candidate.id, stage="duplicate", reason=f"the same syntax tree as #{first}", value=first)


def after_compiling(state: RunState, candidate: Candidate) -> Pruned | None:
    """Why a candidate that compiled goes no further; None when it does."""
    assert state.started is not None, "a candidate was compiled, so the run has started"
    device = state.started.device
    return resources(candidate, device) or same_code(state, candidate) or speed_of_light(state, candidate)


def resources(candidate: Candidate, device: DeviceInfo) -> Pruned | None:
    """Pruned when a kernel cannot be launched on the device: more shared memory than it has, or no warp fits.

    A kernel compiled in several variants (autotune) is only pruned when none of them fits. Limits the device does not
    tell (0) prune nothing.
    """
    for name, variants in _by_name(_kernels(candidate)):
        shared = min(variant.shared_bytes for variant in variants)
        if device.shared_limit_bytes and shared > device.shared_limit_bytes:
            return Pruned(
                candidate_id=candidate.id,
                stage="resources",
                reason=f"{name} needs {shared:,} B of shared memory, {device.name} has {device.shared_limit_bytes:,} B",
                value=shared,
                limit=device.shared_limit_bytes,
            )
        occupancy = max(variant.occupancy_percent for variant in variants)
        if device.threads_per_multiprocessor and occupancy <= 0:
            return Pruned(
                candidate_id=candidate.id,
                stage="resources",
                reason=f"{name} fits no block on a multiprocessor of {device.name}",
                value=occupancy,
                limit=0.0,
            )
    return None


def same_code(state: RunState, candidate: Candidate) -> Pruned | None:
    """Pruned when another candidate, already judged, launches the same machine code on the same grids as often in every
    case, and nothing else differs either: a changed wrapper may allocate, copy or pass other things, and goes on."""
    kernels = _kernels(candidate)
    if not kernels:
        return None
    code, some = launched_code(kernels), kernels[0].code_digest
    for other in map(state.candidates.__getitem__, sorted(set(state.by_code.get(some, ())))):
        judged = other.pruned is not None or other.verification is not None
        if other.id == candidate.id or not judged:
            continue
        if launched_code(_kernels(other)) == code and host_digest(other.source) == host_digest(candidate.source):
            return Pruned(
                candidate_id=candidate.id, stage="code", reason=f"the same machine code as #{other.id}", value=other.id
            )
    return None


def speed_of_light(state: RunState, candidate: Candidate) -> Pruned | None:
    """Pruned when the candidate would not beat the best even if it took no longer than the hardware must: by the bytes and
    operations that the problem says each case needs, at the device's peaks, and with the multiprocessors that its own
    launches reach. `value` is the speedup over the baseline at that limit, `limit` the best's.

    What fits in the L2 cache is not counted, since it need not come from memory. None where a peak, the needs of a case or a
    time is unknown, and for a person's own version, which a person wants to see.
    """
    started, best = state.started, state.best
    baseline = state.baseline_beside(best) if best is not None else None
    if started is None or baseline is None or best is None or candidate.by:
        return None
    # The lower end of what was measured: no candidate is lost to the noise of the best.
    figure = best.estimate if best.ratio is None else min(best.ratio, _low(best))
    times = {one.case: one.ms or one.estimate_ms for one in baseline.cases}
    pairs = []
    for case in started.problem.cases:
        floor, ms = _least_ms(case, candidate, started.device), times.get(case.name)
        if not floor or not ms:
            return None
        pairs.append(CasePair(case.weight, ms, floor))
    if figure is None or not pairs:
        return None
    most = combine(pairs, started.objective)
    if most > figure:
        return None
    modelled = ", modelled" if state.modelled else ""
    return Pruned(
        candidate_id=candidate.id,
        stage="speed of light",
        reason=f"at the speed of light it would be {most:.2f}x, #{best.id} is {figure:.2f}x{modelled}",
        value=most,
        limit=figure,
    )


def _least_ms(case: CaseInfo, candidate: Candidate, device: DeviceInfo) -> float:
    """The least time of a case in ms for a candidate; 0.0 when unknown.

    A launch of fewer programs than there are multiprocessors computes at that share of the peak. (It may still draw the
    whole bandwidth of the memory.) Without launches that are known to be the case's, no more than `physical_floor_ms`.
    """
    floor = physical_floor_ms(case, device)
    programs = [math.prod(kernel.grid) for kernel in _kernels(candidate) if case.name in kernel.cases]
    if not programs or not device.multiprocessors:
        return floor
    share = min(1.0, max(programs) / device.multiprocessors)
    return max(floor, operations_ms(case, device) / share) if share else floor


def _low(candidate: Candidate) -> float:
    low = candidate.timing.low if candidate.timing is not None else None
    return math.inf if low is None else low


def launched_code(kernels: Iterable[KernelFacts]) -> Counter[tuple[str, tuple[int, int, int], str]]:
    """What runs on the device and how often: launches by digest of the machine code, grid and case, whatever the kernels
    are called."""
    found: Counter[tuple[str, tuple[int, int, int], str]] = Counter()
    for kernel in kernels:
        for case in kernel.cases or ("",):
            found[kernel.code_digest, kernel.grid, case] += kernel.launches
    return found


def _kernels(candidate: Candidate) -> tuple[KernelFacts, ...]:
    return candidate.compilation.kernels if candidate.compilation is not None else ()


def _by_name(kernels: Iterable[KernelFacts]) -> Iterator[tuple[str, list[KernelFacts]]]:
    by_name = attrgetter("name")
    for key, group in groupby(sorted(kernels, key=by_name), key=by_name):
        yield key, list(group)
