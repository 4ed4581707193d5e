"""Lane processes seen from the run process: a zygote with its jobs, and the oracle.

Every wait has an end: a peer that stops answering costs its own deadline and a little more. Only `Zygote.cancel` may be
called from another thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import isolation, wire
from kbtui.evaluate.inlane import bootstrap
from kbtui.evaluate.inlane.frames import FrameError, FrameReader, PeerGone, send_frame

START_S = 120.0
"""Importing torch from a cold network disk takes a minute; longer than this is broken."""
GRACE_S = 5.0
"""What a zygote may take beyond a job's deadline before it is given up."""
OUTPUT_BYTES = 1 << 16
Answer = tuple[dict[str, Any], Sequence[int]]
Responder = Callable[["Job", wire.Ask | wire.Outputs | wire.Skipped, list[int]], Answer | None]
"""Answers what a job asks; None ends the job. Descriptors are closed by the caller of the responder, also those answered."""


class ProcessGone(Exception):
    """A lane process died or stopped answering. The lane starts another one, once."""


class LaneProcess:
    """One long-lived process under `python`, started with a socket pair. Closed by `close`, which may be called twice."""

    def __init__(self, role: str, python: str, folder: Path) -> None:
        self.role = role
        self._python = python
        self._folder = folder
        self._log = folder / f"{role}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start the process without waiting for it. Raises EnvironmentFailure when there is no such interpreter."""
        self.close()
        self._folder.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = [find_python(self._python), "-I", "-B", str(Path(bootstrap.__file__)), self.role, str(theirs.fileno())]
        try:
            with theirs, self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    command,
                    pass_fds=(theirs.fileno(),),
                    env=isolation.lane_environment(self.role, self._folder),
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise EnvironmentFailure(
                f"{self._python} cannot be started ({error.strerror}): give --python the path of an interpreter that has torch"
            ) from error
        self.socket = ours
        self.reader = FrameReader(ours)

    def ready(self) -> dict[str, Any]:
        """Wait for the process's first words. Raises EnvironmentFailure with what it lacks."""
        try:
            message = self.receive(START_S)
        except ProcessGone as gone:
            raise EnvironmentFailure(f"the {self.role} under {self._python} did not start: {self.last_words()}") from gone
        if "unusable" in message:
            raise EnvironmentFailure(_lacking(self._python, str(message["unusable"])))
        if "ready" not in message:
            raise EnvironmentFailure(
                f"the {self.role} has {message.get('threads')} threads after its imports and cannot fork safely: "
                f"find the package that starts threads at import (usercustomize, .pth files) and disable it for {self._python}"
            )
        ready: dict[str, Any] = message["ready"]
        return ready

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """The next message, without its descriptors. Raises ProcessGone."""
        message, descriptors = self.receive_with_descriptors(timeout_s)
        for descriptor in descriptors:
            os.close(descriptor)
        return message

    def receive_with_descriptors(self, timeout_s: float) -> tuple[dict[str, Any], list[int]]:
        """The next message; the descriptors are the caller's. Raises ProcessGone."""
        self.socket.settimeout(timeout_s)
        try:
            return self.reader.next()
        except (PeerGone, FrameError, TimeoutError, ValueError, OSError) as error:
            raise ProcessGone(f"the {self.role} is gone: {self.last_words() or error}") from error
        finally:
            if self.socket.fileno() >= 0:
                self.socket.settimeout(GRACE_S)

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Raises ProcessGone, or FrameError for a message of ours that is too large."""
        try:
            send_frame(self.socket, message, descriptors)
        except (PeerGone, OSError) as error:
            raise ProcessGone(f"the {self.role} is gone: {self.last_words() or error}") from error

    def last_words(self) -> str:
        """The last line the process wrote to its log, "" if none."""
        try:
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1][:500] if lines else ""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End the process and what it started. A zygote ends its jobs when its socket closes; if it does not, it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.reader.close_descriptors()
        self.socket.close()
        try:
            process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            for pid in _descendants(process.pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            process.kill()
            process.wait()


def find_python(python: str) -> str:
    """The interpreter's path. Raises EnvironmentFailure when it does not exist."""
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise EnvironmentFailure(f"there is no interpreter {python}: give --python the path of one that has torch and triton")
    return found


def _lacking(python: str, lacks: str) -> str:
    if lacks.startswith("Python"):
        return f"lanes need {lacks}: give --python the path of a newer interpreter that has torch and triton"
    return (
        f'{python} has no {lacks}: install it there (pip install "kbtui[torch]"), '
        f"or give --python the path of an interpreter that has torch and triton"
    )


def _descendants(pid: int) -> list[int]:
    found, todo = [], [pid]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            todo.extend(map(int, children))
            found.extend(map(int, children))
    return found


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended.

    `kind`: "done" (`value` is what it returned), "fault" (`fault`), "crash" (the process died or left without a word),
    "hang" (deadline), "memory", "malformed" (it broke the protocol), "stopped" (our responder ended it) or "cancelled".
    `stage` is the last one that it named, `reason` a sentence, `output` the end of what it printed.
    """

    kind: str
    stage: str = ""
    reason: str = ""
    value: dict[str, Any] = {}
    fault: wire.Fault | None = None
    output: str = ""
    seconds: float = 0.0
    swept: int = 0
    peak_bytes: int = 0
    signal: int | None = None
    status: int | None = None


class JobOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One job: `source` is the candidate's, `parameters` the job's own, `readable` what it may read besides Python."""

    kind: str
    source: str
    entry: str
    problem_folder: Path
    parameters: Mapping[str, Any]
    device: str = "cpu"
    deadline_s: float = 60.0
    memory_bytes: int = 4 << 30
    readable: tuple[str, ...] = ()


