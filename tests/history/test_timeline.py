"""A recorded run as of any of its events."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kbtui.errors import JournalError
from kbtui.history.timeline import Timeline, open_timeline
from kbtui.paths import journal_file
from kbtui.state import events as e
from kbtui.state.copying import copy_state
from kbtui.state.run_state import RunState

MakeRun = Callable[..., list[e.Event]]


def numbered(events: list[e.Event]) -> list[e.Event]:
    return [msgspec.structs.replace(event, seq=place) for place, event in enumerate(events, 1)]


def seen(state: RunState) -> dict[str, Any]:
    """Everything a state holds, in a form that compares by value and that later folds do not change."""
    return copy.deepcopy({name: list(v) if name == "log" else v for name, v in vars(state).items()})


def test_every_place_is_the_fold_of_the_events_before_it(make_run: MakeRun) -> None:
    events = numbered(make_run())
    expected = [seen(RunState().apply_all(events[:place])) for place in range(len(events) + 1)]
    timeline = Timeline(events, every=5)
    assert timeline.at == len(events)
    forth = list(range(len(events) + 1))
    jumps = [7, 3, 26, 0, 11, 10, 9, 5, 4, 25]
    for place in [*reversed(forth), *forth, *jumps]:
        timeline.go(place)
        assert timeline.at == place
        assert seen(timeline.state) == expected[place], place


def test_a_copy_shares_nothing_that_the_fold_changes(make_run: MakeRun) -> None:
    events = numbered(make_run())
    for place in range(1, len(events)):
        state = RunState().apply_all(events[:place])
        copied, before = copy_state(state), seen(state)
        copied.apply_all(events[place:])
        assert seen(state) == before, place
        assert seen(copied) == seen(RunState().apply_all(events))


def test_places_are_clipped(make_run: MakeRun) -> None:
    timeline = Timeline(numbered(make_run()))
    timeline.go(-5)
    assert (timeline.at, timeline.elapsed, timeline.state.started) == (0, 0.0, None)
    timeline.go(10_000)
    assert timeline.at == len(timeline)
    assert timeline.elapsed == timeline.length_s == 26.0


def test_steps_by_pull_and_by_clock(make_run: MakeRun) -> None:
    timeline = Timeline(numbered(make_run()))
    assert timeline.pulls_before() == 3
    assert timeline.previous_pull() == timeline.ends[-1] < timeline.at
    timeline.go(timeline.place_of_pull(2))
    assert timeline.pulls_before() == 2
    assert isinstance(timeline.events[timeline.at - 1], e.Rewarded)
    assert timeline.previous_pull() == timeline.ends[0]
    assert timeline.next_pull() == timeline.ends[2]
    timeline.go(timeline.at + 1)
    assert timeline.previous_pull() == timeline.ends[1], "back to the end of the pull one is behind"
    timeline.go(timeline.place_of_pull(0))
    assert (timeline.at, timeline.previous_pull()) == (0, 0)
    assert timeline.place_of_pull(99) == len(timeline)
    assert timeline.place_at(-1.0) == 0
    assert timeline.place_at(3.0) == 4
    assert timeline.place_at(1e9) == len(timeline)
    assert timeline.after_gap() == 0.0


def test_a_clock_that_went_back_keeps_its_order(make_run: MakeRun) -> None:
    events = numbered(make_run())
    events[5] = msgspec.structs.replace(events[5], elapsed=1.0)
    timeline = Timeline(events)
    timeline.go(6)
    assert timeline.elapsed == 4.0
    assert timeline.place_at(4.0) == 6


def test_a_journal_that_is_no_run_is_named(
    make_run: MakeRun, write_journal: Callable[[str, list[e.Event]], None], tmp_path: Path
) -> None:
    write_journal("a", make_run("a"))
    assert len(open_timeline(journal_file("a"))) == 27
    write_journal("b", [*make_run("b")[:1], e.MovesFound(candidate_id=9, moves={})])
    with pytest.raises(JournalError, match="candidate 9, which no event made"):
        open_timeline(journal_file("b"))
    assert len(open_timeline(tmp_path / "none.jsonl")) == 0
