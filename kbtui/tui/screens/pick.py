"""Choosing from a list: the help, which runs what it lists, and the palette, which finds things by typing."""

from __future__ import annotations

import asyncio
import textwrap
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.events import Key, Resize

from kbtui.tui.actions import ACTIONS, PLACES, Action, key_name
from kbtui.tui.keymap import Keymap
from kbtui.tui.line import EMPTY, Line, LineBuilder, Lines, plain, text_line, width_of, wrap
from kbtui.tui.screens.modal import Modal
from kbtui.tui.views.arms import Cell, cells_of, short
from kbtui.tui.views.log import LEVELS
from kbtui.tui.views.numbers import estimate_text, figure, plural, ratio_text
from kbtui.tui.views.status import origin
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Strip

if TYPE_CHECKING:
    from kbtui.history.runs import RunEntry
    from kbtui.state.run_state import Candidate, LogLine
    from kbtui.tui.screens.base import KbtuiScreen

CANDIDATES_MOST = 2000
"""Candidates in the palette, newest first."""
MESSAGE_WIDTH = 78
WHOLE = 2
"""Rows for the sentence of a line that is cut."""


@dataclass(frozen=True)
class Item:
    """One line of a list. `value` "" is a heading, which cannot be chosen. `about`: the sentence in the line, which is shown
    whole below the list where the line is cut."""

    line: Line
    value: str = ""
    about: str = ""


class PickList(LineView):
    """A list whose cursor skips headings."""

    has_cursor = True

    def __init__(self, title: str) -> None:
        super().__init__(title, id="pick")
        self.items: list[Item] = []

    def show_items(self, items: list[Item]) -> None:
        self.items = items
        self.show(Lines([item.line for item in items]))
        self.cursor = self._nearest(self.cursor, 1)
        self.keep_visible(self.cursor)
        self.repaint()

    def _go(self, lines: int) -> None:
        if self.items:
            aim = max(0, min(self.cursor + lines, len(self.items) - 1))
            self.choose(self._nearest(aim, 1 if lines > 0 else -1))
            if self.cursor <= 1:
                self.jump(0)

    def do_page_up(self) -> None:
        self._page(-1)

    def do_page_down(self) -> None:
        self._page(1)

    def _page(self, way: int) -> None:
        """Turn the view by a page; the cursor keeps its row in it."""
        lines = max(self.rows - 1, 1) * way
        self.top = max(0, min(self.top + lines, self._last_top()))
        self._go(lines)

    def position_line(self) -> Line:
        """Which of the things that can be chosen the cursor is on, when not everything is in sight."""
        if len(self.source) <= self.rows or not self.rows:
            return EMPTY
        places = [at for at, item in enumerate(self.items) if item.value]
        return text_line(f"{bisect_right(places, self.cursor)} of {len(places)} ", "dim") if places else EMPTY

    def _nearest(self, index: int, way: int) -> int:
        """The first item that can be chosen from `index` on, going `way` first."""
        ahead = range(index, len(self.items) if way > 0 else -1, way)
        behind = range(index, -1 if way > 0 else len(self.items), -way)
        return next((i for i in (*ahead, *behind) if 0 <= i < len(self.items) and self.items[i].value), 0)

    @property
    def about(self) -> str:
        """The sentence of the line under the cursor if the line is cut, else ""."""
        item = self.items[self.cursor] if self.cursor < len(self.items) else None
        return item.about if item is not None and width_of(item.line) > self.size.width else ""

    @property
    def chosen(self) -> str:
        """The value under the cursor, "" when there is none."""
        return self.items[self.cursor].value if self.cursor < len(self.items) else ""


class PickScreen(Modal[str]):
    """A list that is narrowed by typing; enter takes the line under the cursor."""

    def __init__(self, title: str, items: list[Item], empty: str) -> None:
        super().__init__(size="large")
        self._title = title
        self._items = items
        self._empty = empty
        self.typed = ""

    def content(self) -> ComposeResult:
        yield Strip(id="typed")
        yield PickList(self._title)
        yield Strip(id="whole")

    def on_mount(self) -> None:
        super().on_mount()
        pick = self.query_one(PickList)
        self.set_focus(pick)
        self._narrow()
        self.call_after_refresh(self._say_whole)

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self._say_whole)

    def on_line_view_chosen(self, message: LineView.Chosen) -> None:
        message.stop()
        self._say_whole()

    def _say_whole(self) -> None:
        """Below the list, the sentence that its line has no room for. The rows are there as soon as any line is cut, so that
        the list does not jump."""
        pick, strip = self.query_one(PickList), self.query_one("#whole", Strip)
        strip.display = any(item.about and width_of(item.line) > pick.size.width for item in self._items)
        strip.set_lines(wrap(text_line(f" {pick.about}", "text"), max(strip.size.width, 20), rows=WHOLE, indent=1))

    def keys_line(self) -> Line:
        out = (
            LineBuilder().add(" type", "key").add(" to narrow  ", "label").add("up down", "key").add(" move  ", "label")
        )
        return out.add("enter", "key").add(" take it  ", "label").add("esc", "key").add(" close", "label").line()

    def on_key(self, event: Key) -> None:
        if event.key == "backspace":
            self.typed = self.typed[:-1]
        elif event.is_printable and event.character is not None and event.key != "enter":
            self.typed += event.character
        else:
            return
        event.stop()
        event.prevent_default()
        self._narrow()

    def _narrow(self, *, moved: bool = True) -> None:
        words = self.typed.lower().split()
        items = [item for item in self._items if not words or (item.value and _fits(item, words))]
        typed = LineBuilder().add(" > ", "accent").add(self.typed, "strong").add("_", "dim").line()
        self.query_one("#typed", Strip).set_lines([typed])
        pick = self.query_one(PickList)
        pick.cursor = 0 if words and moved else pick.cursor
        pick.show_items(items or [Item(text_line(f" {self._empty}", "dim"))])
        self._say_whole()

    def do_choose(self) -> None:
        chosen = self.query_one(PickList).chosen
        if chosen:
            self.dismiss(chosen)

    def add(self, items: list[Item]) -> None:
        """More to choose from, behind what is there; the cursor stays on its line."""
        self._items += items
        if self.is_mounted:
            self._narrow(moved=False)


