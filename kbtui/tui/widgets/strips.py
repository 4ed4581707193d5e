"""Panes without a cursor or focus: the header lines, the tabs, the footer, the notice that the terminal is too small."""

from __future__ import annotations

import textwrap

from kbtui.text import clean_line
from kbtui.tui.actions import footer_of, key_name
from kbtui.tui.keymap import Keymap
from kbtui.tui.line import Line, LineBuilder, Lines, crop, text_line
from kbtui.tui.widgets.line_view import LineView

LEAST_COLUMNS = 60
LEAST_ROWS = 16


class Strip(LineView, can_focus=False):
    """A few lines that stay where they are."""

    def set_lines(self, lines: list[Line]) -> None:
        self.show(Lines(lines))


class Sentences(Strip):
    """Sentences in as many rows as they need, up to `most` if that is not 0; one row where there are none."""

    def __init__(self, title: str = "", *, id: str, most: int = 0) -> None:
        super().__init__(title, id=id)
        self._most = most
        self._parts: tuple[tuple[str, str], ...] = ()

    def say(self, *parts: tuple[str, str]) -> None:
        """Show (sentence, role) pairs, each wrapped to the width."""
        self._parts = parts
        if not self.size.width:
            return  # not laid out yet: the resize that comes says it
        room = max(self.size.width - 2, 20)
        lines = [text_line(f" {row}", role) for text, role in parts for row in textwrap.wrap(clean_line(text), room)]
        shown = lines[: self._most] if self._most else lines
        if len(shown) < len(lines):
            shown[-1] = crop(LineBuilder().extend(shown[-1]).to(room).add("  ").line(), room + 1)
        rows = max(len(shown) + self.header_rows, 1)
        if self.styles.height is None or self.styles.height.value != rows:
            self.styles.height = rows
        self.set_lines(shown)

    def on_resize(self) -> None:
        super().on_resize()
        self.say(*self._parts)


class Footer(Strip):
    """The keys of a place, as many as fit; the most important ones last to go. A click runs one."""

    def __init__(self, *places: str, id: str = "footer") -> None:
        super().__init__(id=id)
        self._places = places
        self._labels: dict[str, str] = {}
        self._served = True
        self._dead: frozenset[str] = frozenset()

    def serve(self, served: bool) -> None:
        """Whether a process takes commands: without one, what changes a run is not offered, and going on with it is."""
        if served != self._served:
            self._served = served
            self.update_line()

    def leave_out(self, *action_ids: str) -> None:
        """Offer all actions but these from now on: they would do nothing."""
        if self._dead != set(action_ids):
            self._dead = frozenset(action_ids)
            self.update_line()

    def relabel(self, **labels: str) -> None:
        """Say another word for an action from now on, such as `resume` for `pause`."""
        if labels != self._labels:
            self._labels = dict(labels)
            self.update_line()

    def on_mount(self) -> None:
        self.update_line()

    def on_resize(self) -> None:
        super().on_resize()
        self.update_line()

    def update_line(self) -> None:
        keymap = self._kbtui_screen.kbtui.keys
        line = footer_line(self._places, self.size.width, self._labels, keymap, served=self._served, dead=self._dead)
        self.set_lines([line])


def footer_line(
    places: tuple[str, ...],
    width: int,
    labels: dict[str, str],
    keymap: Keymap,
    *,
    served: bool = True,
    dead: frozenset[str] = frozenset(),
) -> Line:
    """` space pause   s step ...   ? help   q detach`: the last two always, of the others as many as fit."""
    gap = 1 if width < 100 else 2
    offered = [a for a in footer_of(*places) if not (a.ended if served else a.writes) and a.id not in dead]
    parts = [(a, key_name(keymap.keys_of(a)[0]), labels.get(a.id, a.label)) for a in offered]
    sizes = {action.id: len(key) + len(label) + 2 + gap for action, key, label in parts}
    kept = {"help", "detach"}
    room = width - sum(sizes.get(name, 0) for name in kept)
    out = LineBuilder()
    for action, key, label in parts:
        if action.id not in kept:
            room -= sizes[action.id]
            if room < 0:
                continue
        out.gap().add(key, "key", action.id).add(f" {label}", "label", action.id).gap(gap)
    return out.line()


def tabs_line(names: list[str], active: int, actions: list[str]) -> Line:
    """` 1 tree  2 arms ...`, the active one marked."""
    out = LineBuilder()
    for index, (name, action) in enumerate(zip(names, actions, strict=True)):
        role = "tab-active" if index == active else "tab"
        out.add(f" {index + 1} {name} ", role, action).gap()
    return out.line()


def too_small_line(columns: int, rows: int) -> Line:
    """The one line of a terminal that is too small."""
    return text_line(f"needs {LEAST_COLUMNS}x{LEAST_ROWS}, has {columns}x{rows}; q detaches", "warn")
