"""What is pruned before anything runs, in order of cost; every reason comes with the number behind it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

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
    """Pruned when an older, judged candidate launches the same machine code on the same grids as often."""
    code = launched_code(_kernels(candidate))
    for other in state.candidates.values():
        judged = other.pruned is not None or other.verification is not None
        if other.id < candidate.id and judged and code and launched_code(_kernels(other)) == code:
            return Pruned(
                candidate_id=candidate.id, stage="code", reason=f"the same machine code as #{other.id}", value=other.id
            )
    return None


def launched_code(kernels: Iterable[KernelFacts]) -> frozenset[tuple[str, tuple[int, int, int], int]]:
    """What runs on the device: digests of the machine code with grid and number of launches, whatever the names."""
    return frozenset((kernel.code_digest, kernel.grid, kernel.launches) for kernel in kernels)


def _kernels(candidate: Candidate) -> tuple[KernelFacts, ...]:
    return candidate.compilation.kernels if candidate.compilation is not None else ()


def _by_name(kernels: Iterable[KernelFacts]) -> Iterator[tuple[str, list[KernelFacts]]]:
    by_name = attrgetter("name")
    for key, group in groupby(sorted(kernels, key=by_name), key=by_name):
        yield key, list(group)
