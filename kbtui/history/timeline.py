"""A recorded run that can be looked at as of any of its events: the state is the fold of the journal up to there.

Going on folds the events in between. Going back takes the nearest copy of the state before the place and folds from
there; copies are made on the way, every `EVERY` events, so that no step folds more than that.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kbtui.errors import JournalError
from kbtui.history.journal import read_journal
from kbtui.state import events as e
from kbtui.state.copying import copy_state
from kbtui.state.run_state import RunState

EVERY = 8192
"""Events between two kept states: a fold of that many takes some 20 ms, and ten kept states fit in some 20 MB."""


class Timeline:
    """The events of a run and the state after the first `at` of them.

    `state` belongs to the timeline: read it, and read it anew after every move. Places are counted in events, 0 is before
    the first.
    """

    def __init__(self, events: Sequence[e.Event], *, every: int = EVERY) -> None:
        """Raises KeyError when an event speaks of a candidate that no event made."""
        self.events = events
        self.at = 0
        self.state = RunState()
        self._every = every
        self._kept: dict[int, RunState] = {0: RunState()}
        self.ends: list[int] = []
        """Places right after the event that ended each pull, in order."""
        self._clock: list[float] = []
        for place, event in enumerate(events, 1):
            if isinstance(event, e.Rewarded | e.PullDropped):
                self.ends.append(place)
            # The run's clock starts anew nowhere, but a damaged or foreign journal may say so: search needs order.
            self._clock.append(max(event.elapsed, self._clock[-1] if self._clock else 0.0))
        self.go(len(events))

    def __len__(self) -> int:
        return len(self.events)

    @property
    def elapsed(self) -> float:
        """The run's clock at this place, in seconds."""
        return self._clock[self.at - 1] if self.at else 0.0

    @property
    def length_s(self) -> float:
        """The run's clock at its last event."""
        return self._clock[-1] if self._clock else 0.0

    def go(self, place: int) -> None:
        """Be after the first `place` events (clipped to what there is)."""
        place = max(0, min(place, len(self.events)))
        with _no_collections():
            self._go(place)

    def _go(self, place: int) -> None:
        nearest = max(kept for kept in self._kept if kept <= place)
        if place < self.at or nearest > self.at:
            self.at, self.state = nearest, copy_state(self._kept[nearest])
        while self.at < place:
            stop = min(place, (self.at // self._every + 1) * self._every)
            self.state.apply_all(self.events[self.at : stop])
            self.at = stop
            if self.at % self._every == 0 and self.at not in self._kept:
                self._kept[self.at] = copy_state(self.state)

    def pulls_before(self) -> int:
        """How many pulls have ended at this place."""
        return bisect_right(self.ends, self.at)

    def place_of_pull(self, count: int) -> int:
        """The place after `count` ended pulls; 0 for none, the end for more than there are."""
        if count <= 0:
            return 0
        return self.ends[count - 1] if count <= len(self.ends) else len(self.events)

    def next_pull(self) -> int:
        """The place after the next pull to end."""
        return self.place_of_pull(self.pulls_before() + 1)

    def previous_pull(self) -> int:
        """The place after the pull that ended before this place, or the beginning."""
        return self.place_of_pull(bisect_left(self.ends, self.at))

    def place_at(self, elapsed: float) -> int:
        """The place after all events up to `elapsed` seconds of the run's clock."""
        return bisect_right(self._clock, elapsed)

    def after_gap(self) -> float:
        """The run's clock at the next event; the end's when there is none."""
        return self._clock[self.at] if self.at < len(self.events) else self.length_s


def open_timeline(path: Path) -> Timeline:
    """The timeline of a journal. Raises JournalError when it cannot be read or its events are no run."""
    try:
        with _no_collections():
            timeline = Timeline(read_journal(path))
    except KeyError as error:
        raise JournalError(
            f"{path}: an event speaks of candidate {error}, which no event made; the file was damaged"
        ) from error
    # A long run is a million objects that hold no cycles: left to the collector, it would walk them all now and then,
    # a stall of 0.3 s for 100,000 events. Reference counts free them all the same.
    gc.freeze()
    return timeline


@contextmanager
def _no_collections() -> Iterator[None]:
    """Keep the cyclic collector from walking what is just being made, which costs three times the making."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
