"""When a benchmark begins no more kernels and stops the run under way: its minutes are over, or nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator

from kbtui import clock

LOOK_S = 0.25


class Limit:
    """`minutes` from now; None is no limit, 0 lets nothing begin. `parent` is the process that this one works for."""

    def __init__(self, minutes: float | None = None, parent: int | None = None) -> None:
        self._end = None if minutes is None else clock.monotonic() + 60 * minutes
        self._parent = parent

    @property
    def over(self) -> str:
        """Why it is time to stop, "" while it is not."""
        if self._end is not None and clock.monotonic() >= self._end:
            return "the time was over"
        if self._parent is not None and os.getppid() != self._parent:
            return "the process that shares the kernels out is gone"
        return ""

    def watch(self, stop: Callable[[], None]) -> None:
        """Call `stop` once, in the running event loop, when it is time."""
        loop = asyncio.get_running_loop()

        def look() -> None:
            if self.over:
                stop()
            else:
                loop.call_later(LOOK_S, look)

        look()

    @contextlib.contextmanager
    def watching(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block, call `stop` once, from a thread, when it is time: for work that blocks."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(LOOK_S):
                if self.over:
                    stop()
                    return

        thread = threading.Thread(target=look, name="limit", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
