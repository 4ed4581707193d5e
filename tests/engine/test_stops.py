"""What ends a run by itself: each stop by its own name, alone and in whole runs, undisturbed and continued."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from engine_fakes import Run, Script, journal, spec
from msgspec import UNSET

from kbtui import clock
from kbtui.engine.opening import changed_limits
from kbtui.engine.stops import pulls_without_gain, share_of_light, stop_reason
from kbtui.errors import UsageError
from kbtui.state import events as e
from kbtui.state.records import CaseInfo, CaseTiming
from kbtui.state.run_state import RunState


async def test_each_stop_names_itself() -> None:
    for limit, name in (
        ({"iterations": 3}, "iterations"),
        ({"budget_usd": 0.02}, "budget"),
        ({"budget_tokens": 25}, "tokens"),
        ({"patience": 4}, "no gain"),
    ):
        run = Run(spec(f"fake-{name.replace(' ', '-')}", **{"iterations": 500, **limit}))
        state = await run.go()
        assert state.stopped_by == name
        assert state.summary is not None
        assert state.summary.stopped_by == name
        assert state.open_pulls == []


async def test_tokens_end_a_run_at_the_pull_that_spends_the_last() -> None:
    state = await Run(spec(iterations=500, budget_tokens=45)).go()
    assert 45 <= state.tokens < 75


async def test_no_gain_counts_rewarded_pulls_since_the_best_changed() -> None:
    run = Run(spec(iterations=500, patience=6))
    state = await run.go()
    assert pulls_without_gain(state) == 6
    last = max(i for i, x in enumerate(run.events) if isinstance(x, e.BestChanged))
    begun = {x.pull for x in run.events[last:] if isinstance(x, e.Selected)}
    assert sum(isinstance(x, e.Rewarded) and x.pull in begun for x in run.events[last:]) == 6


async def test_time_ends_a_run_and_the_clock_goes_on_over_a_continuation(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1000.0, 0.5)
    monkeypatch.setattr(clock, "monotonic", lambda: next(ticks))
    first = Run(spec(iterations=500, budget_minutes=1.0))
    state = await first.go()
    assert state.stopped_by == "time"
    assert 60 <= state.elapsed < 90
    ticks = itertools.count(5.0, 0.5)  # another process, another clock
    again = Run(spec(iterations=None, budget_minutes=2.0, continue_run=True))
    ended = await again.go()
    assert ended.stopped_by == "time"
    assert 120 <= ended.elapsed < 150
    assert again.events[0].elapsed >= state.elapsed
    same = Run(spec(iterations=None, continue_run=True))
    assert (await same.go()).pulls_ended == ended.pulls_ended


async def test_patience_goes_on_over_a_continuation() -> None:
    whole = Run(spec("fake-w", iterations=500, patience=5))
    await whole.go()
    short = Run(spec("fake-s", iterations=4, patience=5))
    await short.go()
    again = Run(spec("fake-s", iterations=500, continue_run=True))
    await again.go()
    assert again.state.pulls_ended == whole.state.pulls_ended
    assert again.state.stopped_by == "no gain"


@pytest.mark.parametrize(("kind", "timing", "stops"), [("cuda", "measured", True), ("cpu", "modelled", False)])
async def test_the_speed_of_light_ends_a_run_on_a_gpu_only(kind: str, timing: str, stops: bool) -> None:
    # The fastest of the fakes takes 1/1.4 ms; 95 % of the speed of light is reached by it and by no other.
    script = Script(kind=kind, timing=timing, floor_ms=0.96 / 1.4)
    state = await Run(spec(iterations=150, budget_usd=None), script=script).go()
    assert state.stopped_by == ("speed of light" if stops else "iterations")
    if stops:
        assert state.best is not None
        assert state.best.ratio == pytest.approx(1.4)
        assert state.pulls_ended < 150
        assert share_of_light(state) == pytest.approx(0.96)


async def test_a_baseline_at_the_speed_of_light_needs_no_pull() -> None:
    state = await Run(spec(), script=Script(kind="cuda", floor_ms=0.97)).go()
    assert (state.stopped_by, state.pulls_ended) == ("speed of light", 0)


async def test_the_speed_of_light_can_be_asked_for_or_not() -> None:
    strict = await Run(spec("fake-s", speed_of_light=99.0), script=Script(kind="cuda", floor_ms=0.69)).go()
    never = await Run(spec("fake-n", speed_of_light=None), script=Script(kind="cuda", floor_ms=1.0)).go()
    assert strict.stopped_by == never.stopped_by == "iterations"


@pytest.mark.parametrize(
    ("objective", "share"), [("geomean", (0.5**3 * 1.0) ** 0.25), ("total", (3 * 1 + 4) / (3 * 2 + 4)), ("worst", 0.5)]
)
async def test_the_share_of_light_is_by_objective_and_weight(objective: str, share: float) -> None:
    run = Run(spec(iterations=1), script=Script(kind="cuda"))
    state = await run.go()
    assert state.started is not None
    cases = (CaseInfo(name="a", fields={}, weight=3.0), CaseInfo(name="b", fields={}, weight=1.0))
    problem = msgspec.structs.replace(state.started.problem, cases=cases)
    state.started = msgspec.structs.replace(state.started, problem=problem, objective=objective)
    times = (CaseTiming(case="a", ms=2.0, floor_ms=1.0), CaseTiming(case="b", ms=4.0, floor_ms=4.0))
    assert state.best is not None
    assert state.best.timing is not None
    state.best.timing = msgspec.structs.replace(state.best.timing, cases=times)
    assert share_of_light(state) == pytest.approx(share)
    # faster than the memory allows, out of the L2 cache: at its limit, and no further
    cached = (*times[:1], CaseTiming(case="b", ms=4.0, floor_ms=9.0))
    state.best.timing = msgspec.structs.replace(state.best.timing, cases=cached)
    assert share_of_light(state) == pytest.approx(share)
    unknown = (*times[:1], CaseTiming(case="b", ms=4.0, floor_ms=0.0))
    state.best.timing = msgspec.structs.replace(state.best.timing, cases=unknown)
    assert share_of_light(state) is None
    assert stop_reason(state) == "iterations"


def test_nothing_ends_a_run_that_only_starts() -> None:
    state = RunState()
    state.iterations = 5
    assert stop_reason(state) == ""
    state.budget_spent = "tokens"
    assert stop_reason(state) == "tokens"


async def test_only_what_is_said_anew_is_a_change() -> None:
    run = Run(spec(iterations=1, budget_minutes=3.0, patience=9))
    state = await run.go()
    assert (state.budget_s, state.patience, state.budget_tokens) == (180.0, 9, None)
    assert changed_limits(spec(budget_usd=UNSET), state) is None
    assert changed_limits(spec(budget_usd=1.0, budget_minutes=3.0, patience=9), state) is None
    changed = changed_limits(spec(budget_minutes=4.0, budget_tokens=7), state)
    assert changed is not None
    assert (changed.budget_s, changed.budget_tokens, changed.patience, changed.budget_usd) == (240.0, 7, None, None)
    await Run(spec(iterations=2, budget_minutes=4.0, continue_run=True)).go()
    assert [x.budget_s for x in journal("fake-1") if isinstance(x, e.BudgetChanged)] == [240.0]


@pytest.mark.parametrize(
    "limit", [{"budget_tokens": 0}, {"budget_minutes": 0.0}, {"patience": 0}, {"speed_of_light": 101.0}]
)
def test_limits_that_make_no_sense_are_refused(limit: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(limit)).replace("_", "-")):
        spec(**limit).check()
