"""`kbtui check` on a lane that answers by heart: the judgement, the exit status, and that the lane is always closed."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from kbtui.cli import main as program
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.selftest import SelfTest, Survivor
from kbtui.history.evidence import Ancestor, Card, write_card
from kbtui.problems.folder import find_problem
from kbtui.state.records import (
    CaseTiming,
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Signature,
    Timing,
    Verification,
)

BASELINE = find_problem("vector_add").kernel_source


class ScriptedLane(Lane):
    """Says of a source what its text says: "wrong", "broken", else correct."""

    opened: list[ScriptedLane] = []  # noqa: RUF012  (emptied by the fixture)
    wrong_in_part = False
    """Whether the baseline fails on a case, which is then not counted."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec
        self.closed = False
        self.against: list[Timing | None] = []
        ScriptedLane.opened.append(self)

    def start(self) -> LaneFacts:
        device = DeviceInfo(lane="cpu", kind="cpu", name="cpu for sm_90", target="sm_90")
        problem = ProblemInfo(name="vector_add", path="/p", entry="vector_add", digest="0", cases=())
        self.facts = LaneFacts(device=device, timing="modelled", versions={}, isolation={}, problem=problem)
        return self.facts

    def compile(self, source: str, report: Report) -> Compilation:
        report("compiling", "one kernel")
        if "broken" in source:
            return Compilation(ok=False, reason="name 'x' is not defined", detail="line 3\n\x1b[31mline 4")
        return Compilation(ok=True)

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        if "wrong" in source:
            return Verification(verdict="wrong", stage="boundary", reason="row 3 differs", cases_checked=2)
        return Verification(
            verdict="correct",
            stage="boundary",
            cases_checked=4,
            error=1e-7,
            allowed=1e-5,
            worst_case="n=3",
            not_checked=("races: not checked", "bfloat16", "output dtype: outputs are float32")
            + (("n=5: not counted, the baseline fails there (error 1)",) if self.wrong_in_part else ()),
        )

    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        raise AssertionError("a check promotes nothing")

    def selftest(self, report: Report) -> SelfTest:
        return SelfTest(
            rejected={"zeros": "error 1 where 1e-05 is allowed"},
            survivors=(Survivor(mutant="stale accumulator", cases=4),),
            inapplicable=("sign lost",),
        )

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        assert baseline_source == BASELINE
        self.against.append(baseline)
        case = CaseTiming(case="n=8", estimate_ms=0.05, estimate_ratio=None if baseline is None else 1.2)
        if "short" in source or "untimed" in source:
            case = CaseTiming(
                case="n=8", failed="it moves 1 MB where the case needs 2 MB", work_left_out="short" in source
            )
        timing = Timing(kind="modelled", verdict="not worse", cases=(case,), estimate=None if baseline is None else 1.2)
        if self.measures:
            timing = self.measured(is_baseline=baseline is None)
        return Evaluated(timing=timing, signature=Signature())

    measures = False
    """Whether times are measured, as on a GPU, and what they are."""

    @staticmethod
    def measured(*, is_baseline: bool) -> Timing:
        case = CaseTiming(
            case="n=8", ms=0.04, low_ms=0.0396, high_ms=0.0404, ratio=1.0 if is_baseline else 1.25, called_ms=0.05,
            cold_ms=0.06 if is_baseline else None, floor_ms=0.03,
        )  # fmt: skip
        if is_baseline:
            return Timing(kind="measured", verdict="same", cases=(case,), ratio=1.0, pairs=5, noise=0.0123)
        return Timing(kind="measured", verdict="faster", cases=(case,), ratio=1.25, low=1.24, high=1.26, pairs=3)

    def cancel(self, source: str | None = None) -> None:
        raise AssertionError("nothing is cancelled here")

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ScriptedLane.opened.clear()
    monkeypatch.setattr("kbtui.engine.check.open_lane", ScriptedLane)
    monkeypatch.chdir(tmp_path)


def lane() -> ScriptedLane:
    (only,) = ScriptedLane.opened
    return only


def test_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["check", "vector_add", "--device", "cpu"]) == 0
    captured = capsys.readouterr()
    assert "verdict for the baseline: correct" in captured.out
    assert "\nraces: not checked\nnot checked: bfloat16\noutput dtype: outputs are float32\n" in captured.out
    assert "\nworst case n=3\nlargest error 1.00e-07, allowed 1.00e-05\n" in captured.out
    assert "times are modelled" in captured.out
    assert "~50.0 µs est" in captured.out
    assert "compiling" in captured.err
    assert lane().against == [None]
    assert lane().closed
    assert not lane().spec.scratch.parent.exists()


