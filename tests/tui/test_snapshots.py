"""Every screen in three sizes, dark and light, as text: what is on it, and which styles lie on which cells.

    make snapshots    # writes tests/tui/snapshots/ anew; look at the difference before committing it

A snapshot is the screen's text, and per row the runs of styles, colours by their names in the theme. Where light differs
from dark in these, both stand there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from textual.app import App
from textual.color import Color
from tui_drive import COLOURS, SIZES, Drive
from tui_sample import START, ScriptedFeed, gpu, sample

from kbtui import clock, paths
from kbtui.history.journal import JournalWriter
from kbtui.state import events as e
from kbtui.state.records import Summary
from kbtui.tui.app import KbtuiApp

FOLDER = Path(__file__).parent / "snapshots"
UPDATE = bool(os.environ.get("UPDATE_SNAPSHOTS"))
THEMES = ("kbtui-dark", "kbtui-light")
SMALL = (80, 24)

STEPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("cockpit", (), ()),
    ("cockpit-arms", ("2",), ()),
    ("cockpit-gpu", ("3",), ()),
    ("cockpit-curve", ("4",), ()),
    ("cockpit-log", ("5",), ("1",)),
    ("help", ("question_mark",), ("escape",)),
    ("palette", ("ctrl+p",), ("escape",)),
    ("force", ("f",), ("escape",)),
    ("ban", ("b",), ("escape",)),
    ("stop", ("Q",), ("escape",)),
    ("messages", ("M",), ("escape",)),
    ("candidate-source", ("enter", "1"), ()),
    ("candidate-diff", ("2",), ()),
    ("candidate-cases", ("3",), ()),
    ("candidate-facts", ("4",), ()),
    ("candidate-prompt", ("5",), ()),
    ("candidate-verdict", ("6",), ("escape",)),
    ("home", ("escape",), ()),
    ("new-run", ("n",), ("escape",)),
    ("compare", ("space", "down", "space", "c"), ("escape",)),
    ("replay", ("r",), ("escape",)),
    ("sql", ("s",), ("escape",)),
)
"""Name, keys that lead to the screen from the one before, keys that leave it."""
READS = {"compare": "CompareScreen", "replay": "ReplayScreen", "sql": "SqlScreen", "home": "HomeScreen"}
"""Screens that read something before they open."""


@pytest.fixture(autouse=True)
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same time everywhere and always."""
    monkeypatch.setattr(clock, "wall", lambda: START + 3600.0)
    monkeypatch.setattr(clock, "monotonic", lambda: 1000.0)
    # the form shows where a problem is: the same path in every checkout
    library = Path("/tmp/kbtui-snapshots")
    library.mkdir(exist_ok=True)
    link = library / "library"
    link.unlink(missing_ok=True)
    link.symlink_to(paths.library_dir())
    monkeypatch.setattr("kbtui.problems.folder.library_dir", lambda: link)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def keep_runs() -> None:
    measured, modelled = sample(), sample("modelled")
    summary = Summary(
        run_id="softmax-b", problem="softmax", device="cpu", timing="modelled", pulls=30, candidates=32, correct=21, best=None,
        baseline_ms=None, cost_usd=0.0, tokens=0, stopped_by="iterations",
    )  # fmt: skip
    modelled.add(e.RunStopped, stopped_by="iterations", summary=summary)
    for run_id, script in (("softmax-a", measured), ("softmax-b", modelled)):
        with JournalWriter(paths.journal_file(run_id)) as writer:
            for event in script.events:
                named = isinstance(event, e.RunStarted)
                writer.append(msgspec.structs.replace(event, run_id=run_id) if named else event)


def text_of(app: App[int]) -> list[str]:
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


def styles_of(app: App[int]) -> list[str]:
    """Per row the number of cells, foreground/background and attributes of each run, colours by their names in the theme."""
    names = {
        Color.parse(value).hex.lower(): name.removeprefix("kb-")
        for name, value in reversed(app.current_theme.variables.items())
        if name.startswith("kb-")
    }
    rows: list[str] = []
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        runs: list[tuple[int, str]] = []
        for text, style, _ in strip:
            fore, back = (
                names.get(c.get_truecolor().hex.lower(), "other") if c is not None else "none"
                for c in ((style.color, style.bgcolor) if style is not None else (None, None))
            )
            marks = "".join(
                f" {word}"
                for word in ("bold", "italic", "reverse", "dim")
                if style is not None and getattr(style, word)
            )
            # blanks have no foreground that one could see
            look = f"{fore if text.strip() else ''}/{back}{marks if text.strip() else ''}"
            if runs and runs[-1][1] == look:
                runs[-1] = (runs[-1][0] + len(text), look)
            else:
                runs.append((len(text), look))
        rows.append(f"{y:2} " + ", ".join(f"{cells} {look}" for cells, look in runs))
    return rows


async def snapshot(d: Drive) -> str:
    """The screen as it is kept in a file. Leaves the dark theme on."""
    looks = []
    for theme in THEMES:
        d.app.theme = theme
        await d.settle()
        looks.append(styles_of(d.app))
    text = text_of(d.app)
    d.app.theme = THEMES[0]
    await d.settle()
    parts = [*text, "", f"-- styles, {THEMES[0]}", *looks[0], f"-- {THEMES[1]} where it differs"]
    parts += [light for dark, light in zip(*looks, strict=True) if dark != light]
    return "\n".join(parts) + "\n"


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_screens_look_as_they_did(size: tuple[int, int]) -> None:
    keep_runs()
    feed = ScriptedFeed([*sample().events, *(gpu(40 + 7 * n, START + n) for n in range(8))])
    app = KbtuiApp(feed.run_id, terminal=COLOURS, make_feed=lambda _: feed)
    changed: list[str] = []
    async with app.run_test(size=size, notifications=False) as pilot:
        d = Drive(app, pilot, feed)
        await d.settle()
        for name, keys, leaving in STEPS:
            await d.press(*keys)
            await _opened(d, READS.get(name, type(d.app.screen).__name__))
            if size == SMALL or not name.startswith("cockpit-"):  # side by side, the panes are one screen
                found = await snapshot(d)
                for place in (paths.data_dir(), Path(__file__).parents[2]):
                    assert str(place) not in found, f"{name} shows {place}, which differs elsewhere"
                changed += _differs(FOLDER / f"{name}-{size[0]}x{size[1]}.txt", found)
            await d.press(*leaving)
    assert not changed, "\n".join(["look at these, then `make snapshots`:", *changed])


async def _opened(d: Drive, screen: str) -> None:
    for _ in range(100):
        if type(d.app.screen).__name__ == screen:
            break
        await d.pilot.pause(0.05)
    assert type(d.app.screen).__name__ == screen
    await d.settle()


def _differs(path: Path, found: str) -> list[str]:
    """One line with the first row that differs; with UPDATE the file is written instead."""
    if UPDATE:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return []
    kept = path.read_text(encoding="utf-8").splitlines() if path.is_file() else ["(no snapshot)"]
    for row, (before, now) in enumerate(zip([*kept, ""], [*found.splitlines(), ""], strict=False)):
        if before != now:
            return [f"{path.name}, line {row + 1}:\n  - {before}\n  + {now}"]
    return []
