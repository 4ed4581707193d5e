"""Bringing a live run into the history database now and then. The journal is the truth: whatever fails here, the next
command that opens the history makes up for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kbtui import clock
from kbtui.engine.emit import Emitter
from kbtui.errors import KbtuiError
from kbtui.state import events as e

EVERY_PULLS = 10
REST = 19
"""After an ingestion there is none for so many times as long as it took: it has a twentieth of a run's time at most."""
Ingest = Callable[[], int]
"""Brings all journals into the database; returns the number of new events. Blocks."""

_log = logging.getLogger(__name__)


class HistoryFeed:
    """Ingests after every `EVERY_PULLS` ended pulls, in a thread, one at a time; less often where pulls take no time."""

    def __init__(self, ingest: Ingest, emitter: Emitter) -> None:
        self._ingest, self._emitter = ingest, emitter
        self._pulls = 0
        self._rests_until = clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    def hear(self, event: e.Event) -> None:
        """A listener for the run's events."""
        if not isinstance(event, e.Rewarded | e.PullDropped):
            return
        self._pulls += 1
        idle = self._task is None or self._task.done()
        if self._pulls >= EVERY_PULLS and idle and clock.monotonic() >= self._rests_until:
            self._pulls = 0
            self._task = asyncio.get_running_loop().create_task(self._once())

    async def settle(self) -> None:
        """Wait for the ingestion in progress, if there is one; after this the feed may still say something."""
        if self._task is not None:
            await self._task

    async def finish(self) -> None:
        """Ingest the ended run. Its journal is complete, so a failure goes to the process's log."""
        await self.settle()
        try:
            await asyncio.to_thread(self._ingest)
        except KbtuiError as error:
            _log.warning("the run is not in the history yet: %s", error)

    async def _once(self) -> None:
        began = clock.monotonic()
        try:
            await asyncio.to_thread(self._ingest)
        except KbtuiError as error:
            self._emitter.emit(e.Noted(level="warning", source="history", text=f"not brought up to date: {error}"))
        ended = clock.monotonic()
        self._rests_until = ended + REST * (ended - began)