class Job:
    """A job that runs in a process of its own. Used by `Zygote`, and by callers that let several jobs take turns."""

    def __init__(self, zygote: Zygote, number: int, order: JobOrder, folder: Path) -> None:
        self.number = number
        self.order = order
        self.folder = folder
        self.stage = "start"
        self.ended: wire.Ended | None = None
        self.final: wire.Done | wire.Fault | None = None
        self.malformed = ""
        self.stopped = False
        self.silent = False
        self.mute = False
        self._zygote = zygote
        self._began = clock.monotonic()
        self._output = bytearray()

    def open(self) -> tuple[socket.socket, int]:
        """Make the channel and the pipe for output; the returned ends are the process's."""
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.channel.setblocking(False)
        self.reader = FrameReader(self.channel)
        self.output, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(writing, True)
        return theirs, writing

    def read_output(self) -> None:
        """Take what the process printed: the first part is kept, the rest thrown away, so that it never blocks on a full pipe."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.output, 1 << 16):
                self._output += data[: max(OUTPUT_BYTES - len(self._output), 0)]
            self.mute = True

    def answer(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        """Answer a question. A process that does not read its answers is ended."""
        self.channel.settimeout(GRACE_S)
        try:
            send_frame(self.channel, message, descriptors)
        except (PeerGone, OSError):
            self.kill()
        finally:
            self.channel.setblocking(False)

    def kill(self) -> None:
        """End the process; the outcome follows when the zygote reports it."""
        self._zygote.send({"kill": self.number})

    def outcome(self, cancelled: bool) -> Outcome:
        """What all of it means, after the process ended."""
        ended = self.ended
        assert ended is not None
        shared = {
            "stage": self.stage,
            "output": self._output.decode("utf-8", "replace"),
            "seconds": clock.monotonic() - self._began,
            "swept": ended.swept,
            "peak_bytes": ended.peak_bytes,
            "signal": ended.signal,
            "status": ended.status,
        }
        if cancelled:
            return Outcome(kind="cancelled", reason="cancelled", **shared)
        if self.malformed:
            return Outcome(kind="malformed", reason=self.malformed, **shared)
        if self.stopped:
            return Outcome(kind="stopped", **shared)
        if ended.reason == "deadline":
            return Outcome(kind="hang", reason=f"it did not finish within {self.order.deadline_s:g} s", **shared)
        if ended.reason == "memory":
            gib = self.order.memory_bytes / (1 << 30)
            return Outcome(kind="memory", reason=f"it used more than {gib:.1f} GiB of memory", **shared)
        if isinstance(self.final, wire.Fault):
            return Outcome(kind="fault", reason=self.final.reason, fault=self.final, **{**shared, "stage": self.final.stage})
        if isinstance(self.final, wire.Done):
            return Outcome(kind="done", value=self.final.value, **shared)
        return Outcome(kind="crash", reason=_death(ended), **shared)

    def messages(self) -> list[tuple[wire.CandidateMessage, list[int]]]:
        """What has arrived. A malformed message is kept in `malformed`, and the process ended."""
        found: list[tuple[wire.CandidateMessage, list[int]]] = []
        try:
            for body, descriptors in self.reader.pump():
                try:
                    found.append((wire.read_message(body), descriptors))
                except wire.Malformed as error:
                    _close(descriptors)
                    raise FrameError(str(error)) from error
        except BlockingIOError:
            pass
        except FrameError as error:
            self.malformed = self.malformed or str(error)
            self.kill()
        return found

    def close(self) -> None:
        """Close both ends and remove the folder, Triton's cache in it included."""
        self.reader.close_descriptors()
        self.channel.close()
        os.close(self.output)
        shutil.rmtree(self.folder, ignore_errors=True)


def _death(ended: wire.Ended) -> str:
    if ended.signal is not None:
        try:
            name = signal.Signals(ended.signal).name
        except ValueError:
            name = f"signal {ended.signal}"
        return f"its process died of {name}"
    return f"its process left with status {ended.status} before it was done"


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


class Zygote(LaneProcess):
    """A zygote of one role ("interpret", "compile" or "device") and the jobs it forks."""

    def __init__(self, role: str, python: str, folder: Path) -> None:
        super().__init__(role, python, folder)
        self._jobs: dict[int, Job] = {}
        self._number = 0
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
            raise EnvironmentFailure(f"a job's folder cannot be made in {self._folder} ({error.strerror}): free some space") from error
        job = Job(self, self._number, order, folder)
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
            "readable": list(order.readable),
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
                        _close(descriptors)
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
            if report is not None:
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
            _close(answer[1])

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
            _close(descriptors)
            message = msgspec.json.decode(body)
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
            self.forget(job)

    def release(self) -> None:
        """`close`, and never to be used again."""
        self.close()
        if self._wake >= 0:
            os.close(self._wake)
            self._wake = -1
