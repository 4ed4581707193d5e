"""Draws the pictures in docs/pictures from a run's journal: `make screenshots`, or `make screenshots JOURNAL=path`.

They are SVG files that need no font and no script from elsewhere, drawn by the cockpit itself without a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.pilot import Pilot

from kbtui import clock
from kbtui.history.journal import read_journal
from kbtui.state.events import RunStarted
from kbtui.tui.app import KbtuiApp
from kbtui.tui.screenshot import screen_svg
from kbtui.tui.terminal import Terminal

HERE = Path(__file__).resolve().parent
JOURNAL = HERE.parent / "tests" / "data" / "matmul-h200.jsonl"
PICTURES = HERE / "pictures"
LARGEST = 96 * 1024
"""Bytes of a picture: they live in the repository."""

Show = Callable[[Pilot[int]], Awaitable[None]]


async def home(pilot: Pilot[int]) -> None:
    """The list of runs."""


async def cockpit(pilot: Pilot[int]) -> None:
    """All panes."""


async def narrow(pilot: Pilot[int]) -> None:
    """One pane at a time."""


async def candidate(pilot: Pilot[int]) -> None:
    """What changed in the best, side by side."""
    await pilot.press("asterisk", "d", "d", "v")


async def facts(pilot: Pilot[int]) -> None:
    """What the compiler made of the best, and its roofline."""
    await pilot.press("asterisk", "enter", "4")


SHOTS: tuple[tuple[str, Show, tuple[int, int], str], ...] = (
    ("home", home, (100, 16), "kbtui-dark"),
    ("cockpit", cockpit, (120, 36), "kbtui-dark"),
    ("cockpit-light", cockpit, (120, 36), "kbtui-light"),
    ("cockpit-80x24", narrow, (80, 24), "kbtui-dark"),
    ("candidate", candidate, (120, 30), "kbtui-dark"),
    ("facts", facts, (120, 30), "kbtui-dark"),
)


async def settle(app: KbtuiApp, pilot: Pilot[int]) -> None:
    """Until nothing is left to be painted."""
    for _ in range(4):
        await pilot.pause()
        await app.tick()
        await app.workers.wait_for_complete()


async def draw(name: str, show: Show, size: tuple[int, int], theme: str, run_id: str, folder: Path) -> Path:
    """One picture; its path. Raises ValueError when it is too large."""
    app = KbtuiApp(
        None if show is home else run_id,
        read_only=False,
        theme=theme,
        terminal=Terminal(ascii=False, colours="many"),
    )
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        await show(pilot)
        await settle(app, pilot)
        svg = screen_svg(app, "kbtui")
    if len(svg) > LARGEST:
        raise ValueError(f"{name} takes {len(svg)} bytes, {LARGEST} at most: choose a smaller screen")
    path = folder / f"{name}.svg"
    path.write_text(svg, encoding="utf-8")
    return path


def stage(journal: Path, home_folder: Path) -> str:
    """Put the journal where a run of its name would have it, and the clock to its end; the run's id."""
    events = read_journal(journal)
    started = events[0]
    if not isinstance(started, RunStarted):
        raise ValueError(f"{journal} does not begin like a run's journal")
    folder = home_folder / "runs" / started.run_id
    folder.mkdir(parents=True)
    shutil.copy(journal, folder / "journal.jsonl")
    last = events[-1].t
    clock.wall = lambda: last + 60.0
    return started.run_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journal", nargs="?", type=Path, default=JOURNAL, help="a run's journal.jsonl")
    parser.add_argument("--out", type=Path, default=PICTURES, help="the folder of the pictures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kbtui-pictures-") as place:
        os.environ["KBTUI_HOME"] = os.environ["XDG_CONFIG_HOME"] = place
        os.environ["TZ"] = "UTC"
        run_id = stage(given.journal, Path(place))
        for name, show, size, theme in SHOTS:
            path = asyncio.run(draw(name, show, size, theme, run_id, given.out))
            print(f"{path}  {path.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
