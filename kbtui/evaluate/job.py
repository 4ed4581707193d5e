"""One job of a candidate process seen from the run process: its channel, what it printed, and what its end means."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from kbtui import clock
from kbtui.evaluate import wire
from kbtui.evaluate.inlane.frames import FrameError, FrameReader, PeerGone, send_frame
from kbtui.evaluate.process import GRACE_S

OUTPUT_BYTES = 1 << 16
"""Of what a candidate prints, so much is kept."""
Kind = Literal["done", "fault", "crash", "hang", "memory", "disk", "malformed", "stopped", "cancelled"]
Answer = tuple[dict[str, Any], Sequence[int]]
Responder = Callable[["Job", wire.Ask | wire.Outputs | wire.Skipped, list[int]], Answer | None]
"""Answers what a job asks; None ends the job. The caller closes the descriptors that came, and those that are answered."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended.

    `kind`: "done" (`value` is what it returned), "fault" (`fault`), "crash" (the process died or left without a word),
    "hang" (deadline), "memory", "disk", "malformed" (it broke the protocol), "stopped" (our responder ended it) or "cancelled".
    `stage` is the last one that it named, `reason` a sentence, `output` the end of what it printed.
    """

    kind: Kind
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
    disk_bytes: int = 4 << 30
    readable: tuple[str, ...] = ()
    cache: Path | None = None
    """Where Triton keeps what it compiles, for all processes of this source; None: in the job's own folder."""


class Job:
    """A job that runs in a process of its own, made by a zygote; callers may let several jobs take turns.

    `end` asks for the process of a job, by its number, to be killed.
    """

    def __init__(self, number: int, order: JobOrder, folder: Path, end: Callable[[int], None]) -> None:
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
        self._end = end
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
        self._end(self.number)

    def outcome(self, cancelled: bool) -> Outcome:
        """What all of it means, after the process ended."""
        ended = self.ended
        if ended is None:
            raise RuntimeError("the job still runs")
        kind, reason = self._meaning(ended, cancelled)
        final = self.final if kind in ("done", "fault") else None
        return Outcome(
            kind=kind,
            stage=final.stage if isinstance(final, wire.Fault) else self.stage,
            reason=reason,
            value=final.value if isinstance(final, wire.Done) else {},
            fault=final if isinstance(final, wire.Fault) else None,
            output=self._output.decode("utf-8", "replace"),
            seconds=clock.monotonic() - self._began,
            swept=ended.swept,
            peak_bytes=ended.peak_bytes,
            signal=ended.signal,
            status=ended.status,
        )

    def _meaning(self, ended: wire.Ended, cancelled: bool) -> tuple[Kind, str]:
        """(kind, reason) of the outcome: what we did to it comes before what it says of itself."""
        if cancelled:
            return "cancelled", "cancelled"
        if self.malformed:
            return "malformed", self.malformed
        if self.stopped:
            return "stopped", ""
        if ended.reason == "deadline":
            return "hang", f"it did not finish within {self.order.deadline_s:g} s"
        if ended.reason == "memory":
            return "memory", f"it used more than {self.order.memory_bytes / (1 << 30):.1f} GiB of memory"
        if ended.reason == "disk":
            return "disk", f"it wrote more than {self.order.disk_bytes / (1 << 30):.2g} GiB to disk"
        if isinstance(self.final, wire.Fault):
            return "fault", self.final.reason
        if isinstance(self.final, wire.Done):
            return "done", ""
        return "crash", _death(ended)

    def messages(self) -> list[tuple[wire.CandidateMessage, list[int]]]:
        """What has arrived. A malformed message is kept in `malformed`, and the process ended."""
        found: list[tuple[wire.CandidateMessage, list[int]]] = []
        try:
            for body, descriptors in self.reader.pump():
                try:
                    found.append((wire.read_message(body), descriptors))
                except wire.Malformed as error:
                    close_all(descriptors)
                    raise FrameError(str(error)) from error
        except BlockingIOError:
            pass
        except FrameError as error:
            self.malformed = self.malformed or str(error)
            self.kill()
        return found

    def close(self) -> None:
        """Close both ends and remove the folder, Triton's cache in it included. May be called twice."""
        if self.channel.fileno() < 0:
            return
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


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors that came with a message, or went with one."""
    for descriptor in descriptors:
        os.close(descriptor)
