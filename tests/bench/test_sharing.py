"""Several processes on one benchmark, its time limit, and what its table says of what came of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui.bench import running
from kbtui.bench.claims import claimed
from kbtui.bench.limits import Limit
from kbtui.bench.methods import METHODS
from kbtui.bench.reasons import what_became
from kbtui.bench.rows import Row, RowFile, read_rows
from kbtui.bench.running import Benchmark, results, run
from kbtui.bench.suites import read_families, read_names
from kbtui.bench.table import by_family, cells, figures, markdown, summary_lines
from kbtui.bench.workers import in_turn, of_worker, run_workers
from kbtui.engine.spec import RunSpec
from kbtui.errors import EnvironmentFailure, UsageError
from kbtui.state.events import Pruned
from kbtui.state.records import BestSummary, Compilation, Summary, Timing, Verification
from kbtui.state.run_state import Candidate, RunState

BENCH = Benchmark(suite="s", method=METHODS["rewrite"], iterations=2, base=RunSpec(problem="", device="cpu"))
PROBLEMS = {name: Path("/p") / name for name in ("a", "b", "c", "d")}


def row(kernel: str = "k", **fields: Any) -> Row:
    given = {"benchmark": BENCH.name, "suite": "s", "method": "rewrite", "kernel": kernel, "status": "done", **fields}
    return Row(**given)


def summary(kernel: str = "k", stopped_by: str = "iterations") -> Summary:
    best = BestSummary(candidate_id=0, verdict="", speedup=None, low=None, high=None, estimate=1.0, path="")
    return Summary(
        run_id="r", problem=kernel, device="cpu", timing="modelled", pulls=2, candidates=1, correct=1, best=best,
        baseline_ms=None, cost_usd=0.0, tokens=0, stopped_by=stopped_by,
    )  # fmt: skip


class Script:
    """Stands in for runs: what comes of a kernel's run, and which kernels ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.outcome: dict[str, BaseException | Summary] = {}

    def __call__(
        self, benchmark: Benchmark, spec: RunSpec, kernel: str, state: RunState, waits: list[bool], limit: Limit
    ) -> Summary:
        del benchmark, spec, state, waits, limit
        self.ran.append(kernel)
        outcome = self.outcome.get(kernel, summary(kernel))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script()
    monkeypatch.setattr(running, "_run", made)
    return made


def go(folder: Path, problems: dict[str, Path] = PROBLEMS, **options: Any) -> list[Row]:
    return run(BENCH, problems, folder, **{"resume": True, "report": lambda _: None, **options})


