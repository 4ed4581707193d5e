"""What is pruned before it runs, with the number behind it."""

from __future__ import annotations

import msgspec
import pytest
from engine_fakes import SHARED_LIMIT

from kbtui.engine import cascade
from kbtui.engine.host_code import host_digest
from kbtui.state import events as e
from kbtui.state.records import (
    CaseInfo,
    CaseTiming,
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Timing,
    Verification,
)
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
        for kernel in one.compilation.kernels if one.compilation is not None else ():
            state.by_code.setdefault(kernel.code_digest, []).append(one.id)
    return state


def test_too_much_shared_memory() -> None:
    pruned = cascade.resources(candidate(1, changed(KERNEL, shared_bytes=SHARED_LIMIT + 16)), DEVICE)
    assert pruned is not None
    assert (pruned.stage, pruned.value, pruned.limit) == ("resources", SHARED_LIMIT + 16, SHARED_LIMIT)
    assert pruned.reason == f"k needs {SHARED_LIMIT + 16:,} B of shared memory, H200 has {SHARED_LIMIT:,} B"


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


def test_a_kernel_launched_twice_under_two_names_is_not_one_launched_once() -> None:
    first, second = candidate(1, KERNEL), candidate(2, KERNEL, changed(KERNEL, name="again"), judged=False)
    assert cascade.same_code(state_of(first, second), second) is None


def test_a_younger_one_that_was_judged_earlier_counts() -> None:
    """Pulls in flight overtake one another."""
    first, second = candidate(1, KERNEL, judged=False), candidate(2, KERNEL)
    pruned = cascade.same_code(state_of(first, second), first)
    assert pruned is not None
    assert pruned.value == 2


