"""Real pseudo-terminals: refusals, no colours, ASCII, a lost connection, the clipboard."""

from __future__ import annotations

import base64
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbtui.errors import UsageError
from kbtui.tui import clipboard
from kbtui.tui.terminal import Terminal, describe_terminal, require_terminal

PROGRAM = textwrap.dedent("""
    import sys
    sys.path.insert(0, {folder!r})
    from tui_sample import ScriptedFeed, sample
    from kbtui.tui.app import KbtuiApp
    {before}
    app = KbtuiApp("x", make_feed=lambda run_id: ScriptedFeed(sample().events))
    status = app.run()
    if app.failure is not None:
        raise app.failure
    sys.exit(status)
""")


class Terminated(Exception):
    """The program did not end in time."""


class Tty:
    """A program in a pseudo-terminal of 100x30."""

    def __init__(self, code: str, environment: dict[str, str]) -> None:
        self.out = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # the program; never returns
            os.environ.update({"TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"})
            os.environ.pop("TMUX", None)
            os.environ.update(environment)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
            os.execv(sys.executable, [sys.executable, "-c", code])

    def read(self, until: bytes, seconds: float = 20.0) -> bytes:
        """Read until `until` is seen."""
        end = time.monotonic() + seconds
        while until not in self.out:
            left = end - time.monotonic()
            assert left > 0, self.out[-2000:]
            if select.select([self.fd], [], [], left)[0]:
                try:
                    self.out += os.read(self.fd, 65536)
                except OSError:
                    break
        return self.out

    def quiet(self, seconds: float) -> int:
        """Bytes that come within some seconds."""
        count = 0
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([self.fd], [], [], left)[0]:
                count += len(os.read(self.fd, 65536))
        return count

    def wait(self, seconds: float = 10.0) -> int:
        """The exit status, or minus the signal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if self.fd >= 0 and select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.out += os.read(self.fd, 65536)
                except OSError:
                    time.sleep(0.05)
            else:
                time.sleep(0.05)
        raise Terminated(f"still running after {seconds} s")

    def hang_up(self) -> None:
        """Close the terminal's other end, as a lost connection does."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)


@pytest.fixture
def start() -> Iterator[object]:
    """Start the cockpit in a pseudo-terminal; gone after the test."""
    running: list[Tty] = []

    def make(before: str = "", **environment: str) -> Tty:
        tty = Tty(PROGRAM.format(folder=str(Path(__file__).parent), before=before), environment)
        running.append(tty)
        return tty

    yield make
    for tty in running:
        tty.close()


def test_it_paints_sleeps_and_detaches(start) -> None:  # type: ignore[no-untyped-def]
    tty = start()
    tty.read(b"detach")
    tty.quiet(2.0)
    # the sample is live, so its clock ticks once a second and nothing else moves
    assert tty.quiet(3.0) < 3 * 2 * 300
    os.write(tty.fd, b"q")
    assert tty.wait() == 0
    assert tty.out.rindex(b"\x1b[?1049l") > tty.out.rindex(b"\x1b[?1049h")


def test_an_idle_run_writes_nothing(start) -> None:  # type: ignore[no-untyped-def]
    paused = """
from kbtui.state import events as e
import tui_sample
script = tui_sample.sample()
script.add(e.RunPaused, by="ada@x")
tui_sample.sample = sample = lambda: script
"""
    tty = start(before=paused)
    tty.read(b"detach")
    tty.quiet(2.0)
    assert tty.quiet(3.0) == 0


def test_no_color_sends_no_colour_code(start) -> None:  # type: ignore[no-untyped-def]
    tty = start(NO_COLOR="1")
    tty.read(b"detach")
    os.write(tty.fd, b"\rd\x1b")
    tty.quiet(1.5)
    os.write(tty.fd, b"q")
    assert tty.wait() == 0
    codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", tty.out) for code in found.split(b";")}
    assert codes <= {b"", b"0", b"1", b"2", b"3", b"4", b"7", b"9"}, codes
    assert {b"1", b"7"} <= codes