def test_a_baseline_that_is_wrong_somewhere_is_said_before_the_remarks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedLane, "wrong_in_part", True)
    assert program.main(["check", "vector_add", "--device", "cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(
        "verdict for the baseline: correct where it counts, not on 1 case on which the baseline fails"
    )
    (warning,) = (number for number, line in enumerate(lines) if line.startswith("warning: "))
    assert "the kernel you start from is wrong on 1 case" in lines[warning]
    assert lines.index("n=5: not counted, the baseline fails there (error 1)") > warning


def test_candidate_is_compared_with_the_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("good = 1\n")
    assert program.main(["check", "vector_add", "--candidate", "mine.py", "--device", "cpu", "--json"]) == 0
    captured = capsys.readouterr()
    checked = json.loads(captured.out)
    assert captured.err == ""
    assert (checked["subject"], checked["verdict"], checked["timing"]["estimate"]) == ("candidate", "correct", 1.2)
    assert checked["timing"]["ratio"] is None
    assert lane().against[0] is None
    assert lane().against[1] is not None


@pytest.mark.parametrize(
    ("source", "verdict", "stage", "reason"),
    [
        ("wrong = 1\n", "wrong", "boundary", "row 3 differs"),
        ("broken = 1\n", "invalid", "compile", "name 'x' is not defined"),
    ],
)
def test_verdict_owner_stage_and_reason(
    source: str, verdict: str, stage: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine.py").write_text(source)
    assert program.main(["check", "vector_add", "--candidate", "mine.py", "--device", "cpu"]) == 1
    printed = capsys.readouterr().out
    assert f"verdict for mine.py: {verdict}" in printed
    assert f"owner candidate, stage {stage}: {reason}" in printed
    assert "\x1b" not in printed
    assert lane().closed


def test_a_baseline_that_fails_is_the_answer_whatever_was_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: ScriptedLane, source: str, kernels: object, report: Report) -> Verification:
        return Verification(verdict="wrong", stage="boundary", reason="the oracle disagrees")

    monkeypatch.setattr(ScriptedLane, "verify", refuse)
    Path("mine.py").write_text("good = 1\n")
    assert program.main(["check", "vector_add", "--candidate", "mine.py", "--device", "cpu"]) == 1
    assert "verdict for the baseline: wrong" in capsys.readouterr().out


def test_a_lane_that_does_not_start_is_closed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: ScriptedLane) -> LaneFacts:
        raise EnvironmentFailure("torch is not installed: pip install torch")

    monkeypatch.setattr(ScriptedLane, "start", fail)
    assert program.main(["check", "vector_add", "--device", "cpu"]) == 1
    assert capsys.readouterr().err.endswith("kbtui: torch is not installed: pip install torch\n")
    assert lane().closed


