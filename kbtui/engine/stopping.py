"""Stopping a run while something takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """A person stopped the run while something was being done; what was being done is left undone."""


class StopSignal:
    """Set once, by whoever stops the run."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def unless(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`. When the stop comes first, or came before, cancel it and raise Stopped."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            if self._event.is_set():
                raise Stopped
            return task.result()
        finally:
            for future in (task, stop):
                future.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)