def test_a_locale_without_utf8_gets_ascii(start) -> None:  # type: ignore[no-untyped-def]
    tty = start(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii:backslashreplace")
    tty.read(b"detach")
    os.write(tty.fd, b"2q")
    assert tty.wait() == 0
    assert tty.out.isascii()
    assert b"\\u" not in tty.out
    assert b"* best" in tty.out


@pytest.mark.parametrize("before", ["", "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"])
def test_a_lost_connection_ends_it_without_spinning(start, before: str) -> None:  # type: ignore[no-untyped-def]
    tty = start(before=before)
    tty.read(b"detach")
    tty.hang_up()
    assert tty.wait(8.0) == 129


def test_sighup_and_sigterm_restore_the_terminal(start) -> None:  # type: ignore[no-untyped-def]
    for number in (signal.SIGHUP, signal.SIGTERM):
        tty = start()
        tty.read(b"detach")
        os.kill(tty.pid, number)
        assert tty.wait() == 128 + number
        assert b"\x1b[?1049l" in tty.out


def test_copying_goes_out_as_osc_52_and_wrapped_in_tmux(start) -> None:  # type: ignore[no-untyped-def]
    tty = start(TMUX="/tmp/tmux-1/default,1,0")
    tty.read(b"detach")
    os.write(tty.fd, b"c")
    found = tty.read(b"\x1b\\")
    match = re.search(rb"\x1bPtmux;\x1b\x1b\]52;c;([A-Za-z0-9+/=]+)\x07\x1b\\", found)
    assert match is not None
    assert b"@triton.jit" in base64.b64decode(match[1])
    os.write(tty.fd, b"q")
    assert tty.wait() == 0


# ---------------------------------------------------------------- without a terminal


def test_no_terminal_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        UsageError, match=r"`kbtui run` needs a terminal, and standard input is not one: add --headless"
    ):
        require_terminal("kbtui run", "add --headless")


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_dumb_terminal_is_refused(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    class Stream:
        closed = False
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "__stdin__", Stream())
    monkeypatch.setattr(sys, "__stderr__", Stream())
    monkeypatch.setenv("TERM", term)
    with pytest.raises(UsageError, match="cannot paint on a terminal of type"):
        require_terminal("kbtui", "use --headless")
    monkeypatch.setenv("TERM", "xterm-256color")
    require_terminal("kbtui", "use --headless")


@pytest.mark.parametrize(
    ("environment", "colours"),
    [
        ({"NO_COLOR": ""}, "none"), ({"COLORTERM": "truecolor", "TERM": "linux"}, "many"), ({"TERM": "linux"}, "few"),
        ({"TERM": "xterm-16color"}, "few"), ({"TERM": "xterm-256color"}, "many"), ({"TERM": "tmux-256color"}, "many"),
    ],
)  # fmt: skip
def test_colours_by_environment(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colours: str) -> None:
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert describe_terminal().colours == colours


async def test_few_colours_get_the_terminals_own() -> None:
    from tui_drive import drive
    from tui_sample import sample

    async with drive(sample().events, terminal=Terminal(ascii=False, colours="few"), theme="kbtui-dark") as d:
        assert d.app.theme == "ansi"


# ---------------------------------------------------------------- clipboard


def test_osc_52_has_a_limit() -> None:
    assert clipboard.osc52("a" * clipboard.OSC52_LIMIT, {}) is not None
    assert clipboard.osc52("a" * (clipboard.OSC52_LIMIT + 1), {}) is None
    assert clipboard.osc52("é" * (clipboard.OSC52_LIMIT // 2 + 1), {}) is None


def test_screen_gets_it_in_pieces() -> None:
    sequence = clipboard.osc52("x" * 3000, {"TERM": "screen-256color"})
    assert sequence is not None
    pieces = re.findall("\x1bP(.*?)\x1b\\\\", sequence, re.DOTALL)
    assert all(len(piece) <= 768 for piece in pieces)
    assert "".join(pieces) == clipboard.osc52("x" * 3000, {})


async def test_what_is_too_long_goes_into_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tui_drive import drive
    from tui_sample import Script

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    script = Script()
    script.begin()
    script.generated(1, 0, 1, "tiling", "long", source="x = 1\n" * 20_000)
    async with drive(script.events, (160, 30)) as d:
        d.app.open_candidate(1)
        await d.settle()
        await d.press("c")
        (file,) = tmp_path.glob("kbtui-*-c1.py")
        assert file.read_text() == "x = 1\n" * 20_000
        assert "too long for the clipboard: it is in" in d.text
        assert any(str(file) in line.text for line in d.app.session.replies)  # type: ignore[union-attr]
