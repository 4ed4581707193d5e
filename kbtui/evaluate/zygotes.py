"""A zygote seen from the run process: jobs are started, pumped and ended. Only `cancel` may be called from another thread."""

from __future__ import annotations

import contextlib
import os
import select
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import wire
from kbtui.evaluate.inlane.frames import FrameError, PeerGone
from kbtui.evaluate.job import Job, JobOrder, Outcome, Responder, close_all
from kbtui.evaluate.process import GRACE_S, LaneProcess, ProcessGone

MOST_FORKED = 64


class Zygote(LaneProcess):
    """A zygote of one role ("interpret", "compile" or "device") and the jobs it forks."""

    def __init__(self, role: str, python: str, folder: Path) -> None:
        super().__init__(role, python, folder)
        self._jobs: dict[int, Job] = {}
        self._number = 0
        self.forked: deque[int] = deque(maxlen=MOST_FORKED)
        """Processes of the last jobs, those that are gone included."""
        self._cancelled = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def await_ready(self) -> wire.ZygoteReady:
        """Wait until it forks. Raises EnvironmentFailure."""
        return msgspec.convert(self.ready(), wire.ZygoteReady)

    def start(self, order: JobOrder) -> Job:
        """Fork a process for a job. Raises ProcessGone; EnvironmentFailure when the disk is full."""
        self._number += 1
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"job{self._number}-", dir=self._folder))
            (folder / "kernel.py").write_text(order.source, "utf-8", errors="surrogateescape")
        except OSError as error:
            raise EnvironmentFailure(
                f"a job's folder cannot be made in {self._folder} ({error.strerror}): free some space"
            ) from error
        job = Job(self._number, order, folder, self._kill)
        theirs, writing = job.open()
        try:
            self.send({"job": self._order_message(job)}, (theirs.fileno(), writing))
        except BaseException:
            job.close()
            raise
        finally:
            theirs.close()
            os.close(writing)
        self._jobs[job.number] = job
        return job

    def _kill(self, number: int) -> None:
        self.send({"kill": number})

    def _order_message(self, job: Job) -> dict[str, Any]:
        order = job.order
        return {
            "number": job.number,
            "kind": order.kind,
            "entry": order.entry,
            "folder": str(job.folder),
            "problem_folder": str(order.problem_folder),
            "parameters": dict(order.parameters),
            "device": order.device,
            "deadline_s": order.deadline_s,
            "memory_bytes": order.memory_bytes,
            "disk_bytes": order.disk_bytes,
            "readable": list(order.readable),
            "cache": str(order.cache) if order.cache is not None else "",
        }

    def run(self, order: JobOrder, respond: Responder, report: Callable[[str, str], None] | None = None) -> Outcome:
        """Run one job to its end. `respond` answers what it asks; returning None from it stops the job. Raises ProcessGone."""
        job = self.start(order)
        try:
            ends = clock.monotonic() + order.deadline_s + GRACE_S
            while job.ended is None:
                for message, descriptors in self.step(job, ends - clock.monotonic()):
                    try:
                        self._handle(job, message, descriptors, respond, report)
                    finally:
                        close_all(descriptors)
            return job.outcome(self.take_cancelled())
        finally:
            self.forget(job)

    def _handle(
        self,
        job: Job,
        message: wire.CandidateMessage,
        descriptors: list[int],
        respond: Responder,
        report: Callable[[str, str], None] | None,
    ) -> None:
        if job.malformed or job.stopped:
            return
        if isinstance(message, wire.Say):
            job.stage = message.stage
            if report is not None and message.text:  # without a text it only says where the process is
                report(message.stage, message.text)
        elif isinstance(message, wire.Done | wire.Fault):
            job.final = message
        else:
            self._respond(job, message, descriptors, respond)

    def _respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int], respond: Responder
    ) -> None:
        try:
            answer = respond(job, message, descriptors)
        except wire.Malformed as error:
            job.malformed = str(error)
            job.kill()
            return
        if answer is None:
            job.stopped = True
            job.kill()
            return
        try:
            job.answer(*answer)
        finally:
            close_all(answer[1])

    def step(self, job: Job, patience_s: float) -> list[tuple[wire.CandidateMessage, list[int]]]:
        """Wait for something to happen and return the job's messages, whose descriptors are the caller's.

        Raises ProcessGone when nothing at all happens for `patience_s`: the zygote would have ended the job by then.
        """
        if patience_s <= 0:
            raise ProcessGone(f"the {self.role} did not end a job after its deadline")
        poll = select.poll()
        # an end that the process closed would be ready for ever
        open_ends = [*(() if job.mute else (job.output,)), *(() if job.silent else (job.channel.fileno(),))]
        for descriptor in (self.socket.fileno(), self._wake, *open_ends):
            poll.register(descriptor, select.POLLIN)
        ready = dict(poll.poll(patience_s * 1000))
        if not ready:
            raise ProcessGone(f"the {self.role} did not end a job after its deadline")
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
            job.kill()
        if job.output in ready:
            job.read_output()
        found: list[tuple[wire.CandidateMessage, list[int]]] = []
        if job.channel.fileno() in ready:
            found = self._listen(job)
        if self.socket.fileno() in ready:
            self._hear()
            if job.ended is not None:
                job.read_output()
                found += self._listen(job)
        return found

    def rest(self, job: Job) -> list[tuple[wire.CandidateMessage, list[int]]]:
        """What a job that ended had still said; its end may have been heard of while another was waited for."""
        job.read_output()
        return self._listen(job)

    def _listen(self, job: Job) -> list[tuple[wire.CandidateMessage, list[int]]]:
        found: list[tuple[wire.CandidateMessage, list[int]]] = []
        try:
            while more := job.messages():
                found += more
        except PeerGone:
            job.silent = True
        return found

    def _hear(self) -> None:
        try:
            frames = self.reader.pump()
        except (PeerGone, FrameError, OSError) as error:
            raise ProcessGone(f"the {self.role} died: {self.last_words() or error}") from error
        for body, descriptors in frames:
            close_all(descriptors)
            message = msgspec.json.decode(body)
            if "started" in message:
                self.forked.append(int(message["started"]["pid"]))
            if "ended" in message:
                ended = msgspec.convert(message["ended"], wire.Ended)
                if ended.number in self._jobs:
                    self._jobs[ended.number].ended = ended

    def forget(self, job: Job) -> None:
        """Remove a job that ended, or whose zygote did."""
        self._jobs.pop(job.number, None)
        job.close()

    def cancel(self) -> None:
        """End the job that runs. May be called from another thread; does nothing when none runs."""
        if self._jobs:
            self._cancelled = True
            os.eventfd_write(self._wake, 1)

    def take_cancelled(self) -> bool:
        """Whether `cancel` was called since the last time this was asked."""
        cancelled, self._cancelled = self._cancelled, False
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        return cancelled

    def close(self) -> None:
        super().close()
        for job in list(self._jobs.values()):
            # its process died with the zygote; who still waits for it must not wait for ever
            job.ended = job.ended or wire.Ended(
                number=job.number, status=None, signal=9, reason="killed", swept=0, peak_bytes=0
            )
            self.forget(job)

    def release(self) -> None:
        """`close`, and never to be used again."""
        self.close()
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1
