"""A terminal in memory that runs the real program, and a look at the processes it leaves."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyte
import pytest

KBTUI = [sys.executable, "-m", "kbtui"]
ORDINARY = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}
KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "space": " ",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "left": "\x1b[D",
    "right": "\x1b[C",
    "tab": "\t",
}


class Terminal:
    """The program on a pseudo-terminal of a given size; `text` is what a person would see."""

    def __init__(self, arguments: list[str], columns: int, lines: int, environment: dict[str, str]) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(
            [*KBTUI, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, **ORDINARY, **environment},
        )
        os.close(slave)

    @property
    def text(self) -> str:
        return "\n".join(self.screen.display)

    def press(self, *keys: str) -> None:
        """Type keys one by one: names of KEYS, or characters."""
        for key in keys:
            os.write(self._master, KEYS.get(key, key).encode())
            self._read(0.15)

    def until(self, seen: str | Callable[[str], object], seconds: float = 60.0) -> str:
        """Wait until the screen holds a text or fulfils a condition; what it shows then. Fails with the screen."""
        condition = (lambda text: seen in text) if isinstance(seen, str) else seen
        deadline = time.monotonic() + seconds
        while not condition(self.text):
            if time.monotonic() > deadline:
                pytest.fail(f"never seen: {seen}\n{self.text}")
            if self.process.poll() is not None and not self._read(0.2):
                pytest.fail(f"the program ended ({self.process.returncode}) before {seen} was seen:\n{self.text}")
            self._read(0.2)
        return self.text

    def ended(self, seconds: float = 20.0) -> int:
        """Wait for the program to end; its exit status."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.2)
        assert self.process.poll() is not None, f"the program still runs:\n{self.text}"
        while self._read(0.1):
            pass
        return int(self.process.returncode)

    def hang_up(self) -> None:
        """Close the terminal under the program, as a lost connection does."""
        os.close(self._master)
        self._master = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # the other side is closed
            return False
        self._stream.feed(data)
        return bool(data)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    """`terminal("attach", columns=80, lines=24)`: closed at the end of the test."""
    opened: list[Terminal] = []

    def open_terminal(
        *arguments: str, columns: int = 120, lines: int = 40, environment: dict[str, str] | None = None
    ) -> Terminal:
        opened.append(Terminal(list(arguments), columns, lines, environment or {}))
        return opened[-1]

    yield open_terminal
    for each in opened:
        each.close()


class Program:
    """The program without a terminal."""

    def __call__(self, *arguments: str, seconds: float = 180.0) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KBTUI, *arguments], capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL
        )

    def json(self, *arguments: str) -> Any:
        """What `arguments --json` print; they must succeed."""
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def runs(self) -> list[dict[str, Any]]:
        return list(self.json("history", "list"))


class Processes:
    """The processes of a test, found by its data folder and as descendants of its run processes."""

    def __init__(self, home: Path) -> None:
        self._mark = f"KBTUI_HOME={home / 'data'}".encode()
        self._seen: dict[int, str] = {}

    def look(self) -> dict[int, str]:
        """Note who is there now: pid -> start time and command. Call it while a run is live."""
        table = {int(entry.name): entry for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        parents = {pid: self._parent(pid) for pid in table}
        found = {pid for pid in table if self._marked(pid)} | set(self._seen)
        while grown := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
            found |= grown
        found -= {os.getpid()}
        self._seen |= {pid: life for pid in found if (life := self._life(pid))}
        return {pid: life for pid, life in self._seen.items() if self._life(pid) == life}

    def end(self) -> None:
        for pid in self.look():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def gone(self, seconds: float = 15.0) -> dict[int, str]:
        """Wait for all of them to end; who is left."""
        deadline = time.monotonic() + seconds
        while (left := self.look()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _marked(self, pid: int) -> bool:
        try:
            return self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    @staticmethod
    def _stat(pid: int) -> list[str]:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return []

    def _parent(self, pid: int) -> int:
        stat = self._stat(pid)
        return int(stat[1]) if stat else 0

    def _life(self, pid: int) -> str:
        """Start time and command of a process that lives; "" of one that is gone or only waits to be reaped."""
        stat = self._stat(pid)
        if not stat or stat[0] == "Z":
            return ""
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:120]
        except OSError:
            return ""
        return f"{stat[19]} {command}"


@pytest.fixture
def program() -> Program:
    return Program()


@pytest.fixture
def processes(private_home: Path) -> Iterator[Processes]:
    """Whoever is left at the end of the test is killed; the test itself says whether that is a failure."""
    watched = Processes(private_home)
    yield watched
    watched.end()
