"""A long-lived lane process seen from the run process: started, spoken to, ended.

Every wait has an end: a peer that stops answering costs its own deadline and a little more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import isolation
from kbtui.evaluate.inlane import bootstrap
from kbtui.evaluate.inlane.frames import FrameError, FrameReader, PeerGone, send_frame

START_S = 120.0
"""Importing torch from a cold network disk takes a minute; longer than this is broken."""
GRACE_S = 5.0
"""What a process may take to end, or to read what it asked for."""


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
        python = find_python(self._python)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = [
            python,
            "-I",
            "-B",
            str(Path(bootstrap.__file__)),
            self.role,
            str(theirs.fileno()),
        ]
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
            raise EnvironmentFailure(
                f"the {self.role} under {self._python} did not start: "
                + (self.last_words() or "it ended without a word; is that a Python interpreter?")
            ) from gone
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

    def left_with(self) -> int | None:
        """The status with which a process that is gone ended itself, as by `os._exit`; None where it was killed, or where Python
        ended it with an exception, whose words say more."""
        if self._process is None:
            return None
        try:
            status = self._process.wait(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 and not (status == 1 and self.last_words()) else None

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
        raise EnvironmentFailure(
            f"there is no interpreter {python}: give --python the path of one that has torch and triton"
        )
    return found


def _lacking(python: str, lacks: str) -> str:
    if lacks.startswith("Python"):
        return f"lanes need {lacks}: give --python the path of a newer interpreter that has torch and triton"
    return (
        f'{python} has no {lacks}: install it there (pip install "kbtui[torch]"), '
        f"or give --python the path of an interpreter that has torch and triton"
    )


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop()
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            todo.extend(map(int, children))
            found.extend(map(int, children))
    return found
