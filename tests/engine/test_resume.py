"""Going on after a crash: from every event at which a journal can end, the run becomes what it would have become."""

from __future__ import annotations

import pytest
from engine_fakes import FakeGenerator, Run, Script, first_lines, journal, sequence, spec, value_of

from kbtui import paths
from kbtui.errors import EnvironmentFailure, JournalError, ProblemError, UsageError
from kbtui.history.journal import RunLock
from kbtui.state import events as e

ITERATIONS = 14


def few_values() -> FakeGenerator:
    """So few that duplicates, three in a row, and exhausted arms are in the run too."""
    return FakeGenerator(values=24)


async def undisturbed() -> list[e.Event]:
    run = Run(spec(iterations=ITERATIONS), generator=few_values())
    await run.go()
    kinds = {type(event) for event in run.events}
    assert {e.Clustered, e.Masked, e.PullDropped, e.Pruned, e.Rewarded, e.BestChanged} <= kinds
    exhausted = [x for x in run.events if isinstance(x, e.PullDropped) and x.owner is None]
    assert exhausted, "the case of two events for one action is not in the recorded run"
    return run.events


@pytest.mark.slow
async def test_from_every_boundary_the_run_becomes_the_same() -> None:
    whole = await undisturbed()
    file = paths.journal_file("fake-1")
    text = file.read_bytes()
    lines = text.splitlines(keepends=True)
    assert len(lines) == len(whole)
    for cut in range(1, len(lines)):
        file.write_bytes(b"".join(lines[:cut]))
        again = Run(spec(iterations=None, continue_run=True), generator=few_values())
        state = await again.go()
        assert sequence(journal("fake-1")) == sequence(whole), (
            f"cut after event {cut}, a {type(whole[cut - 1]).__name__}"
        )
        assert state.stopped_by == "iterations"
        assert state.summary == whole[-1].summary  # type: ignore[attr-defined]
        continued = again.events[0]
        assert isinstance(continued, e.RunContinued)
        assert (continued.seq, continued.cut_bytes) == (cut + 1, 0)


@pytest.mark.parametrize("torn", [1, 20, 200])
async def test_a_torn_last_line_is_cut(torn: int) -> None:
    whole = await undisturbed()
    file = paths.journal_file("fake-1")
    event = next(i for i, x in enumerate(whole) if i > 30 and isinstance(x, e.Generated))
    kept = first_lines(file, event)
    file.write_bytes(kept + file.read_bytes()[len(kept) : len(kept) + torn])
    again = Run(spec(iterations=None, continue_run=True), generator=few_values())
    await again.go()
    continued = again.events[0]
    assert isinstance(continued, e.RunContinued)
    assert continued.cut_bytes == torn
    assert sequence(journal("fake-1")) == sequence(whole)


async def test_a_written_reply_is_not_paid_for_again() -> None:
    whole = await undisturbed()
    file = paths.journal_file("fake-1")
    last = max(i for i, event in enumerate(whole) if isinstance(event, e.Generated))
    file.write_bytes(first_lines(file, last + 1))
    again = Run(spec(iterations=None, continue_run=True), generator=few_values())
    await again.go()
    assert again.script.calls[0][0] == "compile"
    reply = whole[last]
    assert isinstance(reply, e.Generated)
    assert again.script.calls[0][1] == value_of(reply.source)


async def test_more_iterations_after_the_end() -> None:
    short, long = Run(spec("fake-s", iterations=5)), Run(spec("fake-l", iterations=9))
    await short.go()
    await long.go()
    ended = journal("fake-s")[-1]
    again = Run(spec("fake-s", iterations=9, continue_run=True))
    state = await again.go()
    assert state.pulls_ended == 9
    assert state.iterations == 9

    def course(events: list[e.Event]) -> list[tuple[object, ...]]:
        return [entry for entry in sequence(events) if entry[0] != "BestChanged"]

    assert course(journal("fake-s")) == course(journal("fake-l"))
    assert all(event.elapsed >= ended.elapsed for event in again.events)


async def test_more_budget_after_the_end() -> None:
    state = await Run(spec(iterations=30, budget_usd=0.03)).go()
    assert state.stopped_by == "budget"
    state = await Run(spec(iterations=None, budget_usd=0.06, continue_run=True)).go()
    assert state.stopped_by == "budget"
    assert state.budget_usd == 0.06
    assert state.cost_usd >= 0.06
    state = await Run(spec(iterations=None, budget_usd=5.0, continue_run=True)).go()
    assert state.stopped_by == "iterations"


async def test_what_never_started_is_not_continued() -> None:
    with pytest.raises(UsageError, match="never started"):
        await Run(spec(continue_run=True)).go()
    assert not paths.run_dir("fake-1").exists()


async def test_a_live_run_is_not_continued() -> None:
    await Run(spec(iterations=1)).go()
    before = paths.journal_file("fake-1").read_bytes()
    with RunLock("fake-1"), pytest.raises(JournalError, match="belongs to process"):
        await Run(spec(iterations=2, continue_run=True)).go()
    assert paths.journal_file("fake-1").read_bytes() == before


async def test_a_changed_problem_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import msgspec
    from engine_fakes import FakeLane

    await Run(spec(iterations=1)).go()
    original = FakeLane.start

    def changed(self):  # type: ignore[no-untyped-def]
        facts = original(self)
        problem = msgspec.structs.replace(facts.problem, digest="1" * 64)
        return msgspec.structs.replace(facts, problem=problem)

    monkeypatch.setattr(FakeLane, "start", changed)
    with pytest.raises(ProblemError, match="has changed since the run started"):
        await Run(spec(iterations=2, continue_run=True)).go()
    assert journal("fake-1")[-1].seq == len(journal("fake-1"))
    assert isinstance(journal("fake-1")[-1], e.RunStopped)


async def test_measured_and_modelled_times_do_not_mix() -> None:
    await Run(spec(iterations=1)).go()
    with pytest.raises(EnvironmentFailure, match=r"measured .* modelled"):
        await Run(spec(iterations=2, continue_run=True), script=Script(timing="modelled")).go()
