"""What is pruned before it runs, with the number behind it."""

from __future__ import annotations

import msgspec
import pytest
from engine_fakes import SHARED_LIMIT

from kbtui.engine import cascade
from kbtui.state.records import Compilation, DeviceInfo, KernelFacts, Verification
from kbtui.state.run_state import Candidate, RunState

DEVICE = DeviceInfo(
    lane="cpu",
    kind="cpu",
    name="H200",
    target="sm_90",
    shared_limit_bytes=SHARED_LIMIT,
    threads_per_multiprocessor=2048,
)
KERNEL = KernelFacts(
    name="k",
    target="sm_90",
    registers=32,
    spill_bytes=0,
    shared_bytes=1024,
    num_warps=4,
    num_stages=3,
    threads=128,
    occupancy_percent=50.0,
    code_digest="aa",
    grid=(8, 1, 1),
)


def changed(kernel: KernelFacts, **changes: object) -> KernelFacts:
    return msgspec.structs.replace(kernel, **changes)


def candidate(number: int, *kernels: KernelFacts, judged: bool = True, digest: str = "") -> Candidate:
    return Candidate(
        id=number,
        parent_id=0,
        pull=number,
        strategy="tiling",
        generator="fake",
        move=f"move {number}",
        source="",
        source_digest="",
        syntax_digest=digest or f"syntax {number}",
        compilation=Compilation(ok=True, kernels=kernels),
        verification=Verification(verdict="wrong", stage="boundary") if judged else None,
    )


def state_of(*candidates: Candidate) -> RunState:
    state = RunState()
    for one in candidates:
        state.candidates[one.id] = one
        state.digests.setdefault(one.syntax_digest, one.id)
    return state


def test_too_much_shared_memory() -> None:
    pruned = cascade.resources(candidate(1, changed(KERNEL, shared_bytes=SHARED_LIMIT + 16)), DEVICE)
    assert pruned is not None
    assert (pruned.stage, pruned.value, pruned.limit) == ("resources", SHARED_LIMIT + 16, SHARED_LIMIT)
    assert pruned.reason == f"k needs {SHARED_LIMIT + 16} bytes of shared memory, H200 has {SHARED_LIMIT}"


def test_exactly_as_much_as_there_is_fits() -> None:
    assert cascade.resources(candidate(1, changed(KERNEL, shared_bytes=SHARED_LIMIT)), DEVICE) is None


def test_no_block_fits() -> None:
    pruned = cascade.resources(candidate(1, changed(KERNEL, occupancy_percent=0.0)), DEVICE)
    assert pruned is not None
    assert pruned.value == 0.0


def test_of_autotuned_variants_one_that_fits_is_enough() -> None:
    big = changed(KERNEL, shared_bytes=SHARED_LIMIT * 2)
    assert cascade.resources(candidate(1, big, KERNEL), DEVICE) is None
    assert cascade.resources(candidate(1, big, changed(KERNEL, name="other")), DEVICE) is not None


def test_a_device_that_tells_no_limits_prunes_nothing() -> None:
    silent = DeviceInfo(lane="cuda:0", kind="cuda", name="?", target="sm_90")
    odd = changed(KERNEL, shared_bytes=1 << 30, occupancy_percent=0.0)
    assert cascade.resources(candidate(1, odd), silent) is None


def test_the_same_machine_code_under_another_name() -> None:
    first, second = candidate(1, KERNEL), candidate(2, changed(KERNEL, name="renamed", num_stages=4), judged=False)
    pruned = cascade.same_code(state_of(first, second), second)
    assert pruned is not None
    assert (pruned.stage, pruned.value) == ("code", 1)
    assert pruned.reason == "the same machine code as #1"


@pytest.mark.parametrize("difference", [{"grid": (4, 1, 1)}, {"launches": 2}, {"code_digest": "bb"}])
def test_what_is_launched_otherwise_is_another_kernel(difference: dict[str, object]) -> None:
    first, second = candidate(1, KERNEL), candidate(2, changed(KERNEL, **difference), judged=False)
    assert cascade.same_code(state_of(first, second), second) is None


def test_one_that_was_never_judged_is_no_reason() -> None:
    first, second = candidate(1, KERNEL, judged=False), candidate(2, KERNEL, judged=False)
    assert cascade.same_code(state_of(first, second), second) is None


def test_a_candidate_is_not_its_own_twin() -> None:
    only = candidate(1, KERNEL)
    assert cascade.same_code(state_of(only), only) is None
    assert cascade.duplicate(state_of(only), only) is None


def test_code_that_could_not_be_read_is_not_the_same() -> None:
    first, second = candidate(1), candidate(2, judged=False)
    assert cascade.same_code(state_of(first, second), second) is None


def test_a_duplicate_names_the_first() -> None:
    first, second = candidate(1, digest="same"), candidate(2, digest="same")
    pruned = cascade.duplicate(state_of(first, second), second)
    assert pruned is not None
    assert pruned.reason == "the same syntax tree as #1"
