"""Several pulls in flight: resources are shared and not exceeded, and whatever ends the run loses and doubles nothing."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest
from engine_fakes import (
    FakeGenerator,
    Run,
    Script,
    environment_failure,
    journal,
    provider_failure,
    spec,
    value_of,
)

from kbtui import paths
from kbtui.engine import actions as a
from kbtui.engine.opening import limits
from kbtui.engine.plan import Limits, ready_actions
from kbtui.errors import EnvironmentFailure, ProviderFailure
from kbtui.generate.generator import Exhausted, Request, Unusable, Written
from kbtui.state import events as e
from kbtui.state.run_state import RunState


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbtui.engine.opening.os.sched_getaffinity", lambda _: set(range(8)))


def parallel(pulls: int = 4, run_id: str = "fake-1", iterations: int | None = 24, **changes: object) -> Run:
    script = Script(seconds={"compile": 0.004, "verify": 0.002, "time": 0.003})
    one = Run(
        spec(run_id, iterations=iterations, parallel=pulls), script=script, generator=FakeGenerator(seconds=0.003)
    )
    for name, value in changes.items():
        setattr(one, name, value)
    return one


def check_whole(events: list[e.Event], iterations: int) -> RunState:
    """What holds for every run, however its pulls overlapped and however often it was cut."""
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    state = RunState().apply_all(events)
    assert state.stopped_by == "iterations"
    assert state.pulls_ended == iterations
    assert state.open_pulls == []
    ends = Counter(x.pull for x in events if isinstance(x, e.Rewarded | e.PullDropped))
    assert ends == Counter(dict.fromkeys(state.pulls, 1))
    assert sorted(state.pulls) == list(range(1, len(state.pulls) + 1))
    for kind in (e.Generated, e.Compiled, e.Pruned, e.Verified, e.Timed):
        judged = Counter(x.candidate_id for x in events if isinstance(x, kind))  # type: ignore[attr-defined]
        assert set(judged.values()) <= {1}, kind
    assert len(state.digests) == len(state.candidates)
    paid = [x for x in events if isinstance(x, e.Generated | e.PullDropped)]
    assert state.cost_usd == pytest.approx(sum(x.cost_usd for x in paid))
    best = max((c.ratio or 0.0 for c in state.frontier if c.status == "faster"), default=1.0)
    assert state.best is not None
    assert state.best.ratio == best
    return state


def most_in_flight(events: list[e.Event]) -> int:
    flying = most = 0
    for event in events:
        flying += isinstance(event, e.Selected)
        flying -= isinstance(event, e.Rewarded | e.PullDropped)
        most = max(most, flying)
    return most


@pytest.mark.parametrize("pulls", [2, 4, 7])
async def test_so_many_pulls_are_in_flight_and_the_lane_does_one_thing_at_a_time(pulls: int) -> None:
    run = parallel(pulls)
    run.script.seconds["compile"] = 0.02  # long beside all else, so that two compile at once however slow the machine
    await run.go()
    check_whole(run.events, 24)
    assert most_in_flight(run.events) == pulls
    assert run.script.most["lane"] == 1
    assert 1 < run.script.most["compile"] <= pulls


async def test_compilers_are_bounded_by_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbtui.engine.opening.os.sched_getaffinity", lambda _: {0, 1, 2})
    assert limits(spec(parallel=8)) == Limits(pulls=8, compilers=2)
    assert limits(spec(parallel=1)) == Limits(pulls=1, compilers=1)
    run = parallel(6)
    await run.go()
    assert run.script.most["compile"] == 2
    monkeypatch.setattr("kbtui.engine.opening.os.sched_getaffinity", lambda _: {0})
    assert limits(spec(parallel=8)).compilers == 1


class CountingGenerator(FakeGenerator):
    """Knows how many versions it is writing."""

    writing = 0

    async def write(self, request: Request) -> Written | Exhausted | Unusable:
        self.writing += 1
        try:
            return await super().write(request)
        finally:
            self.writing -= 1


@pytest.mark.parametrize(("pulls", "most"), [(1, 0), (2, 1), (4, 3)])
async def test_the_lane_works_while_the_generator_writes(pulls: int, most: int) -> None:
    generator = CountingGenerator(seconds=0.02)
    beside: list[int] = []

    def look(event: e.Event) -> None:
        if isinstance(event, e.Verified | e.Timed):
            beside.append(generator.writing)

    run = parallel(pulls, generator=generator, on_event=look)
    await run.go()
    assert max(beside) == most
    assert sum(count > 0 for count in beside[2:]) >= (0 if pulls == 1 else len(beside) // 2)


async def test_pulls_in_flight_count_for_the_policy() -> None:
    run = parallel(3)
    await run.go()
    flying: dict[int, e.Selected] = {}
    spread = 0
    rewarded: Counter[str] = Counter()
    for event in run.events:
        if isinstance(event, e.Clustered):
            break  # before it there is one cluster, so that an arm is a strategy
        if isinstance(event, e.Selected):
            for score in event.scores:
                if score.cluster == 0:
                    playing = sum(other.strategy == score.strategy for other in flying.values())
                    assert score.pulls == 1 + rewarded[score.strategy] + playing
                    spread += playing
            flying[event.pull] = event
        elif isinstance(event, e.Rewarded | e.PullDropped):
            ended = flying.pop(event.pull)
            rewarded[ended.strategy] += isinstance(event, e.Rewarded)
    assert spread > 3


@pytest.mark.slow
async def test_from_any_boundary_nothing_is_lost_or_doubled() -> None:
    run = parallel(3, iterations=14, generator=FakeGenerator(values=24, seconds=0.001))
    await run.go()
    whole = journal("fake-1")
    kinds = {type(event) for event in whole}
    assert {e.Clustered, e.Masked, e.PullDropped, e.Pruned, e.Rewarded, e.BestChanged} <= kinds
    file = paths.journal_file("fake-1")
    lines = file.read_bytes().splitlines(keepends=True)
    for cut in range(1, len(lines)):
        file.write_bytes(b"".join(lines[:cut]))
        before = RunState().apply_all(whole[:cut])
        again = Run(spec(iterations=None, continue_run=True), generator=FakeGenerator(values=24, seconds=0.001))
        await again.go()
        after = journal("fake-1")
        assert after[:cut] == whole[:cut]
        check_whole(after, 14)
        done = {value_of(x.source) for x in before.candidates.values() if x.compilation is not None}
        assert not done & {value for method, value in again.script.calls if method == "compile"}, cut
        timed = {value_of(x.source) for x in before.candidates.values() if x.timing is not None}
        assert not timed & {value for method, value in again.script.calls if method == "time"}, cut


@pytest.mark.parametrize("seed", range(4))
async def test_stopped_at_random_moments_again_and_again(seed: int) -> None:
    moments = random.Random(seed)
    continued = False
    for _ in range(200):
        run = parallel(4, iterations=None if continued else 24)
        run.spec.continue_run = continued
        engine = run.engine()
        ending = asyncio.ensure_future(engine.run(run.hear, lambda: None))
        await asyncio.sleep(moments.uniform(0.01, 0.08))
        engine.stop()
        (result,) = await asyncio.gather(ending, return_exceptions=True)
        continued = continued or paths.journal_file("fake-1").exists()
        if getattr(result, "stopped_by", "") == "iterations":
            break
    check_whole(journal("fake-1"), 24)
    assert sum(isinstance(event, e.RunContinued) for event in journal("fake-1")) >= 2


async def test_a_failure_of_the_machine_drops_its_own_pull_and_leaves_the_others() -> None:
    run = parallel(4)
    run.script.fail_nth["verify", 5] = environment_failure()
    with pytest.raises(EnvironmentFailure, match="driver is gone"):
        await run.go()
    state = run.state
    dropped = [x for x in run.events if isinstance(x, e.PullDropped) and x.reason == "the driver is gone"]
    (value,) = (value_of(state.candidates[state.pulls[x.pull].candidate_ids[0]].source) for x in dropped)
    assert value == [value for method, value in run.script.calls if method == "verify"][4]
    assert len(state.open_pulls) >= 2
    again = parallel(4, iterations=None)
    again.spec.continue_run = True
    await again.go()
    check_whole(journal("fake-1"), 24)


async def test_a_failure_of_the_machine_holds_what_is_in_flight_until_a_person_resumes() -> None:
    run = parallel(4, attended=True)
    run.script.fail_nth["time", 4] = environment_failure()
    engine = run.engine()
    ending = asyncio.ensure_future(engine.run(run.hear, lambda: None))
    async with asyncio.timeout(20):
        while not any(isinstance(event, e.RunPaused) for event in run.events):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    held = len(run.events)
    await asyncio.sleep(0.1)
    assert len(run.events) == held
    state = RunState().apply_all(run.events)
    assert (state.status, state.pause_owner) == ("paused", "environment")
    assert state.open_pulls
    from kbtui.engine.client import send
    from kbtui.state import commands as c

    assert (await asyncio.to_thread(send, "fake-1", c.Resume(by="me@test"))).ok
    await ending
    check_whole(journal("fake-1"), 24)
    assert run.script.started == 2


async def test_a_provider_that_fails_drops_its_own_pull_only() -> None:
    run = parallel(4, generator=FakeGenerator(seconds=0.003, fail_pulls={6: provider_failure()}))
    with pytest.raises(ProviderFailure):
        await run.go()
    dropped = [x.pull for x in run.events if isinstance(x, e.PullDropped) and x.owner == "provider"]
    assert dropped == [6]
    again = parallel(4, iterations=None)
    again.spec.continue_run = True
    await again.go()
    check_whole(journal("fake-1"), 24)


async def test_arms_that_are_all_in_flight_are_waited_for() -> None:
    """The last moves are being tried: there is no arm now, and there is one again when a child has moves."""
    run = parallel(4, generator=FakeGenerator(values=12, seconds=0.004), iterations=200)
    run.spec.budget_usd = None
    state = await run.go()
    assert state.stopped_by == "no arms"
    assert state.open_pulls == []
    assert len(state.candidates) > 6


# ---------------------------------------------------------------- the plan itself


def state_at(run: Run, condition: object) -> RunState:
    state = RunState()
    for event in run.events:
        state.apply(event)
        if condition(state):  # type: ignore[operator]
            return state
    raise AssertionError("never")


async def test_one_at_a_time_there_is_one_action() -> None:
    run = parallel(1)
    await run.go()
    state = RunState()
    for event in run.events[:-1]:
        state.apply(event)
        assert len(ready_actions(state, Limits())) == 1
    ready = ready_actions(state, Limits())
    assert ready == [a.Finish("iterations")]


async def test_what_is_being_done_is_not_begun_again() -> None:
    run = parallel(3)
    await run.go()
    state = RunState()
    some = Limits(pulls=3, compilers=2)
    for event in run.events[:-1]:
        state.apply(event)
        first = ready_actions(state, some)
        if first and not isinstance(first[0], a.Finish):
            assert ready_actions(state, some, first) == []
            again = [action for action in first if not isinstance(action, a.Choose)]
            assert [a.subject(x) for x in ready_actions(state, some, first[:1])] == [
                a.subject(x) for x in again[1:]
            ] or (len(ready_actions(state, some, first[:1])) >= len(again) - 1)


async def test_before_the_baseline_nothing_else_begins() -> None:
    run = parallel(3)
    await run.go()
    state = RunState()
    for event in run.events:
        state.apply(event)
        if state.best_id is not None:
            break
        assert len(ready_actions(state, Limits(pulls=3, compilers=3))) == 1
    assert state.best_id == 0


async def test_places_are_not_exceeded_by_a_persons_version() -> None:
    run = parallel(2)
    await run.go()
    state = state_at(run, lambda state: len(state.open_pulls) == 2)
    state.apply(e.Injected(seq=state.seq + 1, by="me", name="x.py", source="x"))
    assert not [x for x in ready_actions(state, Limits(2, 2)) if isinstance(x, a.TakeInjection | a.Choose)]
    assert [x for x in ready_actions(state, Limits(3, 2)) if isinstance(x, a.TakeInjection)]
    assert not [x for x in ready_actions(state, Limits(3, 2)) if isinstance(x, a.Choose)]


async def test_no_more_pulls_begin_than_may_count() -> None:
    run = parallel(4, iterations=5)
    await run.go()
    state = check_whole(run.events, 5)
    empty = [pull for pull in state.pulls.values() if not pull.candidate_ids]
    assert len(state.pulls) == 5 + len(empty)
