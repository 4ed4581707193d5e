"""A lane in a thread of its own, so that the event loop stays free while it works."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kbtui.errors import EnvironmentFailure, KbtuiError
from kbtui.evaluate.lane import Lane, LaneFacts, LaneSpec

T = TypeVar("T")
LaneMaker = Callable[[LaneSpec], Lane]
_CANCEL_EVERY_S = 0.2


class LaneLost(KbtuiError):
    """The lane failed and could not be started again: the run cannot go on."""


class LaneThread:
    """Runs a lane's blocking methods one at a time, all in one thread; a daemon, so a lane that hangs cannot keep the
    process from ending."""

    def __init__(self, make: LaneMaker, spec: LaneSpec) -> None:
        self._make, self._spec = make, spec
        self._lane: Lane | None = None
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._last: Future[Any] | None = None
        self._broken = False
        self._thread = threading.Thread(target=self._work, name="lane", daemon=True)
        self._thread.start()

    async def start(self) -> LaneFacts:
        """Make and start the lane. Raises EnvironmentFailure or ProblemError."""
        return await self._in_thread(self._start)

    async def call(self, job: Callable[[Lane], T]) -> T:
        """Run `job` with the lane. A lane that failed before is started anew first.

        Raises EnvironmentFailure when the machine fails during the job, LaneLost when the lane does not start again.
        """
        return await self._in_thread(lambda: self._run(job))

    async def cancel(self) -> None:
        """Have the job in progress cancelled and wait until the thread is free; its result is nobody's any more."""
        while self._last is not None and not self._last.done():
            if self._lane is not None:
                # Again and again: a cancel that comes just before the lane starts its process finds nothing to kill.
                self._lane.cancel()
            await asyncio.sleep(_CANCEL_EVERY_S)

    async def close(self, grace_s: float = 20.0) -> None:
        """End the lane and the thread. May be called twice. A lane that does not let go in `grace_s` is left behind."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.cancel()
                await self._in_thread(self._close)
        self._jobs.put(None)

    def _start(self) -> LaneFacts:
        self._lane = self._make(self._spec)
        return self._lane.start()

    def _run(self, job: Callable[[Lane], T]) -> T:
        if self._broken:
            self._restart()
        assert self._lane is not None, "start the lane first"
        try:
            return job(self._lane)
        except EnvironmentFailure:
            self._broken = True
            raise

    def _restart(self) -> None:
        self._close()
        try:
            self._start()
        except KbtuiError as error:
            raise LaneLost(f"the lane {self._spec.device} does not start again: {error}") from error
        self._broken = False

    def _close(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    async def _in_thread(self, function: Callable[[], T]) -> T:
        promise: Future[T] = Future()

        def job() -> None:
            if not promise.set_running_or_notify_cancel():
                return
            try:
                promise.set_result(function())
            except BaseException as error:  # noqa: BLE001  (whatever it is belongs to the coroutine that waits)
                promise.set_exception(error)

        self._last = promise
        self._jobs.put(job)
        return await asyncio.wrap_future(promise)
