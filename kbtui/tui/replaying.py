"""A recorded run in the cockpit's eyes: a session whose state is that of any event of the journal, and that can play."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kbtui import clock
from kbtui.errors import JournalError, KbtuiError
from kbtui.state.events import Event
from kbtui.state.run_state import RunState
from kbtui.tui.feed import RunFeed
from kbtui.tui.session import Session

if TYPE_CHECKING:
    from kbtui.history.timeline import Timeline
    from kbtui.state.commands import AnyCommand, Reply

SPEEDS = (1, 2, 5, 10, 30, 100, 300, 1000)
"""Seconds of the run per second of watching."""
WHOLE_S = 60.0
"""A run is played in about this long unless a person chooses another speed."""
GAP_S = 2.0
"""A stretch in which nothing happened is watched no longer than this."""
REFUSAL = "this is a replay: nothing can be changed in it (attach to the run from home to steer it)"


class ReplayFeed(RunFeed):
    """A feed that never brings anything: the events are in the timeline."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id

    async def start(self) -> None:
        """Nothing is followed."""

    async def poll(self) -> list[Event]:
        return []

    async def send(self, command: AnyCommand) -> Reply:  # noqa: ARG002  (a feed's signature)
        raise KbtuiError(REFUSAL)

    async def close(self) -> None:
        """Nothing is followed."""


class ReplaySession(Session):
    """Begins at the end of the run, which is what one wants to see first; `play` from there begins anew."""

    def __init__(self, run_id: str) -> None:
        super().__init__(ReplayFeed(run_id), read_only=True)
        self.timeline: Timeline | None = None
        self.playing = False
        self.speed = SPEEDS[0]
        self._clock = 0.0
        """The run's clock while playing, in seconds."""
        self._played_at = 0.0

    @property
    def status(self) -> str:
        """As of the event that is shown: running, paused, stopped; or loading, missing."""
        if not self.loaded:
            return "loading"
        if self.state.started is None and not (self.timeline is not None and len(self.timeline)):
            return "missing"
        return {"running": "live"}.get(self.state.status, self.state.status)

    @property
    def why_no_commands(self) -> str:
        return REFUSAL

    def elapsed(self) -> float:
        return self.timeline.elapsed if self.timeline is not None else 0.0

    async def _advance(self) -> bool:
        """Read the journal the first time; then go on as far as time has, while playing."""
        before = self.version
        if self.timeline is None and not self.error:
            await self._open()
        elif self.playing:
            self._play_on()
        return self.version != before

    async def _open(self) -> None:
        from kbtui.history.timeline import open_timeline
        from kbtui.paths import journal_file

        try:
            self.timeline = await asyncio.to_thread(open_timeline, journal_file(self.run_id))
        except JournalError as error:
            self._fail(str(error))
        else:
            wanted = self.timeline.length_s / WHOLE_S
            self.speed = next((speed for speed in SPEEDS if speed >= wanted), SPEEDS[-1])
            self._show()
        self.loaded = True
        self.version += 1

    # ------------------------------------------------------------ moving

    def go(self, place: int) -> None:
        """Show the run after its first `place` events. Playing goes on from there."""
        if self.timeline is None:
            return
        self.timeline.go(place)
        self._clock, self._played_at = self.timeline.elapsed, clock.monotonic()
        self._show()

    def _show(self) -> None:
        assert self.timeline is not None
        self.state: RunState = self.timeline.state
        self.version += 1

    def play(self) -> None:
        """Play or hold. At the end, playing begins anew."""
        if self.timeline is None:
            return
        if not self.playing and self.timeline.at == len(self.timeline):
            self.go(0)
        self.playing = not self.playing
        self._clock, self._played_at = self.timeline.elapsed, clock.monotonic()
        self.version += 1

    def change_speed(self, by: int) -> None:
        """The next speed up (`by` 1) or down (-1)."""
        self.speed = SPEEDS[max(0, min(SPEEDS.index(self.speed) + by, len(SPEEDS) - 1))]
        self.version += 1

    def _play_on(self) -> None:
        assert self.timeline is not None
        now = clock.monotonic()
        self._clock = max(self._clock, self.timeline.after_gap() - GAP_S * self.speed)
        self._clock += (now - self._played_at) * self.speed
        self._played_at = now
        place = self.timeline.place_at(self._clock)
        if place > self.timeline.at:
            self.timeline.go(place)
            self._show()
        if self.timeline.at == len(self.timeline):
            self.playing = False
            self.version += 1