def test_measured_times_of_the_baseline(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By case with their spread, cold and warm, as called and on the device, against the speed of light; and the noise floor."""
    monkeypatch.setattr(ScriptedLane, "measures", True)
    assert program.main(["check", "vector_add", "--device", "cpu"]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    (head,) = [line for line in lines if line[0] == "case"]
    (row,) = [line for line in lines if line[0].startswith("n=8")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (head, row)]
    assert cells[0] == ["case", "on the device", "95 %", "cold", "as called", "of light", "ratio"]
    assert cells[1] == ["n=8", "40.0 µs", "±1.0 %", "60.0 µs", "50.0 µs", "75 %", "1.00x"]
    assert ["noise floor 1.23 %: the baseline against itself in 5 process pairs; no verdict is finer"] in lines


def test_measured_times_of_a_candidate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScriptedLane, "measures", True)
    Path("mine.py").write_text("good = 1\n")
    assert program.main(["check", "vector_add", "--candidate", "mine.py", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "1.250x [1.240, 1.260] over 3 process pairs" in printed
    assert "cold" not in printed
    assert [cell.strip() for cell in printed.splitlines()[-1].split("  ") if cell.strip()] == [
        "n=8", "40.0 µs", "±1.0 %", "50.0 µs", "75 %", "1.25x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xff\xfe", "not UTF-8"), (b"#" * ((1 << 20) + 1), "larger than 1 MiB"), (None, "cannot be read")],
)
def test_a_candidate_that_is_no_source(content: bytes | None, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        Path("mine.py").write_bytes(content)
    assert program.main(["check", "vector_add", "--candidate", "mine.py"]) == 2
    assert said in capsys.readouterr().err
    assert ScriptedLane.opened == []


def test_a_problem_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["check", "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_new_makes_a_problem_that_passes_the_static_checks(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["new", "mine"]) == 0
    assert "kbtui check ./mine" in capsys.readouterr().out
    assert find_problem("./mine").entry == "mine"
    assert program.main(["new", "mine"]) == 2
    assert "exists" in capsys.readouterr().err


def a_card(folder: Path, **changes: object) -> Path:
    problem = find_problem("vector_add")
    device = DeviceInfo(lane="cpu", kind="cpu", name="cpu for sm_90", target="sm_90")
    card = Card(
        run_id="vector_add-1",
        problem=problem.name,
        problem_path=str(problem.path),
        problem_digest=problem.digest,
        mutates=(),
        precision="ieee",
        candidate_id=3,
        chain=(Ancestor(candidate_id=3, source_digest="1" * 64, strategy="tiling", generator="rewrite", move="BLOCK"),),
        source="good = 1\n",
        device=device,
        timing_kind="modelled",
        objective="geomean",
        seed=7,
        cases=(),
        verification=Verification(verdict="correct", stage="boundary", cases_checked=4),
        hidden=None,
        kernels=(),
        timing=Timing(kind="modelled", verdict="not worse", cases=(), estimate=1.2),
        noise=None,
        signature=Signature(),
        isolation={},
        versions={},
        tokens=0,
        cost_usd=0.0,
    )
    path = folder / "evidence.json"
    write_card(msgspec.structs.replace(card, **changes), path)
    return path


def test_what_the_oracle_rejects_and_what_the_machine_allows(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["check", "vector_add", "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "your oracle rejects 1 of 2 mutants; accepted: stale accumulator" in printed
    assert "no GPU: " in printed
    assert program.main(["check", "vector_add", "--device", "cpu", "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert checked["selftest"]["survivors"] == [{"mutant": "stale accumulator", "cases": 4}]
    assert list(checked["machine"]) == ["GPU"]


def test_a_card_is_repeated_with_other_values(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main(["check", "--evidence", str(a_card(tmp_path))]) == 0
    printed = capsys.readouterr().out
    assert "verdict for #3 of vector_add-1: correct" in printed
    assert "the card says not worse: ~1.200 est, modelled and not measured (geomean); this agrees" in printed
    assert lane().spec.seed == 8
    assert lane().closed


@pytest.mark.parametrize(
    "changes",
    [{"source": "wrong = 1\n"}, {"timing": Timing(kind="modelled", verdict="not worse", cases=(), estimate=2.0)}],
)
def test_a_card_that_does_not_hold(
    changes: dict[str, object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert program.main(["check", "--evidence", str(a_card(tmp_path, **changes)), "--json"]) == 1
    repeated = json.loads(capsys.readouterr().out)
    assert repeated["agrees"] is False
    assert repeated["checked"]["subject"] == "candidate"


def test_a_card_of_another_problem_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main(["check", "--evidence", str(a_card(tmp_path, problem_digest="2" * 64))]) == 2
    assert "is not the problem of the card" in capsys.readouterr().err
    assert ScriptedLane.opened == []


def test_a_card_stands_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert program.main(["check", "vector_add", "--evidence", str(a_card(tmp_path))]) == 2
    assert "give --evidence alone" in capsys.readouterr().err
    assert program.main(["check"]) == 2
    assert "name a problem" in capsys.readouterr().err


def test_work_left_out_on_the_timed_cases_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("short = 1\n")
    assert program.main(["check", "vector_add", "--candidate", "mine.py", "--device", "cpu"]) == 1
    printed = capsys.readouterr().out
    assert "verdict for mine.py: wrong" in printed
    assert "owner candidate, stage traffic: n=8: it moves 1 MB where the case needs 2 MB" in printed
    assert "worst case" not in printed
    assert "largest error" not in printed


def test_what_cannot_be_timed_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("untimed = 1\n")
    assert program.main(["check", "vector_add", "--candidate", "mine.py", "--device", "cpu"]) == 1
    assert "verdict for mine.py: correct, but could not be timed on every case" in capsys.readouterr().out