def _fits(item: Item, words: list[str]) -> bool:
    text = plain(item.line).lower()
    return all(word in text for word in words)


def _action_item(action: Action, keymap: Keymap) -> Item:
    keys = ", ".join(key_name(key) for key in keymap.keys_of(action))
    out = LineBuilder().add(" ").left(keys, 13, "key").left(action.label, 14, "strong").add(action.help, "label")
    return Item(out.line(), f"action:{action.id}", action.help)


def help_screen(screen: KbtuiScreen[Any]) -> PickScreen:
    """Every action, those of the place one comes from first. Actions of other places can be looked at and not be run."""
    first = [place for place in (*screen.PLACES, *screen.extra_places) if place in PLACES]
    items: list[Item] = []
    for place in [*first, *(place for place in PLACES if place not in first)]:
        items.append(Item(text_line(f" {PLACES[place]}", "title")))
        for action in ACTIONS:
            if action.place == place:
                item = _action_item(action, screen.kbtui.keys)
                items.append(item if place in first else replace(item, value=f"elsewhere:{PLACES[place]}"))
    return PickScreen("Help: every key; enter runs the chosen action", items, "no action has all these words")


def palette_screen(screen: KbtuiScreen[Any]) -> PickScreen:
    """Actions that can be run here, then candidates, arms and themes. `add_runs` adds the runs."""
    places = (*screen.PLACES, *screen.extra_places)
    items = [_action_item(a, screen.kbtui.keys) for a in ACTIONS if a.place in places and a.id not in ("palette",)]
    session = screen.kbtui.session
    if session is not None:
        newest = list(reversed(session.state.candidates.values()))[:CANDIDATES_MOST]
        items += [_candidate_item(candidate) for candidate in newest]
        items += [_arm_item(cell) for cell in cells_of(session.state).values() if cell.held not in ("no move", "empty")]
    items += [
        Item(LineBuilder().add(" ").left("theme", 13, "key").add(name).line(), f"theme:{name}")
        for name in screen.kbtui.theme_names()
    ]
    return PickScreen("Palette", items, "nothing has all these words")


async def add_runs(palette: PickScreen) -> None:
    """Read the list of runs, in a thread, and put it into the palette."""
    from kbtui.history.runs import list_runs

    runs = await asyncio.to_thread(list_runs)
    palette.add([_run_item(run) for run in runs if not run.error])


def _candidate_item(candidate: Candidate) -> Item:
    text, role = figure(candidate)
    out = LineBuilder().add(" ").left(f"#{candidate.id}", 13, "key").left(origin(candidate), 44, "text")
    out.right(text, 11, role).gap(2).add(candidate.status, "label")
    for tag in candidate.tags:
        out.gap().add(f"[{tag}]", "info")
    return Item(out.line(), f"candidate:{candidate.id}")


def _arm_item(cell: Cell) -> Item:
    out = LineBuilder().add(" ").left("force arm", 13, "key").left(f"c{cell.cluster} {cell.strategy}", 18, "text")
    out.add(plural(round(cell.pulls), "pull"), "label")
    out.add(f", mean {short(cell.mean)}" if cell.mean is not None else "", "label")
    if cell.held:
        out.gap(2).add(cell.held, "warn").add(f": {cell.reason}" if cell.reason else "", "label")
    return Item(out.line(), f"arm:{cell.cluster}:{cell.strategy}")


def _run_item(run: RunEntry) -> Item:
    out = LineBuilder().add(" ").left("run", 13, "key").left(run.run_id, 34, "text").left(run.status, 9, "label")
    if run.best_ratio is not None:
        out.add(ratio_text(run.best_ratio), "accent")
    elif run.best_estimate is not None:
        out.add(estimate_text(run.best_estimate), "est")
    return Item(out.line(), f"run:{run.run_id}")


def messages_screen(messages: Sequence[LogLine]) -> PickScreen:
    """What was said in toasts, newest first."""
    items = []
    for entry in reversed(messages):
        glyph, role = LEVELS.get(entry.level, LEVELS["info"])
        stamp = time.strftime("%H:%M:%S", time.localtime(entry.t))
        first, *rest = textwrap.wrap(entry.text, MESSAGE_WIDTH) or [""]
        items.append(
            Item(LineBuilder().add(f" {stamp} ", "dim").add(f"{glyph} ", role).add(first, role).line(), "message")
        )
        items += [Item(LineBuilder().gap(12).add(part, role).line()) for part in rest]
    return PickScreen("Messages of this session, newest first", items, "nothing has been said yet")