class TestSharing:
    def test_a_kernel_that_another_has_is_left_to_him(self, tmp_path: Path, script: Script) -> None:
        with claimed(tmp_path, "b") as mine:
            assert mine
            go(tmp_path, worker="2/2")
        assert script.ran == ["a", "c", "d"]
        go(tmp_path, worker="1/2")
        assert script.ran == ["a", "c", "d", "b"]

    def test_a_name_with_a_slash_is_claimed_as_one(self, tmp_path: Path) -> None:
        with claimed(tmp_path, "level1/x") as mine, claimed(tmp_path, "level1/x") as again:
            assert (mine, again) == (True, False)

    def test_a_folder_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(EnvironmentFailure, match="choose another --out"), claimed(tmp_path / "file", "a"):
            pass

    def test_devices_are_shared_and_decide_nothing_but_their_kind(self) -> None:
        assert [of_worker(("cuda:0", "cuda:1"), number) for number in (1, 2, 3)] == ["cuda:0", "cuda:1", "cuda:0"]
        assert of_worker(("cpu:0", "cpu:1"), 2) == "cpu"
        names = {
            msgspec.structs.replace(BENCH, base=msgspec.structs.replace(BENCH.base, device=device)).name
            for device in ("cuda:0", "cuda:1", "cpu")
        }
        assert len(names) == 2

    def test_own_share_first_then_everybodys(self) -> None:
        assert list(in_turn(PROBLEMS, 2, 3)) == ["b", "a", "c", "d"]

    def test_what_a_shard_or_worker_finished_holds_against_what_another_began(self, tmp_path: Path) -> None:
        RowFile(tmp_path / "rows-1of1.w1.jsonl").append(row("a", correct=2, finished_at=5.0))
        RowFile(tmp_path / "rows-1of1.w2.jsonl").append(row("a", status="started"))
        RowFile(tmp_path / "rows-1of1.w1.jsonl").append(row("b", status="started"))
        RowFile(tmp_path / "rows-1of1.w2.jsonl").append(row("b", status="stopped", finished_at=6.0))
        found = read_rows(tmp_path.glob("rows-*.jsonl"))
        assert (found["a"].status, found["b"].status) == ("done", "stopped")

    def test_results_of_workers_are_results(self, tmp_path: Path, script: Script) -> None:
        go(tmp_path, worker="1/2")
        with pytest.raises(UsageError, match="has results already: --resume"):
            go(tmp_path, resume=False)
        assert len(go(tmp_path)) == len(script.ran) == 4

    def test_workers_get_the_command_and_a_failure_is_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stand_in = tmp_path / "kbtui.py"
        stand_in.write_text(
            "import sys, pathlib\n"
            f"pathlib.Path({str(tmp_path)!r}, sys.argv[-1].replace('/', '-')).write_text(' '.join(sys.argv[1:]))\n"
            "sys.exit(sys.argv[-1] == '2/2')\n"
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        assert run_workers(2, ["bench", "x"]) == 1
        assert (tmp_path / "1-2").read_text() == "bench x --worker 1/2"


class TestLimit:
    def test_none_is_none_and_nothing_begins_after_it(self, tmp_path: Path, script: Script) -> None:
        assert Limit().over == ""
        assert go(tmp_path, limit=Limit(0)) == []
        assert script.ran == []

    def test_a_parent_that_is_gone_ends_it(self) -> None:
        assert "gone" in Limit(parent=1 << 30).over

    def test_it_stops_a_run_once_in_its_loop(self) -> None:
        async def watched() -> list[str]:
            stops: list[str] = []
            Limit(0.002).watch(lambda: stops.append("stop"))
            assert stops == []
            await asyncio.sleep(0.8)
            return stops

        assert asyncio.run(watched()) == ["stop"]

    def test_a_stopped_run_counts_for_nothing_yet_and_goes_on(self, tmp_path: Path, script: Script) -> None:
        script.outcome["a"] = summary("a", stopped_by="user")
        [found, *_] = go(tmp_path)
        assert (found.status, found.reason, found.over) == ("stopped", "somebody stopped it after 2 pulls", False)
        counted = figures(results(tmp_path))
        assert (counted.tasks, counted.unfinished) == (3, 1)
        assert ("begun and not finished, not counted", "1") in summary_lines(counted)
        assert cells(found)[-1] == found.reason
        script.outcome.clear()
        script.ran.clear()
        assert all(one.status == "done" for one in go(tmp_path))
        assert script.ran == ["a"]

    def test_a_run_that_had_not_begun_when_the_time_was_over(self, tmp_path: Path, script: Script) -> None:
        class Soon(Limit):
            @property
            def over(self) -> str:
                return "the time was over" if script.ran else ""

        script.outcome["a"] = KeyboardInterrupt()
        [found] = go(tmp_path, limit=Soon())
        assert (found.status, found.reason) == ("stopped", "the time was over before its baseline was timed")
        with pytest.raises(KeyboardInterrupt):
            go(tmp_path)  # a person's Ctrl-C is one


class TestBugs:
    def test_one_is_told_and_tried_again_and_the_others_run(self, tmp_path: Path, script: Script) -> None:
        script.outcome["b"] = AttributeError("no such thing")
        told: list[Exception] = []

        def tell(bug: Exception) -> str:
            told.append(bug)
            return "a bug, see there"

        found = go(tmp_path, on_bug=tell)
        assert [one.status for one in found] == ["done", "failed", "done", "done"]
        assert (found[1].reason, found[1].owner, found[1].over) == ("a bug, see there", "kbtui", False)
        assert told == [script.outcome["b"]]

    def test_the_same_everywhere_ends_it(self, tmp_path: Path, script: Script) -> None:
        script.outcome.update({name: AttributeError(name) for name in PROBLEMS})
        with pytest.raises(AttributeError, match="c"):
            go(tmp_path, on_bug=lambda _: "a bug")


def candidate(number: int, **fields: Any) -> Candidate:
    return Candidate(
        id=number, parent_id=0, pull=number, strategy="tiling", generator="rewrite", move="m", source="", source_digest="",
        syntax_digest="", **fields,
    )  # fmt: skip


class TestReasons:
    def test_what_became_of_the_versions(self) -> None:
        correct = Verification(verdict="correct", stage="values")
        slow = Timing(kind="measured", verdict="slower", cases=())
        same = Timing(kind="measured", verdict="same", cases=())
        wrong = Verification(verdict="wrong", stage="values")
        made = [
            candidate(0),
            candidate(1, verification=correct, timing=slow),
            candidate(2, verification=correct, timing=same),
            candidate(3, verification=correct, timing=slow),
            candidate(4, verification=wrong),
            candidate(5, compilation=Compilation(ok=False)),
            candidate(6, pruned=Pruned(candidate_id=6, stage="duplicate", reason="")),
            candidate(7, verification=correct, confirmation=wrong, timing=same),
            candidate(8),
        ]
        state = RunState()
        state.candidates = {one.id: one for one in made}
        assert what_became(state, summary(stopped_by="no arms")) == (
            "8 versions: 2 slower, 1 not compiled, 1 not judged, 1 pruned, 1 same, 1 wrong, 1 wrong in the hidden stage; "
            "no change was left to try"
        )
        assert what_became(RunState(), summary()) == "no version was made"

    def test_a_kernel_at_its_limit_says_so(self) -> None:
        at = row(
            timing="measured", ratio=1.0, correct=2, candidates=3, reason="2 versions: 2 same", of_limit_percent=91.4
        )
        assert cells(at)[-1] == "2 versions: 2 same; at 91 % of the speed of light"
        assert cells(msgspec.structs.replace(at, of_limit_percent=40.0))[-1] == "2 versions: 2 same"
        assert cells(msgspec.structs.replace(at, reason="", run_id="r-1"))[-1] == "r-1"


class TestFamilies:
    def test_figures_of_each_and_what_has_none_last(self) -> None:
        fast = {"timing": "measured", "ratio": 4.0, "verdict": "faster", "correct": 1}
        rows = [row("a", family="softmax", **fast), row("b", **fast), row("c", family="softmax", status="failed")]
        found = by_family(rows)
        assert list(found) == ["softmax", "other"]
        assert (found["softmax"].tasks, found["softmax"].fast_percent, found["softmax"].geomean_all) == (2, 50.0, 2.0)
        assert "| softmax | 2 | 50 % | 50 % | 2.00x | 4.00x |" in markdown("t", rows)
        assert by_family([row("a", **fast)]) == {}

    def test_files_of_names_and_of_families(self, tmp_path: Path) -> None:
        names, families = tmp_path / "n.txt", tmp_path / "f.csv"
        names.write_text("# the subset\nb\n\n a \n")
        families.write_text("a,Softmax\nb,Loss, all\n")
        assert read_names(names) == ("b", "a")
        assert read_families(families) == {"a": "Softmax", "b": "Loss, all"}
        names.write_text("#\n")
        families.write_text("a\n")
        with pytest.raises(UsageError, match="names no kernel"):
            read_names(names)
        with pytest.raises(UsageError, match="line 1: write kernel,family"):
            read_families(families)
        with pytest.raises(UsageError, match="cannot be read"):
            read_names(tmp_path / "none")
