"""The zygotes that compile. They need no device, so they work beside whatever a lane verifies or times."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import wire
from kbtui.evaluate.job import Answer, Job, JobOrder, Outcome, Responder, close_all
from kbtui.evaluate.lane import Report
from kbtui.evaluate.process import GRACE_S, ProcessGone
from kbtui.evaluate.zygotes import Zygote

MOST_WARMING = 8
"""Processes that compile the cases of one candidate, at most half of the processors over all lanes of the run."""
WARM_DEADLINE_S = 20.0


def warming(order: JobOrder, calls: Sequence[Any], lanes: int) -> list[JobOrder]:
    """Jobs that compile what these calls launch, shared out over some of the processors, into the cache of `order`: what needs it
    finds it there, and would compile one after the other. They begin at the last call, since a job beside them begins at the
    first. `lanes` are those of the run."""
    share = min(MOST_WARMING, len(os.sched_getaffinity(0)) // (2 * lanes))
    if len(calls) < 2:
        return []
    job = msgspec.structs.replace(order, kind="warm", deadline_s=WARM_DEADLINE_S)
    parts = [part for at in range(share) if (part := list(calls[::-1][at::share]))]
    return [msgspec.structs.replace(job, parameters={**order.parameters, "calls": part}) for part in parts]


class Compilers:
    """`count` zygotes; each compiles one source at a time. `run` may be called from as many threads at once, `cancel` from
    any."""

    def __init__(self, count: int, python: str, folder: Path) -> None:
        self._zygotes = [Zygote("compile", python, folder / f"compile{number}") for number in range(count)]
        self._idle: queue.SimpleQueue[Zygote] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._at_work: dict[Zygote, str] = {}
        for zygote in self._zygotes:
            self._idle.put(zygote)

    def launch(self) -> None:
        """Start all without waiting for them. Raises EnvironmentFailure."""
        for zygote in self._zygotes:
            zygote.launch()

    def await_ready(self) -> None:
        """Wait until all can fork. Raises EnvironmentFailure."""
        for zygote in self._zygotes:
            zygote.await_ready()

    def run(
        self,
        order: JobOrder,
        probe: JobOrder,
        respond: Responder,
        report: Report,
        beside: Sequence[JobOrder] = (),
        *,
        wait: bool = True,
    ) -> Outcome:
        """Compile, waiting for a free zygote. One that died is started again; a job that ends it twice is a crash.

        `beside` are jobs as for `warm`, of the same source, that run at the same time; when the first is done they are waited
        for, or ended with `wait` False, where nothing else will need what they make.
        `probe` is a job that does nothing: raises EnvironmentFailure when not even that one survives.
        """
        respond = _describing(respond)
        with self._lent(order.source) as zygote:
            for orders in (beside, ()):
                try:
                    with _beside(zygote, orders) as jobs:
                        outcome = zygote.run(order, respond, report)
                        if wait and outcome.kind == "done" and not _all_ended(zygote, jobs):
                            return Outcome(kind="cancelled", reason="cancelled")
                        return outcome
                except ProcessGone:
                    zygote.launch()
                    zygote.await_ready()
            try:
                zygote.run(probe, respond)
            except ProcessGone as gone:
                raise EnvironmentFailure(f"the {zygote.role} died three times: {gone}") from gone
            return Outcome(kind="crash", stage=order.kind, reason="the process that forks died twice while it ran")

    def warm(self, orders: Sequence[JobOrder]) -> bool:
        """Run jobs of one source that ask nothing beside one another; whether to go on, or `cancel` came for it.

        They only save time: what ends badly is left to the job that needs what it would have made. One by itself saves none.
        """
        if len(orders) < 2:
            return True
        with self._lent(orders[0].source) as zygote:
            try:
                with _beside(zygote, orders) as jobs:
                    return _all_ended(zygote, jobs)
            except ProcessGone:
                zygote.launch()
                zygote.await_ready()
                return True

    def cancel(self, source: str | None) -> None:
        """End the jobs that compile `source`, or all with None."""
        with self._lock:
            for zygote, at_work in self._at_work.items():
                if source in (None, at_work):
                    zygote.cancel()

    @property
    def pids(self) -> list[int]:
        """The zygotes' processes, those that live."""
        return [zygote.pid for zygote in self._zygotes if zygote.pid is not None]

    def release(self) -> None:
        """End all, for good. Never raises."""
        for zygote in self._zygotes:
            zygote.release()

    @contextmanager
    def _lent(self, source: str) -> Iterator[Zygote]:
        zygote = self._idle.get()
        with self._lock:
            self._at_work[zygote] = source
        try:
            yield zygote
        finally:
            with self._lock:
                del self._at_work[zygote]
            self._idle.put(zygote)


@contextmanager
def _beside(zygote: Zygote, orders: Sequence[JobOrder]) -> Iterator[list[Job]]:
    """The jobs, started; those that still run are ended with the block. Raises ProcessGone."""
    jobs: list[Job] = []
    try:
        for order in orders:
            jobs.append(zygote.start(order))  # noqa: PERF401  those before one that fails have to be ended
        yield jobs
    finally:
        for job in jobs:
            if job.ended is None:
                with contextlib.suppress(ProcessGone):
                    job.kill()
                    _wait_for(zygote, job)
            zygote.forget(job)


def _all_ended(zygote: Zygote, jobs: Sequence[Job]) -> bool:
    """Wait for the jobs; False as soon as they are cancelled. Raises ProcessGone."""
    for job in jobs:
        _wait_for(zygote, job)
        if zygote.take_cancelled():
            return False
    return True


def _wait_for(zygote: Zygote, job: Job) -> None:
    """Until the job has ended. One that asks something is killed. Raises ProcessGone."""
    ends = clock.monotonic() + job.order.deadline_s + GRACE_S
    while job.ended is None:
        for message, descriptors in zygote.step(job, ends - clock.monotonic()):
            close_all(descriptors)
            if isinstance(message, wire.Ask | wire.Outputs | wire.Skipped):
                job.kill()


def _describing(respond: Responder) -> Responder:
    """`respond`, for descriptions of inputs only: whatever else a compile job asked for could take from the oracle what
    another job is working with."""

    def answer(job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]) -> Answer | None:
        if not isinstance(message, wire.Ask) or message.what != "describe":
            raise wire.Malformed("its process asks for more than descriptions while it compiles")
        return respond(job, message, descriptors)

    return answer
