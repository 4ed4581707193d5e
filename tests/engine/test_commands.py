"""What each command does, said and refused; and what it changes in a live run, over the real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from engine_fakes import FakeGenerator, Run, Script, first_lines, spec, value_of, variant

from kbtui.engine.client import EngineGone, RunClient, send
from kbtui.engine.commands import answer
from kbtui.errors import UsageError
from kbtui.paths import journal_file
from kbtui.search.registry import make_policy
from kbtui.state import commands as c
from kbtui.state import events as e
from kbtui.state.records import Summary
from kbtui.state.run_state import RunState

ME = "me@test"
POLICY = make_policy("paper", {"period": 4, "clusters": 2})


class Live:
    """A run in this process and a client of its socket."""

    def __init__(self, run: Run, client: RunClient, ending: asyncio.Task[Summary]) -> None:
        self.run, self.client, self.ending = run, client, ending

    @property
    def state(self) -> RunState:
        return RunState().apply_all(self.run.events)

    async def tell(self, command: c.Command) -> str:
        """Send what must be accepted; return the sentence."""
        reply = await self.client.send(command)  # type: ignore[arg-type]
        assert reply.ok, reply.text
        return reply.text

    async def refused(self, command: c.Command) -> str:
        reply = await self.client.send(command)  # type: ignore[arg-type]
        assert not reply.ok
        return reply.text

    async def until(self, condition: Callable[[RunState], bool]) -> RunState:
        async with asyncio.timeout(20):
            while not condition(self.state):
                await asyncio.sleep(0.01)
        return self.state


@asynccontextmanager
async def live(run: Run, *, paused: bool = True) -> AsyncIterator[Live]:
    """A run that (with `paused`) holds before its first pull."""
    ready = asyncio.Event()
    engine = run.engine()
    ending = asyncio.ensure_future(engine.run(run.hear, ready.set))
    waiting = asyncio.ensure_future(ready.wait())
    await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
    client = await RunClient.connect(run.spec.run_id)
    reading = asyncio.ensure_future(_drain(client))
    try:
        one = Live(run, client, ending)
        if paused:
            await one.tell(c.Pause(by=ME, reason="to look"))
            await one.tell(c.Step(by=ME))  # the baseline holds too while paused: let it and one pull through
            await one.until(lambda state: state.pulls_ended == 1 and not state.steps)
        yield one
    finally:
        engine.stop()
        await ending
        client.close()
        await reading


async def _drain(client: RunClient) -> None:
    async for _ in client.messages():
        pass


def run(**changes: object) -> Run:
    return Run(spec(iterations=1000, **changes), attended=True)


async def test_paused_nothing_happens_and_a_step_is_one_pull() -> None:
    async with live(run()) as here:
        state = here.state
        assert (state.status, state.pause_reason) == ("paused", "to look")
        before = len(here.run.events)
        await asyncio.sleep(0.2)
        assert len(here.run.events) == before
        assert "one pull" in await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: len(state.pulls) == 2 and not state.open_pulls)
        await asyncio.sleep(0.2)
        assert len(here.state.pulls) == 2
        assert here.state.status == "paused"


async def test_two_steps_are_two_pulls() -> None:
    async with live(run()) as here:
        await here.tell(c.Step(by=ME))
        await here.tell(c.Step(by=ME))
        await here.until(lambda state: len(state.pulls) == 3 and not state.open_pulls)
        await asyncio.sleep(0.2)
        assert len(here.state.pulls) == 3


async def test_resume_goes_on() -> None:
    async with live(run()) as here:
        assert await here.tell(c.Resume(by=ME)) == "resumed"
        state = await here.until(lambda state: state.pulls_ended > 5)
        assert state.status == "running"


async def test_a_pull_in_flight_is_finished_though_paused() -> None:
    script = Script(block="verify")
    one = Run(spec(iterations=1000), script=script, attended=True)
    async with live(one, paused=False) as here:
        assert await asyncio.to_thread(script.blocked.wait, 10)
        pull = here.state.open_pulls[0].number
        assert await here.tell(c.Pause(by=ME)) == f"paused; pull {pull} is finished first"
        script.go.set()
        state = await here.until(lambda state: not state.open_pulls)
        await asyncio.sleep(0.2)
        assert here.state.pulls[pull].ended
        assert max(here.state.pulls) == pull
        assert state.status == "paused"


async def test_a_forced_arm_goes_next_with_its_parent() -> None:
    async with live(run()) as here:
        text = await here.tell(c.Force(by=ME, strategy="pipeline", cluster=0, parent_id=0))
        assert text == "c0 pipeline from #0 goes next"
        await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: len(state.pulls) == 2)
        pull = state.pulls[2]
        assert (pull.cluster, pull.strategy, pull.parent_id, pull.forced) == (0, "pipeline", 0, True)
        assert state.forces == {}


async def test_what_cannot_be_forced_is_refused_at_once() -> None:
    async with live(run()) as here:
        assert "cannot be played" in await here.refused(c.Force(by=ME, strategy="fusion"))
        assert "there is no candidate #99" in await here.refused(c.Force(by=ME, strategy="tiling", parent_id=99))
        for command in (c.Force, c.Ban):
            refused = await here.refused(command(by=ME, strategy="tiling", cluster=99))
            assert refused == "there is no cluster c99: the run has c0, c1"
        await here.tell(c.Ban(by=ME, strategy="tiling"))
        assert "tiling is banned: unban it first" in await here.refused(c.Force(by=ME, strategy="tiling"))
        assert "tiling is banned" in await here.refused(c.Force(by=ME, strategy="tiling", cluster=0))
        assert here.state.forces == {}


async def test_a_force_that_can_no_longer_be_played_is_dropped_with_a_line() -> None:
    async with live(run()) as here:
        await here.tell(c.Force(by=ME, strategy="pipeline"))
        await here.tell(c.Ban(by=ME, strategy="pipeline"))
        await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: len(state.pulls) == 2)
        assert not state.pulls[2].forced
        assert state.forces == {}
        notes = [x.text for x in here.run.events if isinstance(x, e.Noted)]
        assert notes == [f"pipeline, forced by {ME}, cannot be played: it was banned since"]


async def test_a_banned_arm_is_not_pulled_until_unbanned() -> None:
    async with live(run()) as here:
        await here.tell(c.Ban(by=ME, strategy="tiling"))
        await here.tell(c.Ban(by=ME, strategy="vectorization"))
        for _ in range(4):
            await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: len(state.pulls) == 5 and not state.open_pulls)
        assert {state.pulls[number].strategy for number in range(2, 6)} == {"pipeline"}
        assert "banned already" in await here.refused(c.Ban(by=ME, strategy="tiling", cluster=0))
        assert "every cluster" in await here.refused(c.Unban(by=ME, strategy="tiling", cluster=0))
        assert "not banned" in await here.refused(c.Unban(by=ME, strategy="fusion"))
        assert await here.tell(c.Unban(by=ME, strategy="tiling")) == "tiling may be played again"
        assert here.state.bans == {(None, "vectorization")}


async def test_bans_that_leave_no_arm_hold_the_run() -> None:
    async with live(run()) as here:
        for strategy in ("tiling", "vectorization", "pipeline"):
            await here.tell(c.Ban(by=ME, strategy=strategy))
        await here.tell(c.Resume(by=ME))
        state = await here.until(lambda state: state.status == "paused")
        assert state.pause_reason.startswith("no arm is left under the bans")
        await here.tell(c.Unban(by=ME, strategy="tiling"))
        await here.tell(c.Resume(by=ME))
        await here.until(lambda state: state.pulls_ended > 2)


async def test_an_injected_version_is_judged_before_the_next_pull() -> None:
    async with live(run()) as here:
        pulls, arms = here.state.pulls_ended, dict(here.state.arms)
        await here.tell(c.Inject(by=ME, name="mine.py", source=variant(1006)))
        await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: any(x.generator == "inject" for x in state.candidates.values()))
        state = await here.until(lambda state: state.pulls_ended == pulls + 1)
        mine = next(x for x in state.candidates.values() if x.generator == "inject")
        assert (mine.move, mine.by, mine.pull, mine.strategy) == ("mine.py", ME, 0, None)
        assert mine.timing is not None
        assert mine.timing.verdict == "faster"
        assert state.best_id == mine.id or state.best.ratio >= mine.ratio  # type: ignore[union-attr, operator]
        assert mine.reward is None
        order = [type(x).__name__ for x in here.run.events if getattr(x, "candidate_id", None) == mine.id]
        assert order[:3] == ["Generated", "Compiled", "Verified"]
        selected = max(x.seq for x in here.run.events if isinstance(x, e.Selected))
        assert mine.timing is not None
        assert min(x.seq for x in here.run.events if isinstance(x, e.Timed) and x.candidate_id == mine.id) < selected
        changed = {key for key, arm in state.arms.items() if arms.get(key) != arm}
        assert len(changed) <= 1  # the step's own pull, nothing for the injected version


async def test_an_injected_duplicate_is_pruned() -> None:
    async with live(run()) as here:
        source = here.state.candidates[1].source
        await here.tell(c.Inject(by=ME, name="again.py", source=f"# mine\n{source}"))
        await here.tell(c.Resume(by=ME))
        state = await here.until(lambda state: any(x.generator == "inject" for x in state.candidates.values()))
        state = await here.until(
            lambda state: any(x.generator == "inject" and x.pruned for x in state.candidates.values())
        )
        mine = next(x for x in state.candidates.values() if x.generator == "inject")
        assert mine.pruned is not None
        assert mine.pruned.reason == "the same syntax tree as #1"


async def test_an_injected_file_that_is_none_is_refused() -> None:
    async with live(run()) as here:
        assert "line 1" in await here.refused(c.Inject(by=ME, name="x.py", source="def ("))
        assert "does not define vector_add" in await here.refused(c.Inject(by=ME, name="x.py", source="y = 1"))
        assert here.state.injections == {}


async def test_a_pinned_parent_is_taken() -> None:
    async with live(run()) as here:
        assert "there is no candidate" in await here.refused(c.Pin(by=ME, parent_id=99))
        assert "nothing is pinned" in await here.refused(c.Pin(by=ME, parent_id=None))
        await here.tell(c.Pin(by=ME, parent_id=0))
        for _ in range(3):
            await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: len(state.pulls) == 4 and not state.open_pulls)
        assert {state.pulls[number].parent_id for number in (2, 3, 4)} == {0}
        await here.tell(c.Pin(by=ME, parent_id=None))
        assert here.state.pinned is None


@pytest.mark.parametrize("stage", ["compile", "verify", "time"])
async def test_a_killed_candidate_stops_and_the_run_goes_on(stage: str) -> None:
    script = Script(block=stage)
    one = Run(spec(iterations=12), script=script, attended=True)
    async with live(one, paused=False) as here:
        assert await asyncio.to_thread(script.blocked.wait, 10)
        (pull,) = here.state.open_pulls
        (number,) = pull.candidate_ids
        arms = dict(here.state.arms)
        assert await here.tell(c.Kill(by=ME, candidate_id=number)) == f"#{number} is judged no further"
        state = await here.until(lambda state: state.pulls[pull.number].ended)
        assert state.pulls[pull.number].outcome == "dropped"
        assert not state.pulls[pull.number].seen
        assert state.arms == arms
        summary = await here.ending
    state = one.state
    assert summary.stopped_by == "iterations"
    killed = state.candidates[number]
    assert (killed.status, killed.killed_by) == ("killed", ME)
    assert script.cancels == [value_of(killed.source)]
    assert state.best_id != number
    after = [x for x in one.events if getattr(x, "candidate_id", None) == number]
    assert isinstance(after[-1], e.Killed)  # nothing that was found afterwards counts
    (dropped,) = (x for x in one.events if isinstance(x, e.PullDropped) and x.pull == pull.number)
    assert (dropped.owner, dropped.reason) == (None, f"{ME} killed #{number}")


async def test_of_several_in_flight_only_the_killed_one_stops() -> None:
    script = Script(block="verify", seconds={"compile": 0.005})
    one = Run(spec(iterations=6, parallel=3), script=script, attended=True)
    async with live(one, paused=False) as here:
        assert await asyncio.to_thread(script.blocked.wait, 10)
        await here.until(lambda state: sum(bool(pull.candidate_ids) for pull in state.open_pulls) == 3)
        at_work = script.calls[-1][1] if script.calls[-1][0] == "verify" else None
        state = here.state
        idle = [
            pull.candidate_ids[0]
            for pull in state.open_pulls
            if value_of(state.candidates[pull.candidate_ids[0]].source) != at_work
        ]
        await here.tell(c.Kill(by=ME, candidate_id=idle[-1]))
        state = await here.until(lambda state: state.pulls[state.candidates[idle[-1]].pull].ended)
        assert len([x for x in here.run.events if isinstance(x, e.PullDropped)]) == 1
        script.go.set()
        assert (await here.ending).stopped_by == "iterations"
    assert [candidate.id for candidate in one.state.candidates.values() if candidate.killed_by] == [idle[-1]]


async def test_an_injected_version_can_be_killed() -> None:
    script = Script()
    one = Run(spec(iterations=1000), script=script, attended=True)
    async with live(one) as here:
        script.block = "verify"
        await here.tell(c.Inject(by=ME, name="mine.py", source=variant(1006)))
        await here.tell(c.Step(by=ME))
        assert await asyncio.to_thread(script.blocked.wait, 10)
        mine = next(x.id for x in here.state.candidates.values() if x.generator == "inject")
        await here.tell(c.Kill(by=ME, candidate_id=mine))
        state = await here.until(lambda state: state.pulls_ended == 2)
        assert state.candidates[mine].verification is None
        assert script.cancels == [1006]


async def test_what_cannot_be_killed_is_refused() -> None:
    async with live(run()) as here:
        assert "there is no candidate #99" in await here.refused(c.Kill(by=ME, candidate_id=99))
        assert "stop the run instead" in await here.refused(c.Kill(by=ME, candidate_id=0))
        assert "#1 is done" in await here.refused(c.Kill(by=ME, candidate_id=1))


async def test_a_kill_survives_a_crash() -> None:
    script = Script(block="verify")
    one = Run(spec(iterations=6), script=script, attended=True)
    async with live(one, paused=False) as here:
        assert await asyncio.to_thread(script.blocked.wait, 10)
        number = here.state.open_pulls[0].candidate_ids[0]
        await here.tell(c.Kill(by=ME, candidate_id=number))
        await here.ending
    file = journal_file("fake-1")
    end = next(index for index, x in enumerate(one.events) if isinstance(x, e.Killed))
    file.write_bytes(first_lines(file, end + 1))
    again = Run(spec(iterations=None, continue_run=True))
    state = await again.go()
    assert isinstance(again.events[1], e.PullDropped)
    assert not state.pulls[again.events[1].pull].seen
    assert value_of(state.candidates[number].source) not in {value for _, value in again.script.calls}


async def test_the_budget_can_be_changed_and_ends_the_run() -> None:
    async with live(run()) as here:
        assert "a run needs at least 1" in await here.refused(c.SetBudget(by=ME, iterations=0))
        assert "say how many" in await here.refused(c.SetBudget(by=ME))
        assert "at least 1" in await here.refused(c.SetBudget(by=ME, tokens=0))
        assert "some time" in await here.refused(c.SetBudget(by=ME, minutes=0.0))
        assert "at most 1,000,000,000" in await here.refused(c.SetBudget(by=ME, iterations=10**20))
        assert "at most" in await here.refused(c.SetBudget(by=ME, tokens=2**63))
        text = await here.tell(c.SetBudget(by=ME, tokens=5000, minutes=2.5, patience=900))
        assert text.startswith("the run may use 5,000 tokens, 10 spent and 2.5 minutes, 0.0 gone and 900 pulls without")
        assert (here.state.budget_tokens, here.state.budget_s, here.state.patience) == (5000, 150.0, 900)
        assert await here.tell(c.SetBudget(by=ME, iterations=3)) == "the run may use 3 pulls, 1 done"
        await here.tell(c.Resume(by=ME))
        summary = await here.ending
        assert (summary.pulls, summary.stopped_by) == (3, "iterations")


async def test_tags_and_notes() -> None:
    async with live(run()) as here:
        await here.tell(c.Tag(by=ME, candidate_id=0, tag="keep", note="plain"))
        assert here.state.candidates[0].tags == ["keep"]
        assert "there is no candidate #77" in await here.refused(c.Tag(by=ME, candidate_id=77, tag="x"))
        assert "41 characters" in await here.refused(c.Tag(by=ME, candidate_id=0, tag="x" * 41))


async def test_the_last_act_is_taken_back_and_no_other() -> None:
    async with live(run()) as here:
        await here.tell(c.Ban(by="ann@a", strategy="fusion"))
        await here.tell(c.Tag(by="bob@b", candidate_id=0, tag="keep"))
        banned = next(x.seq for x in here.run.events if isinstance(x, e.Banned))
        text = await here.refused(c.Undo(by=ME, act=banned))
        assert text.startswith("something else came after it: bob@b tagged #0 keep")
        assert await here.tell(c.Undo(by=ME)) == "taken back: bob@b tagged #0 keep"
        assert here.state.candidates[0].tags == []
        assert await here.tell(c.Undo(by=ME, act=banned)) == "taken back: ann@a banned fusion"
        assert not here.state.bans
        await here.tell(c.Undo(by=ME))  # the pause that this run began with
        await here.until(lambda state: state.pulls_ended > 1)
        assert "nothing to take back" in await here.refused(c.Undo(by=ME))


async def test_a_force_that_was_taken_back_is_not_played() -> None:
    async with live(run()) as here:
        await here.tell(c.Force(by=ME, strategy="pipeline"))
        await here.tell(c.Undo(by=ME))
        await here.tell(c.Step(by=ME))
        state = await here.until(lambda state: state.pulls_ended == 2)
        assert not any(pull.forced for pull in state.pulls.values())


async def test_hints_need_a_generator_that_reads_them() -> None:
    async with live(run()) as here:
        assert "reads no hints" in await here.refused(c.Hint(by=ME, text="fewer warps"))


async def test_hints_are_kept_replaced_and_cleared() -> None:
    begun = (await Run(spec(iterations=1)).go()).started
    assert begun is not None
    state = RunState().apply_all([msgspec.structs.replace(begun, generator="llm")])

    def tell(text: str) -> str:
        said = answer(state, POLICY, c.Hint(by=ME, text=text))
        state.apply_all(said.events)
        return said.text

    with pytest.raises(UsageError, match="no hint to take back"):
        tell(" ")
    assert tell(" fewer warps ") == "every coming prompt says so"
    assert state.hint == "fewer warps"
    with pytest.raises(UsageError, match="say that already"):
        tell("fewer warps")
    with pytest.raises(UsageError, match="2000 at most"):
        tell("x" * 2001)
    assert "no hint any more" in tell("")
    assert state.hint == ""


async def test_refusals_of_what_is_already_so() -> None:
    async with live(run()) as here:
        assert "paused already" in await here.refused(c.Pause(by=ME))
        await here.tell(c.Resume(by=ME))
        assert "not paused" in await here.refused(c.Resume(by=ME))
        assert "not paused" in await here.refused(c.Step(by=ME))


async def test_stop_leaves_the_pull_for_later_and_cancels_the_job() -> None:
    script = Script(block="time")
    one = Run(spec(iterations=12), script=script, attended=True)
    async with live(one, paused=False) as here:
        assert await asyncio.to_thread(script.blocked.wait, 10)
        text = await here.tell(c.Stop(by=ME))
        assert text.startswith("stopping; the best kernel is ")
        summary = await here.ending
        assert summary.stopped_by == "user"
        assert script.cancelled.is_set()
    state = one.state
    assert len(state.open_pulls) == 1
    again = Run(spec(iterations=None, continue_run=True))
    ended = await again.go()
    assert ended.open_pulls == []
    assert ended.stopped_by == "iterations"
    assert again.script.calls[0][0] == "time"  # where it was left, not from the start


async def test_after_the_end_nobody_answers() -> None:
    await Run(spec(iterations=1)).go()
    with pytest.raises(EngineGone, match=r"not live.*--continue fake-1"):
        await asyncio.to_thread(send, "fake-1", c.Pause(by=ME))
    with pytest.raises(EngineGone):
        await RunClient.connect("fake-1")


async def test_commands_of_the_shell_reach_the_run() -> None:
    async with live(run()) as here:
        reply = await asyncio.to_thread(send, "fake-1", c.Resume(by="other@shell"))
        assert (reply.ok, reply.text) == (True, "resumed")
        assert any(isinstance(x, e.RunResumed) and x.by == "other@shell" for x in here.run.events)


def test_a_stopped_run_refuses_everything() -> None:
    state = RunState()
    with pytest.raises(UsageError, match="only starting"):
        answer(state, POLICY, c.Pause(by=ME))
    state.status, state.stopped_by = "stopped", "iterations"
    with pytest.raises(UsageError, match="has stopped"):
        answer(state, POLICY, c.Pause(by=ME))


async def test_the_machine_fails_and_a_person_resumes() -> None:
    from engine_fakes import environment_failure

    probe = Run(spec("probe", iterations=12))
    await probe.go()
    value = next(value for method, value in probe.script.calls if method == "time" and value)
    script = Script(fail_at={("time", value): environment_failure()})
    one = Run(spec(iterations=12), script=script, attended=True, generator=FakeGenerator())
    async with live(one, paused=False) as here:
        state = await here.until(lambda state: state.status == "paused")
        assert state.pause_reason == "the driver is gone"
        assert state.open_pulls == []
        dropped = [x for x in here.run.events if isinstance(x, e.PullDropped) and x.owner == "environment"]
        assert dropped[-1].reason == "the driver is gone"
        assert not state.pulls[dropped[-1].pull].seen
        await here.tell(c.Resume(by=ME))
        summary = await here.ending
        assert summary.stopped_by == "iterations"
        assert script.started == 2  # a lane that failed is started anew