SOURCE = """
import triton
import triton.language as tl

@triton.jit
def k(x, out, BLOCK: tl.constexpr):
    tl.store(out, tl.load(x))

def entry(x):
    out = torch.empty_like(x)
    k[(8,)](x, out, BLOCK=1024, num_warps=4)
    return out
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("num_warps=4", "num_warps=4, num_stages=3", True),
        ("tl.store(out, tl.load(x))", "tl.store(out, tl.load(x), cache_modifier='.cs')", True),
        ("def k(", "def k2(", False),  # only the definition: the wrapper would call another kernel
        ("import triton\n", "# a comment\nimport triton\n", True),
        ("def entry(x):", 'def entry(x):\n    "A docstring."', True),
        ("empty_like(x)", "empty_like(x.contiguous())", False),
        ("(x, out, BLOCK=1024", "(out, x, BLOCK=1024", False),
        ("return out", "return out.clone()", False),
        ("k[(8,)]", "k[(4,)]", False),
        ("    return out", "    k[(8,)](x, out, BLOCK=1024)\n    return out", False),
    ],
)
def test_a_changed_wrapper_is_no_twin(old: str, new: str, same: bool) -> None:
    first, second = candidate(1, KERNEL), candidate(2, KERNEL, judged=False)
    first.source, second.source = SOURCE, SOURCE.replace(old, new, 1)
    assert second.source != SOURCE
    assert (cascade.same_code(state_of(first, second), second) is not None) == same


@pytest.mark.parametrize(
    "decorated",
    [
        "import triton as tr\n\n@tr.jit\ndef k(",
        "from triton import jit\n\n@jit\ndef k(",
        "@triton.jit(debug=True)\ndef k(",
    ],
)
def test_a_kernel_is_known_by_what_decorates_it(decorated: str) -> None:
    source = SOURCE.replace("@triton.jit\ndef k(", decorated)
    assert host_digest(source) == host_digest(source.replace("tl.load(x)", "tl.load(x) + 0"))


def test_a_renamed_kernel_leaves_the_wrapper_as_it_is() -> None:
    assert host_digest(SOURCE) == host_digest(
        SOURCE.replace("k(x, out, BLOCK: tl", "named(x, out, BLOCK: tl").replace("k[", "named[")
    )


def test_another_decorator_makes_no_kernel() -> None:
    source = SOURCE.replace("@triton.jit", "@torch.compile")
    assert host_digest(source) != host_digest(source.replace("tl.load(x)", "tl.load(x) + 0"))


def test_a_source_that_does_not_parse_has_a_digest() -> None:
    assert host_digest("def (") != host_digest("def (:")


@pytest.mark.parametrize(
    "difference", [{"cases": ("n=1",)}, {"grid": (4, 1, 1)}, {"launches": 2}, {"code_digest": "bb"}]
)
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


# ---------------------------------------------------------------- the speed of light

CASE = CaseInfo(name="n", fields={}, bytes_moved=5_000_000_000, operations=10**12, dtypes=("float16",))
CARD = msgspec.structs.replace(
    DEVICE, multiprocessors=100, peak_bytes_per_s=5e12, peak_ops_per_s={"fp16": 1e15}, l2_bytes=0
)
"""1 ms by its bytes and 1 ms by its operations."""


def lit(best_ms: float, low: float | None = None, device: DeviceInfo = CARD, case: CaseInfo = CASE) -> RunState:
    """A baseline of 4 ms and a best of `best_ms`."""
    baseline, best = candidate(0), candidate(1)
    for one, ms in ((baseline, 4.0), (best, best_ms)):
        timing = CaseTiming(case="n", ms=ms)
        one.timing = Timing(kind="measured", verdict="faster", cases=(timing,), ratio=4 / ms, low=low, high=low)
        one.verification = Verification(verdict="correct", stage="done")
    state = state_of(baseline, best)
    state.best_id = 1
    state.started = e.RunStarted(
        journal_version=1, run_id="r", timing="measured", policy="ucb", policy_parameters={}, generator="fake",
        objective="geomean", seed=0, iterations=1, budget_usd=None, parallel=1, versions={}, isolation={}, python="",
        problem=ProblemInfo(name="p", path="", entry="f", digest="", cases=(case,)), device=device,
    )  # fmt: skip
    return state


def launching(programs: int) -> Candidate:
    return candidate(2, changed(KERNEL, grid=(programs, 1, 1), cases=("n",), code_digest="bb"), judged=False)


def test_what_cannot_beat_the_best_at_the_speed_of_light_is_pruned_with_both_numbers():
    pruned = cascade.after_compiling(lit(1.0), launching(100))
    assert pruned is not None
    assert (pruned.stage, pruned.value, pruned.limit) == ("speed of light", 4.0, 4.0)
    assert cascade.speed_of_light(lit(1.1), launching(100)) is None


def test_a_launch_that_leaves_multiprocessors_idle_has_a_limit_of_its_own():
    """At 50 programs of 100 its operations take 2 ms, so it is 2.0x at most."""
    assert cascade.speed_of_light(lit(2.1), launching(50)) is None
    pruned = cascade.speed_of_light(lit(1.9), launching(50))
    assert pruned is not None
    assert pruned.value == pytest.approx(2.0)
    assert cascade.speed_of_light(lit(1.9), launching(100)) is None


def test_the_noise_of_the_best_prunes_nobody():
    assert cascade.speed_of_light(lit(0.99, low=3.9), launching(100)) is None


def test_no_bound_without_peaks_needs_or_a_best_and_none_for_a_persons_own():
    state = lit(1.0)
    own = launching(100)
    own.by = "ann"
    assert cascade.speed_of_light(state, own) is None
    assert cascade.speed_of_light(lit(1.0, device=DEVICE), launching(100)) is None
    assert cascade.speed_of_light(lit(1.0, case=CaseInfo(name="n", fields={})), launching(100)) is None
    state.best_id = None
    assert cascade.speed_of_light(state, launching(100)) is None


def test_what_the_cache_holds_counts_for_nothing():
    cached = msgspec.structs.replace(CARD, l2_bytes=5_000_000_000, peak_ops_per_s={"fp16": 4e15})
    assert cascade.speed_of_light(lit(1.0, device=cached), launching(100)) is None
