"""More of what terminals do, in real pseudo-terminals: sizes, colours, the mouse, slow and stalled links, a crash."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyte
import pytest
from test_home import two_runs
from test_terminal import Tty, start  # noqa: F401  (a fixture)

from kbtui.tui.driver import WakingEvent
from kbtui.tui.pace import BASE_RATE, CELL_RATE, LONGEST_S, SAVED_S, Pace

COMMAND = """
import sys
sys.path.insert(0, {folder!r})
import tui_sample
import kbtui.tui.app as app
app.LiveFeed = lambda run_id: tui_sample.ScriptedFeed(tui_sample.sample().events)
app.KbtuiApp.__init__.__kwdefaults__["make_feed"] = app.LiveFeed
{before}
import kbtui.cli.main as program
from kbtui.cli import cockpit
cockpit.open_home = lambda flags: cockpit.open_cockpit("softmax-x", dict({flags}))
sys.exit(program.main([]))
"""


@pytest.fixture
def command() -> Iterator[object]:
    """Start the program, past its command line, on the sample run; gone after the test."""
    running: list[Tty] = []

    def make(before: str = "", flags: str = "", code: str = "", **environment: str) -> Tty:
        folder = str(Path(__file__).parent)
        code = code or COMMAND.format(folder=folder, before=before, flags=flags)
        running.append(Tty(code, environment))
        return running[-1]

    yield make
    for tty in running:
        tty.close()


def resize(tty: Tty, columns: int, rows: int) -> None:
    fcntl.ioctl(tty.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def shown(tty: Tty, columns: int, rows: int) -> str:
    """What is on the terminal after all that was sent since `out` was emptied."""
    screen = pyte.Screen(columns, rows)
    pyte.ByteStream(screen).feed(re.sub(rb"\x1b\[[<>][0-9;]*[a-z]", b"", tty.out))
    return "\n".join(screen.display)


def test_sizes_come_and_go_and_the_selection_stays(start) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    tty = start()
    tty.read(b"detach")
    os.write(tty.fd, b"gjj")
    tty.quiet(0.5)
    for columns, rows, wanted in (
        (200, 50, b"Best so far"),
        (50, 10, b"needs 60x16"),
        (80, 24, b"2 arms"),
        (200, 50, b"Best so far"),
    ):
        tty.out = b""
        resize(tty, columns, rows)
        tty.read(wanted)
    # the third candidate, still chosen, is the one that opens
    tty.out = b""
    os.write(tty.fd, b"\r")
    tty.read(b"source")
    assert "#2 " in shown(tty, 200, 50) or "#1 " in shown(tty, 200, 50)
    os.write(tty.fd, b"q")
    assert tty.wait() == 0


def test_a_terminal_of_256_colours_gets_no_true_ones(start) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    tty = start(COLORTERM="", TERM="xterm-256color")
    tty.read(b"detach")
    os.write(tty.fd, b"q")
    assert tty.wait() == 0
    assert b"38;5;" in tty.out
    assert not re.search(rb"[34]8;2;", tty.out)


HOME = """
import sys
sys.path.insert(0, {folder!r})
from tui_sample import ScriptedFeed, sample
import kbtui.tui.app
from kbtui.tui.app import KbtuiApp
kbtui.tui.app.FIRST_S = 5.0  # however busy the machine is
sys.exit(KbtuiApp(None, make_feed=lambda run_id: ScriptedFeed(sample().events, run_id=run_id)).run())
"""


def test_a_run_is_opened_and_left_with_few_bytes(command) -> None:  # type: ignore[no-untyped-def]
    two_runs()
    folder = str(Path(__file__).parent)
    tty = command(code=HOME.format(folder=folder))
    tty.read(b"attach")
    tty.quiet(1.0)
    # one whole screen of text in colours is about 11 KB here; painting it empty first and again after each layout took 35
    os.write(tty.fd, b"\r")
    assert 5_000 < tty.quiet(1.5) < 17_000
    os.write(tty.fd, b"\x1b")
    assert 1_000 < tty.quiet(1.5) < 12_000


def test_a_slow_link_is_asked_for_less(command) -> None:  # type: ignore[no-untyped-def]
    tty = command(flags="low_bandwidth=True")
    tty.read(b"detach")
    os.write(tty.fd, b"q")
    assert tty.wait() == 0
    assert not re.search(rb"[34]8;2;", tty.out)


@pytest.mark.parametrize(("flags", "asked"), [("mouse=False", False), ("", True)])
def test_the_mouse_is_left_to_the_terminal_when_asked(command, flags: str, asked: bool) -> None:  # type: ignore[no-untyped-def]
    tty = command(flags=flags)
    tty.read(b"detach")
    os.write(tty.fd, b"j\r")
    tty.read(b"source")
    os.write(tty.fd, b"q")
    assert tty.wait() == 0
    # switched on, that is: leaving switches it off in any case
    assert (b"\x1b[?1000h" in tty.out) is asked


def test_a_crash_leaves_one_line_a_report_and_the_terminal(command, private_home: Path) -> None:  # type: ignore[no-untyped-def]
    broken = """
from kbtui.tui.screens.cockpit import CockpitScreen
def fail(self):
    raise ZeroDivisionError("\\x1b]52;c;AAAA\\x07 secret-of-mine-42")
