"""What is pruned before anything runs, in order of cost; every reason comes with the number behind it. Pure.

A duplicate syntax tree, the static policy and the compiler come first (`judging.compile_candidate`; the compiler itself
refuses a kernel that needs more shared memory than there is, naming both numbers). Then what is here. A bound by the
speed of light is not among it: a problem's least traffic is the same for all of its candidates, and what one candidate
moves is only counted (`cpu`) or measured (`cuda`) by the very step that times it, so no lane knows a bound of a
candidate's own before, and a bound that is not its own prunes nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from kbtui.engine.host_code import host_digest
from kbtui.state.events import Pruned
from kbtui.state.records import DeviceInfo, KernelFacts
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
    return resources(candidate, state.started.device) or same_code(state, candidate)


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
                reason=f"{name} needs {shared} bytes of shared memory, {device.name} has {device.shared_limit_bytes}",
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
    for other in state.candidates.values():
        judged = other.pruned is not None or other.verification is not None
        if other.id == candidate.id or not judged or not any(one.code_digest == some for one in _kernels(other)):
            continue
        if launched_code(_kernels(other)) == code and host_digest(other.source) == host_digest(candidate.source):
            return Pruned(
                candidate_id=candidate.id, stage="code", reason=f"the same machine code as #{other.id}", value=other.id
            )
    return None


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
