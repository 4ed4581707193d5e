"""A lane in threads of its own, so that the event loop stays free while it works."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kbtui.errors import EnvironmentFailure, KbtuiError
from kbtui.evaluate.lane import Lane, LaneFacts, LaneSpec, Report
from kbtui.state.records import Compilation

T = TypeVar("T")
LaneMaker = Callable[[LaneSpec], Lane]
_CANCEL_EVERY_S = 0.2


class LaneLost(KbtuiError):
    """The lane failed and could not be started again: the run cannot go on."""


class LaneThread:
    """Runs a lane's blocking methods: `spec.compilers` compile jobs beside one another, everything else one at a time in
    one thread. Cancelling the coroutine that waits for a job ends the job."""

    def __init__(self, make: LaneMaker, spec: LaneSpec) -> None:
        self._make, self._spec = make, spec
        self._lane: Lane | None = None
        self._gpu = ""
        self._main = _Worker("lane")
        self._compilers = [_Worker(f"compiler {number}") for number in range(1, spec.compilers + 1)]
        self._ending: dict[str | None, asyncio.Task[None]] = {}
        self._mending = asyncio.Lock()
        self._broken = False

    async def start(self) -> LaneFacts:
        """Make and start the lane. Raises EnvironmentFailure or ProblemError."""
        return await asyncio.wrap_future(self._main.put(self._start))

    async def call(self, job: Callable[[Lane], T], source: str | None = None) -> T:
        """Run `job`, which evaluates `source` (None: no one source), with the lane. One that failed before is started anew
        first.

        Raises EnvironmentFailure when the machine fails during the job, LaneLost when the lane does not start again.
        """
        return await self._run(self._main, job, source)

    async def compile(self, source: str, report: Report) -> Compilation:
        """Compile beside what the lane does. Raises as `call` does."""
        free = min(self._compilers, key=lambda worker: len(worker.jobs))
        return await self._run(free, lambda lane: lane.compile(source, report), source)

    async def cancel(self) -> None:
        """Have all jobs cancelled and wait until the threads are free; their results are nobody's any more."""
        await self._end(None, *(job for worker in self._workers for job in worker.jobs))

    async def release(self) -> None:
        """End the lane's processes; the next job starts it anew. Waits for what runs to end."""
        self._broken = True
        async with self._mending:
            await self.cancel()
            await asyncio.wrap_future(self._main.put(self._close))

    async def close(self, grace_s: float = 20.0) -> None:
        """End the lane and its threads. May be called twice. A lane that does not let go in `grace_s` is left behind."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self.cancel()
                await asyncio.wrap_future(self._main.put(self._close))
        for worker in self._workers:
            worker.close()

    @property
    def _workers(self) -> list[_Worker]:
        return [self._main, *self._compilers]

    async def _run(self, worker: _Worker, job: Callable[[Lane], T], source: str | None) -> T:
        if ending := self._ending.get(source):
            await asyncio.shield(ending)  # else the cancel that is meant for its last job would hit this one
        await self._mended()
        promise = worker.put(lambda: self._guarded(job))
        try:
            return await asyncio.wrap_future(promise)
        except asyncio.CancelledError:
            if not promise.done():
                task = self._ending[source] = asyncio.ensure_future(self._end(source, promise))
                task.add_done_callback(lambda _: self._ending.pop(source, None))
            raise

    async def _end(self, source: str | None, *jobs: Future[Any]) -> None:
        while not all(job.done() for job in jobs):
            if self._lane is not None:
                # Again and again: a cancel that comes just before the lane starts its process finds nothing to kill.
                self._lane.cancel(source)
            await asyncio.sleep(_CANCEL_EVERY_S)

    async def _mended(self) -> None:
        """Start a lane anew that failed, once nothing works with it any more."""
        if not self._broken:
            return
        async with self._mending:
            if self._broken:
                await self.cancel()
                await asyncio.wrap_future(self._main.put(self._restart))

    # in the threads

    def _start(self) -> LaneFacts:
        self._lane = self._make(self._spec)
        try:
            facts = self._lane.start()
            if self._gpu not in ("", facts.device.uuid):
                # Only a cluster does that. Its ratios would be to a baseline that was timed on the other.
                self._close()
                raise EnvironmentFailure(f"it was given {facts.device.uuid} where it had {self._gpu} before")
        except EnvironmentFailure:
            self._broken = True
            raise
        self._gpu = facts.device.uuid
        return facts

    def _guarded(self, job: Callable[[Lane], T]) -> T:
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


class _Worker:
    """One thread that does jobs in order; a daemon, so a job that hangs cannot keep the process from ending."""

    def __init__(self, name: str) -> None:
        self._jobs: set[Future[Any]] = set()
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def jobs(self) -> tuple[Future[Any], ...]:
        """Those that are not done."""
        return tuple(self._jobs)

    def put(self, function: Callable[[], T]) -> Future[T]:
        promise: Future[T] = Future()

        def job() -> None:
            if not promise.set_running_or_notify_cancel():
                return
            try:
                promise.set_result(function())
            except BaseException as error:  # noqa: BLE001  (whatever it is belongs to the coroutine that waits)
                promise.set_exception(error)

        self._jobs.add(promise)
        promise.add_done_callback(self._jobs.discard)
        self._queue.put(job)
        return promise

    def close(self) -> None:
        """End the thread after the jobs that it has."""
        self._queue.put(None)

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job()
