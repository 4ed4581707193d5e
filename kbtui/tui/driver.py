"""The terminal driver, with the end of the terminal taken care of.

When a connection drops, reading returns nothing at once and for ever, and writing fails. Textual's driver would read in
a loop at full speed, even when SIGHUP is ignored. Here a thread that sleeps in `poll` wakes on the hang-up, ends the
reading and the app; and what is written to a dead terminal is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import selectors
import threading
from codecs import getincrementaldecoder
from typing import IO, TYPE_CHECKING, Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size

from kbtui.tui.thrift import Thrift

if TYPE_CHECKING:
    from textual.app import App

BEHIND = 6
"""Writes that wait for the terminal before painting stops: the queue takes 30, then the whole app would wait with it."""
LOOK_UP_S = 0.05
"""How often the reader looks whether a sequence that began is to go on."""
HUNG_UP = 129
"""Exit status after a hang-up: 128 and the number of SIGHUP."""


class Outlet:
    """The stream Textual writes to; silent once the terminal is gone."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.dead = False

    def write(self, text: str) -> None:
        if not self.dead:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self.dead = True

    def flush(self) -> None:
        if not self.dead:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self.dead = True

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return self._stream.isatty()


class WakingEvent(threading.Event):
    """An event that also ends a `select`: what waits on `fileno` reads a byte once it is set.

    Its pipe stays open as long as the process: a thread may set it at any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def set(self) -> None:
        super().set()
        with contextlib.suppress(BlockingIOError):  # full of bytes that say the same
            os.write(self._write, b"x")

    def clear(self) -> None:
        super().clear()
        with contextlib.suppress(BlockingIOError):  # once it is empty
            while True:
                os.read(self._read, 65536)


class KbtuiDriver(LinuxDriver):
    """Ends the app when its terminal is gone."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._file: Any = Outlet(self._file)
        self.exit_event = self._waking = WakingEvent()
        self._thrift = Thrift()
        self._other_size: Size | None = None
        self.sent = 0
        """Bytes sent to the terminal."""

    def write(self, data: str) -> None:
        frugal = self._thrift.rewrite(data)
        self.sent += len(frugal.encode("utf-8", "replace"))
        super().write(frugal)

    @property
    def is_behind(self) -> bool:
        """Whether the terminal does not read what is sent: a stalled link, or a stopped one (ctrl+s)."""
        thread = self._writer_thread
        return thread is not None and thread._queue.qsize() >= BEHIND

    def _get_terminal_size(self) -> tuple[int, int]:
        # of the terminal that is painted on: Textual's believes an exported COLUMNS, and asks standard output
        try:
            columns, rows = os.get_terminal_size(self.fileno)
        except OSError:
            columns = rows = 0
        return (columns, rows) if columns and rows else super()._get_terminal_size()

    def missed_size(self, painted: Size) -> Size | None:
        """The terminal's size when it is not the painted one at two calls in a row: a change that got lost on its way."""
        actual = Size(*self._get_terminal_size())
        before, self._other_size = self._other_size, actual if actual != painted else None
        return actual if actual == before != painted else None

    def start_application_mode(self) -> None:
        self._thrift.forget()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._watch, args=(loop,), name="kbtui-hangup", daemon=True).start()

    def run_input_thread(self) -> None:
        """Textual's, which looks up ten times a second; this one sleeps until there is something to read.

        Only in the middle of a sequence (an escape that may be a key of its own) it looks up, as Textual does.
        """
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            selector.register(self._waking, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                ready = selector.select(None if parser._timeout_time is None else LOOK_UP_S)
                if any(key.fileobj == self.fileno for key, _ in ready):
                    try:
                        text = decode(os.read(self.fileno, 4096))
                    except OSError:
                        return  # the terminal is gone: `_watch` ends the app
                    for message in parser.feed(text) if text else ():
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        watch = select.poll()
        # No events asked for: only a hang-up or an error is reported, so this sleeps until then.
        watch.register(self.fileno, 0)
        watch.poll()
        self._file.dead = True
        self.exit_event.set()
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(self._app.exit, HUNG_UP)
