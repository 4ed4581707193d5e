"""A program in a pseudo-terminal, measured from outside: when it paints, how much it sends, what it costs."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from pathlib import Path

QUIET_S = 0.03
"""Output that pauses for so long has ended: one key's answer, or one frame."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Program:
    """A running program. `columns` by `rows` cells; leave it with `with`, which kills it."""

    def __init__(self, arguments: list[str], environment: dict[str, str], columns: int, rows: int) -> None:
        self.out = b""
        self.total = 0
        """Bytes it has sent."""
        self.began = time.monotonic()
        self.pid, self._fd = pty.fork()
        if self.pid == 0:  # the program; never returns
            os.environ.update(environment)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execv(arguments[0], arguments)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)

    def take(self, seconds: float) -> int:
        """Wait for output, `seconds` at most, and read it: its bytes, 0 when none came. Raises EOFError when it ended."""
        if not select.select([self._fd], [], [], max(seconds, 0.0))[0]:
            return 0
        try:
            data = os.read(self._fd, 1 << 20)
        except OSError as error:
            raise EOFError(self.out[-2000:].decode("utf-8", "replace")) from error
        self.out = (self.out + data)[-200_000:]
        self.total += len(data)
        return len(data)

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def until(self, marker: bytes, seconds: float = 60.0) -> float:
        """Seconds from the start until `marker` is painted."""
        end = time.monotonic() + seconds
        while marker not in self.out:
            if time.monotonic() > end:
                raise TimeoutError(f"{marker!r} was not painted within {seconds} s")
            self.take(end - time.monotonic())
        return time.monotonic() - self.began

    def for_(self, seconds: float) -> int:
        """Bytes that come within `seconds`."""
        before, end = self.total, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.take(left)
        return self.total - before

    def settle(self, quiet: float = 0.3, most: float = 10.0) -> None:
        """Read until nothing comes for `quiet` seconds."""
        end = time.monotonic() + most
        while time.monotonic() < end and self.take(quiet):
            pass

    def answer(self, keys: bytes, patience: float = 5.0) -> float:
        """Seconds from a key to the last byte of what it painted; `patience` when nothing came."""
        start = last = time.monotonic()
        self.press(keys)
        wait = patience
        while self.take(wait):
            last = time.monotonic()
            wait = QUIET_S
        return last - start if last > start else patience

    def processor_s(self) -> float:
        """Processor time so far in seconds, to 1/100."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mb(self) -> float:
        """Resident memory in MB (10^6 bytes)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * _PAGE / 1e6
