"""The method `torch-compile` without a device: what it is no method for, what its rows say, and when it stops."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui.bench import references
from kbtui.bench.limits import Limit
from kbtui.bench.methods import METHODS
from kbtui.bench.references import NO_REFERENCE, is_kernel
from kbtui.bench.rows import Row
from kbtui.bench.running import Benchmark, run
from kbtui.bench.table import cells, figures, summary_lines
from kbtui.cli import main as program
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, ProblemError
from kbtui.evaluate.reference import EAGER, KERNEL, Referenced
from kbtui.paths import library_dir
from kbtui.problems.folder import find_problem
from kbtui.state.records import CaseTiming, Timing, Verification

BENCHMARK = Benchmark(
    suite="bundled", method=METHODS["torch-compile"], iterations=9, base=RunSpec(problem="", device="cuda:0")
)
PROBLEMS = {name: library_dir() / name for name in ("softmax", "matmul")}
BASELINE = Timing(
    kind="measured",
    verdict="same",
    cases=(CaseTiming(case="a", ms=1.0), CaseTiming(case="b", ms=4.0)),
    ratio=1.0,
    noise=0.01,
)
FASTER = Timing(
    kind="measured",
    verdict="faster",
    cases=(CaseTiming(case="a", ms=0.5, ratio=2.0), CaseTiming(case="b", ms=4.0, ratio=1.0)),
    ratio=1.41,
    low=1.39,
    high=1.43,
)
CORRECT = Verification(verdict="correct", stage="timed", cases_checked=2)


class Facts(msgspec.Struct, frozen=True):
    class Device(msgspec.Struct, frozen=True):
        name: str = "H200"

    device: Device = Device()
    timing: str = "measured"


class PlayedLane:
    """Stands for a lane. `found` is what comes of the reference, an exception to be raised among it."""

    found: Any = Referenced(verification=CORRECT, timing=FASTER)
    own_precision = False
    beside = KERNEL
    facts = Facts()
    opened: list[Any] = []  # noqa: RUF012  emptied by the fixture
    cancelled = 0

    def __init__(self, spec: Any) -> None:
        self.opened.append(spec)

    def start(self) -> None:
        """Nothing has to start."""

    def baseline(self, report: Any) -> Timing:
        return BASELINE

    def time_reference(self, baseline: Timing, report: Any) -> Referenced:
        assert baseline is BASELINE
        if isinstance(self.found, Exception):
            raise self.found
        return self.found() if callable(self.found) else self.found  # type: ignore[no-any-return]

    def cancel(self) -> None:
        type(self).cancelled += 1

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[PlayedLane]]:
    def use(**fields: Any) -> type[PlayedLane]:
        kind = type("Lane", (PlayedLane,), {"opened": [], **fields})
        monkeypatch.setattr(references, "ReferenceLane", kind)
        monkeypatch.setattr(references.isolation, "harden_run_process", lambda: "on")
        return kind

    return use


def done(tmp_path: Path, problems: dict[str, Path] = PROBLEMS, **more: Any) -> list[Row]:
    return run(BENCHMARK, problems, tmp_path, resume=True, report=lambda _: None, **more)


def test_it_is_timed_beside_the_kernel_and_no_run_is_made(tmp_path: Path, lane: Any) -> None:
    opened = lane().opened
    rows = done(tmp_path)
    assert [(one.kernel, one.status, one.run_id) for one in rows] == [("matmul", "done", ""), ("softmax", "done", "")]
    first = rows[0]
    assert (first.verdict, first.ratio, first.low, first.high) == ("faster", 1.41, 1.39, 1.43)
    assert (first.device, first.timing, first.correct, first.pulls) == ("H200", "measured", 1, 0)
    assert first.baseline_ms == pytest.approx(2.0)
    assert first.sum_ratio == pytest.approx(5.0 / 4.5)
    assert cells(first)[1:5] == ("faster", "1.41x [1.39, 1.43]", "1.11x", "1 of 1")
    assert cells(first)[-1] == f"beside {KERNEL}"
    assert [spec.objective for spec in opened] == ["geomean", "geomean"]
    assert len(done(tmp_path)) == len(opened) == 2, "what is done is left alone"


def test_what_stands_beside_it_is_said_where_there_is_no_kernel(tmp_path: Path, lane: Any) -> None:
    lane(beside=EAGER)
    assert done(tmp_path)[0].reason == "beside the reference run eagerly"


GOLD = "own_precision = True\n"


def gold(tmp_path: Path, text: str) -> dict[str, Path]:
    """A problem whose problem.py says that its reference is a kernel."""
    folder = tmp_path / "gold"
    folder.mkdir()
    for name in ("kernel.py", "problem.py"):
        (folder / name).write_text((library_dir() / "vector_add" / name).read_text())
    with (folder / "problem.py").open("a") as file:
        file.write(text)
    return {"gold": folder, **PROBLEMS}


def test_a_kernel_that_is_its_own_oracle_is_no_failure_and_no_1(tmp_path: Path, lane: Any) -> None:
    opened = lane().opened
    rows = done(tmp_path / "out", gold(tmp_path, GOLD))
    row = rows[0]
    assert (row.kernel, row.status, row.reason) == ("gold", "not applicable", NO_REFERENCE)
    assert len(opened) == 2, "no lane has to start to say so"
    found = figures(rows)
    assert (found.tasks, found.failed, found.unfinished, found.not_applicable) == (2, 0, 0, 1)
    assert found.geomean_all == pytest.approx(1.41)
    assert (found.correct_percent, found.timing) == (100.0, "measured")
    assert ("method not applicable, not counted", "1") in summary_lines(found)
    assert cells(row) == ("gold", "not applicable", "-", "-", "-", "-", "0", NO_REFERENCE)
    assert row.over


def test_what_only_the_lane_can_tell_is_told_by_the_lane(tmp_path: Path, lane: Any) -> None:
    lane(own_precision=True)
    problems = gold(tmp_path, "own_precision = bool(cases)\n")
    assert not is_kernel(find_problem(str(problems["gold"])))
    assert {one.status for one in done(tmp_path / "out", problems)} == {"not applicable"}


def test_a_bundled_reference_is_none_of_them() -> None:
    assert not is_kernel(find_problem("softmax"))


@pytest.mark.parametrize(
    ("verification", "reason"),
    [
        (
            Verification(verdict="crash", stage="time", reason="InductorError: no such operator", worst_case="a"),
            "torch.compile of the reference: InductorError: no such operator on a",
        ),
        (
            Verification(verdict="wrong", stage="outputs", reason="output 0[3] error 1 on a", worst_case="a"),
            "torch.compile of the reference: output 0[3] error 1 on a",
        ),
    ],
)
def test_one_that_is_not_right_counts_as_1_and_says_why(
    tmp_path: Path, lane: Any, verification: Verification, reason: str
) -> None:
    lane(found=Referenced(verification=verification))
    rows = done(tmp_path)
    assert (rows[0].status, rows[0].correct, rows[0].gain) == ("done", 0, None)
    assert (cells(rows[0])[1], rows[0].reason) == (verification.verdict, reason)
    assert (figures(rows).geomean_all, figures(rows).correct_percent) == (1.0, 0.0)


def test_one_without_a_time_says_why(tmp_path: Path, lane: Any) -> None:
    case = CaseTiming(case="a", failed="1 ms is faster than the hardware allows (2 ms)")
    lane(found=Referenced(verification=CORRECT, timing=Timing(kind="measured", verdict="unknown", cases=(case,))))
    row = done(tmp_path)[0]
    assert (row.correct, row.verdict) == (0, "unknown")
    assert row.reason == "torch.compile has no time: 1 ms is faster than the hardware allows (2 ms)"


def test_the_machines_fault_is_tried_again_and_the_problems_is_not(tmp_path: Path, lane: Any) -> None:
    nobody = Verification(verdict="unknown", stage="device", owner="environment", reason="CUDA did not start")
    lane(found=Referenced(verification=nobody))
    row = done(tmp_path)[0]
    assert (row.status, row.owner, row.over) == ("failed", "environment", False)
    assert row.reason == "torch.compile could not be judged: CUDA did not start"
    lane(found=ProblemError("p: its kernel is wrong: error 2: mend it"))
    row = done(tmp_path)[0]
    assert (row.status, row.owner, row.over) == ("failed", "candidate", True)


@pytest.mark.parametrize("cancelled", ["raised", "returned"])
def test_what_the_limit_cancelled_begins_anew(tmp_path: Path, lane: Any, cancelled: str) -> None:
    limit = Limit(60.0)

    def late() -> Referenced:
        limit._end = 0.0
        for _ in range(100):  # the limit is looked at four times a second
            if kind.cancelled:
                break
            time.sleep(0.05)
        if cancelled == "raised":
            raise EnvironmentFailure("the baseline's process ended")
        unknown = Verification(verdict="unknown", stage="time", owner="environment", reason="cancelled")
        return Referenced(verification=unknown)

    kind = lane(found=staticmethod(late))
    rows = done(tmp_path, limit=limit)
    assert kind.cancelled == 1
    assert [(one.kernel, one.status, one.reason) for one in rows] == [
        ("softmax", "stopped", "the time was over before it was timed")
    ]
    lane()
    assert [one.status for one in done(tmp_path)] == ["done", "done"]


def test_without_a_gpu_it_is_refused_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["bench", "bundled", "--method", "torch-compile", "--device", "cpu"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.endswith("torch-compile is timed, and cpu times nothing: give --device cuda:0, or another --method")


def test_pulls_are_nothing_to_it() -> None:
    other = msgspec.structs.replace(BENCHMARK, iterations=3)
    assert BENCHMARK.name == other.name
    assert BENCHMARK.name.startswith("bundled-torch-compile-")


def test_the_table_is_titled_without_pulls(
    tmp_path: Path, lane: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lane()
    monkeypatch.setattr("kbtui.engine.devices.choose_devices", lambda text: ("cuda:0",))
    arguments = ["bench", "bundled", "--kernels", "softmax", "--method", "torch-compile", "--out", str(tmp_path)]
    assert program.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["tasks"] == 1
    assert (tmp_path / "table.md").read_text().startswith("# bundled, torch-compile, H200\n")
