"""What the `cpu` lane finds wrong with a candidate's values, outputs and addresses, and what it lets pass."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbtui.evaluate.cpu import CpuLane
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.state.records import KernelFacts, Verification

pytest.importorskip("triton", reason="needs triton")
PROBLEM = Path(__file__).with_name("data") / "scale"
KERNEL = (PROBLEM / "kernel.py").read_text()


def facts(**constants: int) -> KernelFacts:
    return KernelFacts(
        name="scale_kernel",
        target="sm_90",
        registers=16,
        spill_bytes=0,
        shared_bytes=0,
        num_warps=4,
        num_stages=2,
        threads=128,
        occupancy_percent=100.0,
        code_digest="0" * 64,
        constants=dict(constants),
    )


def quiet(stage: str, text: str) -> None:
    """A report that goes nowhere."""


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CpuLane]:
    scratch = tmp_path_factory.mktemp("lane") / "scratch"
    made = open_lane(LaneSpec(problem=PROBLEM, device="cpu", python=sys.executable, scratch=scratch, deadline_s=30))
    assert isinstance(made, CpuLane)
    made.start()
    yield made
    made.close()


def verify(lane: CpuLane, source: str) -> Verification:
    return lane.verify(source, (facts(BLOCK=64),), quiet)


def changed(old: str, new: str) -> str:
    assert old in KERNEL, old
    return KERNEL.replace(old, new)


def test_the_baseline_is_correct_and_its_error_known(lane: CpuLane) -> None:
    found = verify(lane, KERNEL)
    assert found.verdict == "correct"
    assert found.cases_checked >= 10
    assert found.error is not None
    assert 0 < found.error < 1e-2
    assert any(note.startswith("races") for note in found.not_checked)


def test_an_honest_change_is_correct(lane: CpuLane) -> None:
    found = verify(lane, changed("BLOCK = 64", "BLOCK = 32"))
    assert (found.verdict, found.reason) == ("correct", "")
    assert found.cases_checked >= 10
    assert found.allowed is not None
    assert found.error is not None
    assert found.error <= found.allowed
    assert found.worst_case


@pytest.mark.parametrize(
    ("old", "new", "stage", "words"),
    [
        pytest.param("    return out", "    return ()", "outputs", "0 tensors", id="empty tuple"),
        pytest.param("    return out", "    return out, out", "outputs", "2 tensors", id="count"),
        pytest.param("    return out", "    return out.to(torch.float64)", "outputs", "float64", id="dtype"),
        pytest.param("    return out", "    return out[:, :1]", "outputs", "shape", id="broadcastable shape"),
        pytest.param("    return out", "    return out.t().contiguous().t()", "outputs", "strides", id="strides"),
        pytest.param("    return out", "    return x.copy_(out)", "outputs", "shares memory", id="shared storage"),
        pytest.param(
            "    return out", "    x.copy_(out)\n    return out", "boundary", "writes to its input 0", id="input"
        ),
        pytest.param("    return out", "    return 1.0", "outputs", "float", id="no tensor"),
        pytest.param("x * w + 1.0, mask", "x * 0.0, mask", "boundary", "error", id="zeros"),
        pytest.param("x * w + 1.0, mask", "x * w, mask", "boundary", "error", id="a dropped term"),
        pytest.param("mask=mask)\n\n\ndef", "mask=mask & (offsets < cols - 1))\n\n\ndef", "boundary", "NaN", id="tail"),
        pytest.param("triton.cdiv(cols, BLOCK)", "cols // BLOCK", "boundary", "where", id="last block"),
        pytest.param("x * w + 1.0, mask", "tl.where(x == x, x * w + 1.0, 1.0), mask", "boundary", "NaN", id="NaN"),
    ],
)
def test_wrong_outputs(lane: CpuLane, old: str, new: str, stage: str, words: str) -> None:
    found = verify(lane, changed(old, new))
    assert (found.verdict, found.owner) == ("wrong", "candidate"), found
    assert found.stage == stage
    assert words in found.reason
    assert found.worst_case


def test_the_first_wrong_place_and_the_error_are_told(lane: CpuLane) -> None:
    found = verify(lane, changed("x * w + 1.0, mask", "tl.where(offsets == 2, 0.0, x * w + 1.0), mask"))
    assert found.verdict == "wrong"
    assert found.first_wrong_index == (0, 2)
    assert found.allowed == pytest.approx(1e-5)
    assert found.error is not None
    assert found.error > 1e-3


@pytest.mark.parametrize(
    ("old", "new", "access", "tensor"),
    [
        pytest.param("w_ptr + offsets, mask=mask, other=0.0", "w_ptr + offsets", "load", "w_ptr", id="load"),
        pytest.param("x * w + 1.0, mask=mask)", "x * w + 1.0)", "store", "out_ptr", id="store"),
        pytest.param("tl.load(w_ptr + offsets", "tl.load(w_ptr - 5000 + offsets", "load", "w_ptr", id="before"),
    ],
)
def test_addresses_outside_a_tensor(lane: CpuLane, old: str, new: str, access: str, tensor: str) -> None:
    found = verify(lane, changed(old, new))
    assert (found.verdict, found.stage) == ("wrong", "addresses"), found
    assert access in found.reason
    assert tensor in found.reason
    assert "element" in found.reason


def test_a_swallowed_address_fault_still_counts(lane: CpuLane) -> None:
    source = changed("x * w + 1.0, mask=mask)", "x * w + 1.0)").replace(
        "    scale_kernel[(rows", "    try:\n        scale_kernel[(rows"
    )
    source = source.replace("    return out", "    except Exception:\n        pass\n    return out")
    assert verify(lane, source).stage == "addresses"


def test_a_patched_comparison_changes_nothing(lane: CpuLane) -> None:
    patch = "torch.allclose = torch.isclose = lambda *a, **k: True\ntorch.isnan = lambda x: x * 0\n"
    source = changed("x * w + 1.0, mask", "x * w, mask").replace("@triton.jit", patch + "@triton.jit", 1)
    found = verify(lane, source)
    assert (found.verdict, found.stage) == ("wrong", "boundary")


def test_work_handed_to_torch_is_a_cheat(lane: CpuLane) -> None:
    found = verify(lane, changed("    rows, cols = x.shape", "    return torch.addcmul(torch.ones_like(x), x, w)"))
    assert (found.verdict, found.stage) == ("cheat", "policy")
    assert "torch.addcmul" in found.reason


def test_launching_nothing_is_a_cheat(lane: CpuLane) -> None:
    hidden = '    return getattr(torch, "add" + "cmul")(torch.ones_like(x), x, w)'
    found = verify(lane, changed("    rows, cols = x.shape", hidden))
    assert (found.verdict, found.stage) == ("cheat", "launches")


def test_a_result_kept_from_the_first_call_is_wrong(lane: CpuLane) -> None:
    kept = "    if kept:\n        return kept[0]\n    rows, cols = x.shape"
    source = changed("    rows, cols = x.shape", kept).replace("    return out", "    kept.append(out)\n    return out")
    found = verify(lane, source.replace("@triton.jit", "kept = []\n\n\n@triton.jit", 1))
    assert found.verdict in ("wrong", "cheat")


def test_an_exception_is_a_crash_with_its_text(lane: CpuLane) -> None:
    found = verify(lane, changed("    rows, cols = x.shape", '    raise ValueError("no such size")'))
    assert found.verdict == "crash"
    assert "no such size" in found.reason
    assert "ValueError" in found.detail


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def scale(:\n", "not valid Python"),
        (KERNEL.replace("def scale(", "def scale2("), "has no scale"),
        ("import no_such_module\n" + KERNEL, "no_such_module"),
        (KERNEL + "\n1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_what_does_not_import_is_invalid(lane: CpuLane, source: str, words: str) -> None:
    found = verify(lane, source)
    assert (found.verdict, found.owner) == ("invalid", "candidate")
    assert words in found.reason


def test_what_only_the_interpreter_refuses_is_unknown(lane: CpuLane) -> None:
    # compiles for a GPU; the interpreter has no inline assembly
    asm = 'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x * w], dtype=tl.float32, is_pure=True, pack=1)'
    found = verify(lane, changed("x * w + 1.0, mask", f"{asm} + 1.0, mask"))
    assert (found.verdict, found.owner, found.stage) == ("unknown", "environment", "interpreter")
    assert "interpreter" in found.reason


def test_an_autotuned_candidate_meets_its_configurations(lane: CpuLane) -> None:
    tune = "@triton.autotune(configs=[triton.Config({'BLOCK': 32}), triton.Config({'BLOCK': 64})], key=['cols'])\n@triton.jit"
    source = (
        changed("@triton.jit", tune)
        .replace(", BLOCK=BLOCK)", ")")
        .replace("(rows, triton.cdiv(cols, BLOCK))", "lambda meta: (rows, triton.cdiv(cols, meta['BLOCK']))")
    )
    assert verify(lane, source).verdict == "correct"
    broken = source.replace("x * w + 1.0, mask=mask", "x * w + 1.0 + (BLOCK == 64), mask=mask")
    assert verify(lane, broken).verdict == "wrong"


def test_a_wrapper_that_insists_on_cuda_runs(lane: CpuLane) -> None:
    insists = "    assert x.is_cuda\n    torch.cuda.synchronize()\n    rows, cols = x.shape"
    source = changed("    rows, cols = x.shape", insists).replace("device=x.device", 'device="cuda"')
    assert verify(lane, source).verdict == "correct"


def test_compile_time_and_facts_of_a_started_lane(lane: CpuLane) -> None:
    compiled = lane.compile(KERNEL, quiet)
    assert compiled.ok, compiled.detail
    assert {kernel.name for kernel in compiled.kernels} == {"scale_kernel"}
    evaluated = lane.time(KERNEL, compiled.kernels, None, KERNEL, None, quiet)
    assert evaluated.timing.kind == "modelled"
    assert [case.failed for case in evaluated.timing.cases] == ["", ""]
    assert all(case.ms is None and case.estimate_ms for case in evaluated.timing.cases)
    broken = lane.compile(changed("x * w + 1.0, mask", "nothing, mask"), quiet)
    assert (broken.ok, broken.outcome) == (False, "invalid")
    assert "nothing" in broken.reason
    assert lane.facts.problem.cases[0].bytes_moved == 2 * 512 * 1024 * 4
    assert lane.facts.timing == "modelled"


@pytest.mark.parametrize("lenient", [True, False])
def test_cases_that_cannot_be_timed_are_left_out_or_refused(lenient: bool) -> None:
    """Of a kernel's own calls one may be beyond it; of somebody's own cases every one has to work."""
    from kbtui.errors import ProblemError
    from kbtui.evaluate import wire
    from kbtui.evaluate.job import Outcome
    from kbtui.evaluate.verify import Surroundings, Verifier

    def die(*_: object) -> Outcome:
        return Outcome(kind="crash", stage="verify", reason="an illegal memory access")

    given = Surroundings(
        entry="f", folder=Path("suite/f"), baseline_source="the kernel", device="cuda:0", lenient=lenient
    )
    verifier = Verifier(None, die, given)  # type: ignore[arg-type]  # nothing is asked: the process dies first
    good, bad = wire.CaseKey(fields={"n": 1}), wire.CaseKey(fields={"n": 2})
    verifier._passed[good] = None  # type: ignore[assignment]  # only that it is there
    if lenient:
        assert verifier.untimeable([good, bad]) == {1: "the baseline is not right here: an illegal memory access"}
        with pytest.raises(ProblemError, match="n=2"):
            verifier.untimeable([bad])
    else:
        with pytest.raises(
            ProblemError, match=r"suite/f: the baseline is not right on n=2 \(an illegal memory access\)"
        ):
            verifier.untimeable([good, bad])


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CpuLane, str]]:
    """A lane of a problem whose baseline returns float32 whatever it is given, with a check of zero rows; and that baseline."""
    folder = tmp_path_factory.mktemp("wide")
    kernel = KERNEL.replace("other=0.0)\n    w =", "other=0.0).to(tl.float32)\n    w =").replace(
        "x.dtype", "torch.float32"
    )
    problem = (PROBLEM / "problem.py").read_text()
    stated = problem.replace("vary =", 'checks = [Case(rows=0, cols=100, dtype="float16")]\nvary =')
    (folder / "kernel.py").write_text(kernel)
    (folder / "problem.py").write_text(stated)
    made = open_lane(
        LaneSpec(problem=folder, device="cpu", python=sys.executable, scratch=folder / "scratch", deadline_s=30)
    )
    assert isinstance(made, CpuLane)
    made.start()
    yield made, kernel
    made.close()


def test_a_baselines_own_dtype_is_said_and_its_check_of_zero_rows_counts(wide: tuple[CpuLane, str]) -> None:
    lane, kernel = wide
    found = verify(lane, kernel)
    assert found.verdict == "correct", found
    assert [note for note in found.not_checked if "dtype" in note] == [
        "output dtype: outputs are float32 where the reference gives float16; the baseline's is asked of candidates"
    ]
    assert not [note for note in found.not_checked if "rows=0" in note]
    assert survivors(lane) == []


def survivors(lane: CpuLane) -> list[str]:
    """Mutants that the oracle accepts."""
    return [survivor.mutant for survivor in lane.selftest(quiet).survivors]


def test_who_launches_nothing_on_zero_rows_is_right(wide: tuple[CpuLane, str]) -> None:
    lane, kernel = wide
    early = "    if x.shape[0] == 0:\n        return torch.empty(x.shape, dtype=torch.float32, device=x.device)\n"
    found = verify(lane, kernel.replace("    rows, cols = x.shape\n", early + "    rows, cols = x.shape\n"))
    assert (found.verdict, found.reason) == ("correct", "")
    assert len([note for note in found.not_checked if note.startswith("output dtype: outputs are float32")]) == 1


def test_who_fails_on_zero_rows_is_found(wide: tuple[CpuLane, str]) -> None:
    lane, kernel = wide
    found = verify(lane, kernel.replace("    BLOCK = 64\n", "    BLOCK = 64 + 0 // rows\n"))
    assert (found.verdict, found.stage, found.worst_case) == ("crash", "call", "rows=0 cols=100 dtype=float16")
    assert found.reason.startswith("ZeroDivisionError")


def test_a_timed_case_that_the_plan_has_too_is_checked_once() -> None:
    """Twice in one job it would leave the last case looking like one that the baseline fails."""
    from types import SimpleNamespace

    from kbtui.evaluate import wire
    from kbtui.evaluate.job import Outcome
    from kbtui.evaluate.verify import Surroundings, Verifier

    small, large = wire.CaseKey(fields={"n": 1}), wire.CaseKey(fields={"n": 2})
    oracle = SimpleNamespace(plan=lambda *_: wire.Plan(keys=(small,), notes=()), remarks={})
    orders = []

    def run(order: object, *_: object) -> Outcome:
        orders.append(order)
        return Outcome(kind="cancelled", reason="cancelled")

    given = Surroundings(
        entry="f", folder=Path("p"), baseline_source="the kernel", device="cuda:0", timed=(small, large)
    )
    Verifier(oracle, run, given).verify("the kernel", (), quiet)  # type: ignore[arg-type]  # what is asked of it is here
    assert [len(order.parameters["calls"]) for order in orders] == [2]  # type: ignore[attr-defined]
