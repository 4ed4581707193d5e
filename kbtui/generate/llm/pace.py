"""How fast one provider is asked: so many requests at a time, so many a minute, and none before it said to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kbtui import clock

Waiting = Callable[[float, str], None]
"""Told of a wait: for how many seconds, and why."""


class Pace:
    """The requests to one provider. `at_once` bounds those in flight, `per_minute` (0: unbounded) those begun."""

    def __init__(self, at_once: int, per_minute: float) -> None:
        self._slots = asyncio.Semaphore(at_once)
        self._gap_s = 60.0 / per_minute if per_minute else 0.0
        self._next = 0.0
        self._held_until = 0.0
        self.in_flight = 0

    @asynccontextmanager
    async def turn(self, waiting: Waiting) -> AsyncIterator[None]:
        """Wait for a turn, and hold it during the block."""
        async with self._slots:
            await self._wait(waiting)
            self.in_flight += 1
            try:
                yield
            finally:
                self.in_flight -= 1

    def hold(self, seconds: float) -> None:
        """Begin no request for so long: what one request was told holds for all."""
        self._held_until = max(self._held_until, clock.monotonic() + seconds)

    async def _wait(self, waiting: Waiting) -> None:
        # The turn is taken before the wait, so that those who wait do not all begin at its end.
        begin = max(self._next, clock.monotonic())
        self._next = begin + self._gap_s
        while (left := max(begin, self._held_until) - clock.monotonic()) > 0:
            why = "the provider asked to wait" if self._held_until > begin else "the limit of requests a minute"
            waiting(left, why)
            await asyncio.sleep(left)
