"""The zygotes that compile. They need no device, so they work beside whatever a lane verifies or times."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import wire
from kbtui.evaluate.job import Answer, Job, JobOrder, Outcome, Responder
from kbtui.evaluate.lane import Report
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.zygotes import Zygote


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

    def run(self, order: JobOrder, probe: JobOrder, respond: Responder, report: Report) -> Outcome:
        """Compile, waiting for a free zygote. One that died is started again; a job that ends it twice is a crash.

        `probe` is a job that does nothing: raises EnvironmentFailure when not even that one survives.
        """
        respond = _describing(respond)
        with self._lent(order.source) as zygote:
            for _ in range(2):
                try:
                    return zygote.run(order, respond, report)
                except ProcessGone:
                    zygote.launch()
                    zygote.await_ready()
            try:
                zygote.run(probe, respond)
            except ProcessGone as gone:
                raise EnvironmentFailure(f"the {zygote.role} died three times: {gone}") from gone
            return Outcome(kind="crash", stage=order.kind, reason="the process that forks died twice while it ran")

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


def _describing(respond: Responder) -> Responder:
    """`respond`, for descriptions of inputs only: whatever else a compile job asked for could take from the oracle what
    another job is working with."""

    def answer(job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]) -> Answer | None:
        if not isinstance(message, wire.Ask) or message.what != "describe":
            raise wire.Malformed("its process asks for more than descriptions while it compiles")
        return respond(job, message, descriptors)

    return answer
