"""One run as a viewer sees it: its feed, the state folded from it, and what this viewer was told."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections import deque
from typing import TYPE_CHECKING

from kbtui import clock
from kbtui.errors import JournalError, KbtuiError
from kbtui.state.events import Event, GpuSampled
from kbtui.state.run_state import LogLine, RunState
from kbtui.tui.feed import RunFeed

if TYPE_CHECKING:
    from kbtui.state.commands import AnyCommand

SLICE = 1000
"""Events folded at a stretch before the event loop gets its turn."""
HISTORY = 120
"""GPU samples kept for the sparklines."""
REPLIES = 200


class Session:
    """What the screens read. `advance` is called once per tick."""

    def __init__(self, feed: RunFeed, *, read_only: bool, sparklines: bool = True) -> None:
        self.feed = feed
        self.read_only = read_only
        self._sparklines = sparklines
        self.state = RunState()
        self.replies: deque[LogLine] = deque(maxlen=REPLIES)
        """What this viewer's commands were answered, for its own log."""
        self.gpu_history: dict[str, deque[GpuSampled]] = {}
        self.gpu_seen: dict[str, float] = {}
        """Monotonic time of the last sample by device."""
        self.error: str = ""
        """Why the journal can no longer be followed; the state is what was read before."""
        self.loaded = False
        self.advancing = False
        """Whether events are being taken in: the state is in the middle of them."""
        self.marked: int | None = None
        """The candidate that this viewer compares others with."""
        self.version = 0
        """Raised whenever something that a screen may show has changed."""
        self._link = (False, False, "")
        self._failed_at: float = 0.0

    @property
    def run_id(self) -> str:
        return self.feed.run_id

    @property
    def status(self) -> str:
        """live, paused, stopped, stale (a process holds the run and does not answer), crashed (no process), or
        starting, loading, missing."""
        state, feed = self.state, self.feed
        if not self.loaded:
            return "loading"
        if feed.connected:
            return {"running": "live"}.get(state.status, state.status)
        if state.status == "stopped":
            return "stopped"
        if feed.held:
            return "stale"
        return "crashed" if state.started is not None else "missing"

    @property
    def why_no_commands(self) -> str:
        """Why this viewer cannot steer the run; "" when it can."""
        if self.read_only:
            return "read-only: this viewer looks and does not touch (attach without --read-only to steer)"
        if self.feed.connected:
            return ""
        if self.status == "stopped":
            return f"the run has ended: `kbtui run --continue {self.run_id}` goes on with it"
        if self.status == "stale":
            return self.feed.refusal or "the run's process does not answer"
        return f"no process serves this run: `kbtui run --continue {self.run_id}` goes on with it"

    def elapsed(self) -> float:
        """The run's clock in seconds: what the journal says, moved on by this machine's clock while a process
        owns the run: the clock does not stand in a pause."""
        if self.status not in ("live", "paused") or not self.state.last_t:
            return self.state.elapsed
        return self.state.elapsed + max(0.0, clock.wall() - self.state.last_t)

    @property
    def moves(self) -> bool:
        """Whether the clock alone changes what is shown: the run's own, or the age of a GPU sample."""
        return self.status in ("live", "paused") or bool(self.gpu_seen)

    def gpu_age(self, key: str) -> float:
        """Seconds since the last sample of a device."""
        return clock.monotonic() - self.gpu_seen.get(key, clock.monotonic())

    async def advance(self) -> bool:
        """Take in what happened. True when something changed. Does nothing while another call takes it in."""
        if self.advancing:
            return False
        self.advancing = True
        try:
            return await self._advance()
        finally:
            self.advancing = False

    async def _advance(self) -> bool:
        before = self.version
        if not self.error:
            try:
                await self._fold()
            except JournalError as error:
                self._fail(str(error))
            except KeyError as error:
                self._fail(f"the journal speaks of candidate {error}, which no event made: the file was damaged")
        link = (self.feed.connected, self.feed.held, self.feed.refusal)
        if link != self._link or not self.loaded:
            self._link = link
            self.version += 1
        self.loaded = True
        return self.version != before

    async def ask(self, command: AnyCommand) -> tuple[bool, str]:
        """Send a command. Returns whether it was done and the sentence to show, which is in the log already."""
        if self.why_no_commands:
            return False, self.why_no_commands
        try:
            reply = await self.feed.send(command)
        except KbtuiError as error:
            done, text = False, str(error)
        else:
            done, text = reply.ok, reply.text
        self.say(text, "info" if done else "warning")
        return done, text

    def say(self, text: str, level: str = "info") -> None:
        """Put a line into this viewer's own log."""
        self.replies.append(LogLine(clock.wall(), level, text))
        self.version += 1

    async def _fold(self) -> None:
        await self._fold_these(await self.feed.poll())
        while self.feed.behind:
            await self._fold_these(await self.feed.poll())

    async def _fold_these(self, events: list[Event]) -> None:
        for start in range(0, len(events), SLICE):
            for event in events[start : start + SLICE]:
                self.state.apply(event)
                if isinstance(event, GpuSampled):
                    self._remember(event)
            self.version += 1
            if len(events) > SLICE or self.feed.behind:
                await asyncio.sleep(0)

    def _remember(self, sample: GpuSampled) -> None:
        key = sample.uuid or sample.device
        if self._sparklines:
            self.gpu_history.setdefault(key, deque(maxlen=HISTORY)).append(sample)
        self.gpu_seen[key] = clock.monotonic()

    def _fail(self, text: str) -> None:
        self.error = text
        self.say(text, "error")


def who() -> str:
    """This person at this terminal, as commands carry it: user@pts/3."""
    try:
        terminal = os.path.relpath(os.ttyname(0), "/dev")
    except OSError:
        terminal = "tui"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{terminal}"
