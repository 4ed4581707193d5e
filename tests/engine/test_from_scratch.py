"""A run that begins without a kernel: empty start, first correct candidate as the baseline, whatever comes in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import engine_fakes as fakes
import msgspec
import pytest

from kbtui import paths
from kbtui.engine.best import best_of
from kbtui.engine.commands import answer
from kbtui.engine.engine import Parts
from kbtui.errors import UsageError
from kbtui.evaluate.lane import Evaluated, LaneSpec, Report
from kbtui.generate.generator import Exhausted, Request, Written
from kbtui.generate.replay import ReplayGenerator
from kbtui.history.evidence import make_card, page
from kbtui.history.export import headed_source
from kbtui.history.rows import RunRows
from kbtui.search.registry import POLICIES, make_policy
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.records import KernelFacts, Timing
from kbtui.state.run_state import RunState


class Writer(fakes.FakeGenerator):
    """Writes the given values, one after the other; can begin with nothing."""

    from_scratch = True

    def __init__(self, *values: int) -> None:
        super().__init__()
        self.left = list(values)
        self.parents: list[int] = []

    async def write(self, request: Request) -> Written | Exhausted:
        self.parents.append(request.parent.id)
        assert (request.parent.source == "") == (request.parent.id == 0)
        if not self.left:
            return Exhausted("nothing left to try")
        value = self.left.pop(0)
        return Written(source=fakes.variant(value), move=f"value {value}", cost_usd=0.01, tokens=10)


class ScratchLane(fakes.FakeLane):
    """Times by value as its base does; without a baseline, what is timed is one. Values of 9 lack a time for their case."""

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        value = self._begin("time", source, report)
        own = fakes.value_of(baseline_source) == value
        assert (baseline is None) == own, "timed against the baseline, beside the baseline"
        speed = 0.8 + (value % 7) / 10
        ratio = 1.0 if baseline is None else speed / _speed(baseline)
        case = {"case": "n=1024", "ratio": ratio} | ({} if value % 10 == 9 else {"ms": 1 / speed})
        timing = msgspec.convert(
            {
                "kind": "measured",
                "verdict": "faster" if ratio > 1.05 else "slower" if ratio < 0.95 else "same",
                "cases": (case,),
                "ratio": ratio,
                "low": ratio,
                "high": ratio,
                "pairs": 3,
            },
            Timing,
        )
        return Evaluated(timing=timing, signature=msgspec.convert({}, fakes.Signature))


def _speed(timing: Timing) -> float:
    assert timing.cases[0].ms is not None
    return 1 / timing.cases[0].ms


class ScratchRun(fakes.Run):
    def parts(self) -> Parts:
        import dataclasses

        def make_lane(spec: LaneSpec) -> ScratchLane:
            return ScratchLane(spec, self.script)

        return dataclasses.replace(super().parts(), make_lane=make_lane)


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """vector_add without its kernel."""
    folder = tmp_path / "bare"
    folder.mkdir()
    shutil.copy(paths.library_dir() / "vector_add" / "problem.py", folder)
    return str(folder)


def scratch_run(bare: str, *values: int, **changes: object) -> ScratchRun:
    run = ScratchRun(spec=fakes.spec(problem=bare, **{"iterations": len(values), **changes}))
    run.generator = Writer(*values)
    return run


async def test_failures_come_from_the_empty_start_and_the_first_correct_one_is_the_baseline(bare: str) -> None:
    # 11 does not compile, 12 is wrong, 10 is correct at speed 1.1, 20 at 1.4, 7 at 0.8
    run = scratch_run(bare, 11, 12, 10, 20, 7)
    state = await run.go()
    assert run.generator.parents[:3] == [0, 0, 0]  # type: ignore[attr-defined]
    assert 0 not in run.generator.parents[3:]  # type: ignore[attr-defined]
    start = state.candidates[0]
    assert (start.status, start.source, start.timing, start.compilation) == ("empty", "", None, None)
    assert ("compile", 0) not in run.script.calls
    assert state.baseline_id == 3
    assert state.candidates[3].ratio == 1.0
    assert state.best_id == 4
    assert state.candidates[4].ratio == pytest.approx(1.4 / 1.1)
    assert [fakes.value_of(state.candidates[n].source) for n in (3, 4, 5)] == [10, 20, 7]
    chosen = [event for event in run.events if isinstance(event, e.BaselineChosen)]
    assert [event.candidate_id for event in chosen] == [3]
    assert not any(isinstance(event, e.BestChanged) and event.candidate_id == 0 for event in run.events)
    assert state.curve[0][1] == 1.0
    assert all(pull.reward == 0 for pull in list(state.pulls.values())[:3])
    assert state.pulls_ended == 5
    assert state.summary is not None
    assert (state.summary.baseline_id, state.summary.correct) == (3, 3)
    assert state.summary.baseline_ms == pytest.approx(1 / 1.1)


async def test_it_is_named_wherever_a_figure_stands(bare: str) -> None:
    run = scratch_run(bare, 10, 20)
    state = await run.go()
    best = state.candidates[2]
    assert "against #1, the first correct version of a run that began without a kernel" in headed_source(state, best)
    assert "the baseline (" in headed_source(state, state.candidates[1])
    card = make_card(state, best)
    assert (card.baseline_id, card.baseline_source) == (1, state.candidates[1].source)
    assert "baseline     #1, the first correct version" in page(card)
    assert "there was no kernel whose own error would show more" in page(card)
    rows = RunRows("fake-1")
    rows.take(run.events)
    (row,) = rows.whole()["runs"]
    assert (row["baseline_id"], row["best_id"]) == (1, 2)
    from kbtui.cli.headless import summary_lines

    assert state.summary is not None
    assert any("baseline #1, the first correct version" in line for line in summary_lines(state.summary))


async def test_nothing_correct_ends_with_nothing(bare: str) -> None:
    state = await scratch_run(bare, 11, 12, 21).go()
    assert (state.baseline, state.best, best_of(state)) == (None, None, None)
    assert state.stopped_by == "iterations"
    assert state.summary is not None
    assert (state.summary.best, state.summary.baseline_id, state.summary.baseline_ms) == (None, None, None)


async def test_what_the_hidden_stage_finds_wrong_or_has_no_time_is_no_baseline(bare: str) -> None:
    run = scratch_run(bare, 10, 19, 20)
    run.script.hidden = {10: "wrong"}
    state = await run.go()
    assert state.candidates[1].exposed
    assert state.candidates[2].ratio is None, "a case has no time"
    assert state.pulls[2].outcome == "dropped"
    assert state.baseline_id == 3
    order = [method for method, value in run.script.calls if value == 20]
    assert order == ["compile", "verify", "confirm", "time"], (
        "the hidden stage before there is anything to compare with"
    )


async def test_with_three_in_flight_there_is_one_baseline(bare: str) -> None:
    run = scratch_run(bare, 10, 20, 30, 40, 50, 60, parallel=3)
    run.script.seconds = {"time": 0.05, "verify": 0.02}
    state = await run.go()
    assert sum(isinstance(event, e.BaselineChosen) for event in run.events) == 1
    assert state.baseline is not None
    base = 0.8 + (fakes.value_of(state.baseline.source) % 7) / 10
    for candidate in state.frontier:
        if candidate.ratio is not None:
            assert candidate.ratio == pytest.approx((0.8 + (fakes.value_of(candidate.source) % 7) / 10) / base)


async def test_every_prefix_of_the_journal_goes_on_to_the_same_baseline(bare: str) -> None:
    whole = await scratch_run(bare, 11, 10, 20, 7).go()
    lines = paths.journal_file("fake-1").read_bytes().splitlines(keepends=True)
    for cut in range(1, len(lines), 3):
        path = paths.journal_file(f"cut-{cut}")
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(lines[:cut]))
        done = RunState().apply_all(fakes.journal(f"cut-{cut}"))
        made = [fakes.value_of(one.source) for one in done.candidates.values() if one.id]
        again = ScratchRun(spec=fakes.spec(f"cut-{cut}", problem="", continue_run=True))
        again.generator = Writer(*[value for value in (11, 10, 20, 7) if value not in made])
        state = await again.go()
        assert (state.baseline_id, state.best_id) == (whole.baseline_id, whole.best_id), cut
        assert {n: (one.status, one.ratio) for n, one in state.candidates.items()} == {
            n: (one.status, one.ratio) for n, one in whole.candidates.items()
        }


@pytest.mark.parametrize("name", sorted(POLICIES))
async def test_every_policy_plays_from_an_empty_start(bare: str, name: str) -> None:
    run = scratch_run(bare, 11, 10, 20, 30, policy=name, policy_parameters={})
    state = await run.go()
    assert state.pulls[1].parent_id == 0
    assert state.baseline_id == 2


async def test_it_is_replayed_from_its_versions(bare: str) -> None:
    run = scratch_run(bare, 11, 10, 20)
    first = await run.go()
    versions = [event for event in run.events if isinstance(event, e.Generated)]
    again = ScratchRun(spec=fakes.spec("again", problem=bare, iterations=3))
    again.generator = ReplayGenerator.from_run("fake-1", versions)  # type: ignore[assignment]
    second = await again.go()
    assert (second.baseline_id, second.best_id) == (first.baseline_id, first.best_id) == (2, 3)


async def test_what_only_changes_a_kernel_is_refused_before_the_lane(bare: str) -> None:
    run = scratch_run(bare, 10)
    run.generator.from_scratch = False  # type: ignore[misc]
    with pytest.raises(UsageError, match=r"there is none: take --generator llm, .* put one at .*kernel\.py"):
        await run.go()
    assert run.script.started == 0
    assert not paths.run_dir("fake-1").exists()


async def test_people_cannot_pin_the_empty_start_nor_kill_the_baseline(bare: str) -> None:
    state = await scratch_run(bare, 10, 20).go()
    state.status = "running"
    policy = make_policy("ucb", {})
    with pytest.raises(UsageError, match="#0 is empty: only a correct candidate"):
        answer(state, policy, c.Pin(by="ann", parent_id=0))
    with pytest.raises(UsageError, match="the baseline is what all others are compared with"):
        answer(state, policy, c.Kill(by="ann", candidate_id=1))