CockpitScreen.do_pane_arms = fail
"""
    tty = command(before=broken, MY_API_KEY="secret-of-mine-42")
    tty.read(b"detach")
    os.write(tty.fd, b"2")
    assert tty.wait() == 1
    after = tty.out[tty.out.rindex(b"\x1b[?1049l") :].decode()
    assert after.count("kbtui: ") == 1
    assert "this is a bug in kbtui (ZeroDivisionError" in after
    assert "the run goes on: `kbtui attach softmax-" in after
    assert "\x1b]52" not in after
    (report,) = (private_home / "data" / "crashes").glob("*.txt")
    assert str(report) in after.replace("\r\n", "")
    text = report.read_text()
    assert "secret-of-mine-42" not in text + after
    for part in ("kbtui 0", "textual 8", "screen: 100x30, ", "CockpitScreen", "colours: many", "what happened last:",
                 "429, waiting 8 s", "ZeroDivisionError", "in fail"):  # fmt: skip
        assert part in text, text[:3000]
    assert "\x1b" not in text  # who reads it by `cat` is safe


def test_a_terminal_that_does_not_read_stops_neither_state_nor_keys(start) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    """A flood while nobody reads; then the newest state is shown, and `q` works."""
    flood = """
import itertools
from kbtui.state import events as e
class Flood(ScriptedFeed):
    async def poll(self):
        first = await super().poll()
        self.n = getattr(self, "n", 1000) + 1
        note = dict(seq=self.n, t=1790000000.0 + self.n, elapsed=float(self.n), level="warning")
        return first + [e.Noted(text=f"note {self.n} x" * 7, **note)]
ScriptedFeed = Flood
from kbtui.tui import app, pace
app.TICK_S = 0.02
pace.BASE_RATE = 1e9
"""
    tty = start(before=flood)
    tty.read(b"detach")
    os.write(tty.fd, b"5")
    tty.read(b"note 10")
    import time

    time.sleep(4.0)  # far more than the terminal's buffer and the writer's queue take
    os.write(tty.fd, b"1")
    tty.out = b""
    tty.read(b"#24")
    os.write(tty.fd, b"q")
    assert tty.wait() == 0


@pytest.mark.parametrize("arguments", [[], ["attach"], ["run", "softmax"]])
def test_without_a_terminal_one_sentence_names_the_way_out(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbtui", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "needs a terminal" in done.stderr
    assert "--help" in done.stderr or "kbtui runs" in done.stderr or "--headless" in done.stderr


# ---------------------------------------------------------------- the budget of bytes

CELLS = 80 * 24
RATE = BASE_RATE + CELL_RATE * CELLS


def test_what_was_saved_may_be_spent_at_once() -> None:
    pace = Pace()
    assert pace.may_paint(0.0, 20_000, CELLS)  # the first screen
    assert pace.may_paint(0.5, 20_000 + int(SAVED_S * RATE) - 10, CELLS)
    assert not pace.may_paint(1.0, 20_000 + 2 * int(SAVED_S * RATE), CELLS)


def test_a_steady_flood_is_held_to_the_rate() -> None:
    pace, sent = Pace(), 0
    for tick in range(2, 2000):
        if pace.may_paint(tick / 2, sent, CELLS):
            sent += 8_000
    assert sent / 1000 == pytest.approx(RATE, rel=0.05)


def test_nothing_waits_for_long() -> None:
    pace = Pace()
    pace.may_paint(0.0, 0, CELLS)
    assert not pace.may_paint(0.5, 10**7, CELLS)
    assert pace.may_paint(0.5 + LONGEST_S + 0.1, 10**7, CELLS)


def test_whoever_else_keeps_sending_nobody_waits_for_long() -> None:
    # the debt never gets smaller: only the clock lets the panes in
    pace = Pace()
    painted = [tick / 4 for tick in range(121) if pace.may_paint(100 + tick / 4, tick * 10**6, CELLS)]
    waits = [after - before for before, after in pairwise(painted)]
    assert painted[0] == 0.0
    assert len(painted) == 13
    assert all(wait == pytest.approx(LONGEST_S) for wait in waits)


def test_a_slow_link_has_a_smaller_budget() -> None:
    pace = Pace(0.25)
    pace.may_paint(0.0, 0, CELLS)
    assert not pace.may_paint(0.5, int(SAVED_S * RATE * 0.5), CELLS)


def test_the_event_that_ends_the_reading_wakes_a_select() -> None:
    event = WakingEvent()
    assert not select.select([event], [], [], 0)[0]
    for _ in range(70_000):  # more than the pipe takes, and it never blocks
        event.set()
    assert select.select([event], [], [], 0)[0] == [event]
    assert event.is_set()
    event.clear()
    assert not event.is_set()
    assert not select.select([event], [], [], 0)[0]


def test_at_rest_nothing_wakes_the_reader_and_keys_still_come(start) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    tty = start()
    tty.read(b"detach")
    tty.quiet(1.0)

    def wakes() -> dict[str, int]:
        found = {}
        for task in Path(f"/proc/{tty.pid}/task").iterdir():
            said = (task / "status").read_text()
            found[task.name] = int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", said, re.MULTILINE)[1])  # type: ignore[index]
        return found

    before = wakes()
    tty.quiet(2.0)
    woken = {name: count - before.get(name, count) for name, count in wakes().items()}
    assert max(count for name, count in woken.items() if name != str(tty.pid)) <= 8, "ten a second is Textual's own"
    tty.out = b""
    os.write(tty.fd, b"\x1b[")  # a sequence that comes in two pieces
    tty.quiet(0.02)
    os.write(tty.fd, b"B")
    os.write(tty.fd, b"?")
    tty.read(b"Help")
    tty.out = b""
    os.write(tty.fd, b"\x1b")  # and an escape that is a key of its own
    assert tty.quiet(1.0) > 1_000
    os.write(tty.fd, b"q")
    assert tty.wait() == 0
