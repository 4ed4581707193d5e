"""A widget of lines: made on demand, painted only where they changed.

Textual sends every dirty region whole, and lays the whole screen out again when a scrolled widget's size changes. So the
widget compares each visible line with what it painted there last, and marks just the cells that differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.style import Style
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kbtui.tui.glyphs import BAR
from kbtui.tui.line import (
    EMPTY,
    Line,
    LineBuilder,
    Lines,
    Source,
    Span,
    both_ends,
    changed_cells,
    crop,
    plain,
    text_line,
)
from kbtui.tui.widgets.paint import ascii_line, strip_of, with_selection

if TYPE_CHECKING:
    from kbtui.tui.screens.base import KbtuiScreen


class PaintedLines(Widget):
    """Shows a `Source` from line `top` on. With a `title` its first row is the title; with `has_cursor` one line is the
    chosen one."""

    has_cursor = False

    def __init__(self, title: str = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.pane_title = title
        self.note: Line = EMPTY
        """What the title row says after the title."""
        self.source: Source = Lines([])
        self.cursor = 0
        self.top = 0
        """Index of the first visible line."""
        self.left = 0
        """First visible cell of lines that are wider than the pane."""
        self._painted: dict[int, Line] = {}
        """Row of the widget -> the line that is, or is about to be, there."""
        self._painted_size = Size(0, 0)
        self.is_late = False
        """Whether a change waits to be painted, because the screen holds back what is not looked at."""

    # ------------------------------------------------------------ what is shown

    @property
    def header_rows(self) -> int:
        return 1 if self.pane_title else 0

    @property
    def rows(self) -> int:
        """Rows for lines, without the title."""
        return max(self.size.height - self.header_rows, 0)

    def show(self, source: Source, *, note: Line = EMPTY) -> None:
        """Show `source` from now on, and paint what differs from what is on the screen."""
        self.source = source
        self.note = note
        self.cursor = min(self.cursor, max(len(source) - 1, 0))
        self.top = min(self.top, self._last_top())
        self.left = min(self.left, self._last_left())
        self.repaint()

    def repaint(self) -> None:
        """Paint the visible lines that are not what was painted last. Nothing is sent when nothing changed."""
        if not self.is_mounted or not self.display:
            self._painted.clear()
            return
        self.is_late = self._kbtui_screen.holds(self)
        if self.is_late:
            return
        self._forget_other_size()
        for y in range(self.size.height):
            line, before = self._row(y), self._painted.get(y)
            if before != line:
                self._painted[y] = line
                start, end = self._changed(before, line)
                self.refresh(Region(start, y, end - start, 1))

    def _changed(self, before: Line | None, line: Line) -> tuple[int, int]:
        """The cells of a row to send: the whole row when its background changes or it is scrolled to the side."""
        width = self.size.width
        if before is None or self._wide or _marks(before) != _marks(line):
            return 0, width
        start, end = changed_cells(before, line)
        return min(start, width - 1), min(max(end, start + 1), width)

    def _forget_other_size(self) -> None:
        if self._painted_size != self.size:
            self._painted.clear()
            self._painted_size = self.size

    def _row(self, y: int) -> Line:
        if y < self.header_rows:
            return crop(self._title_line(), self.size.width)
        index = y - self.header_rows + self.top
        if index >= len(self.source):
            return EMPTY
        line = self.source.line(index, self.size.width)
        if self.left:
            # makes a line differ from itself before it was scrolled
            line = (Span("", f"left-{self.left}"), *line)
        if self.has_cursor and index == self.cursor:
            # makes the chosen line differ from itself unchosen
            line = (Span("", "cursor" if self.has_focus else "cursor-blurred"), *line)
        return line

    def _title_line(self) -> Line:
        focused = self.has_focus
        left = LineBuilder().add(BAR if focused else " ", "accent")
        left.add(self.pane_title, "title-focus" if focused else "title")
        if self.note:
            left.gap(2).extend(self.note)
        return both_ends(left.line(), self.position_line(), self.size.width)

    def position_line(self) -> Line:
        """Where one is, when not everything is in sight."""
        total = len(self.source)
        if total <= self.rows or not self.rows:
            return EMPTY
        return text_line(f"{self.top + 1}-{min(self.top + self.rows, total)} of {total} ", "dim")

    # ------------------------------------------------------------ painting

    def render_line(self, y: int) -> Strip:
        self._forget_other_size()
        line = self._painted.get(y)
        if line is None:
            line = self._painted[y] = self._row(y)
        width, base = self.size.width, self.rich_style
        if not self._wide:
            line = crop(line, width)
        if self.glyphs_are_ascii:
            line = ascii_line(line)  # after it was cut, for the ellipsis of the cut is a glyph too
        if y < self.header_rows:
            base += self.role_style("title-bar-focus" if self.has_focus else "title-bar")
            return strip_of(line, base, self.role_style).adjust_cell_length(width, base)
        if line and not line[0].text and line[0].role.startswith("cursor"):
            base += self.role_style(line[0].role)
        index = y - self.header_rows + self.top
        strip = with_selection(
            strip_of(line, base, self.role_style), self.text_selection, index, base + self.role_style("select")
        )
        if self._wide:
            strip = strip.crop(self.left, self.left + width)
        return strip.adjust_cell_length(width, base).apply_offsets(self.left, index)

    def role_style(self, role: str) -> Style:
        """The theme's style of a role."""
        return self._kbtui_screen.role_style(role)

    @property
    def _kbtui_screen(self) -> KbtuiScreen[Any]:
        from kbtui.tui.screens.base import KbtuiScreen

        screen = self.screen
        assert isinstance(screen, KbtuiScreen)
        return screen

    @property
    def glyphs_are_ascii(self) -> bool:
        return bool(getattr(self.app, "ascii_glyphs", False))

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text, for copying with the mouse."""
        text = "\n".join(plain(self.source.line(i, self.size.width)).rstrip() for i in range(len(self.source)))
        return selection.extract(text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002  (Textual's signature)
        self.refresh()

    # ------------------------------------------------------------ size

    @property
    def _wide(self) -> int:
        """Cells of the widest line where lines can be scrolled to the side, else 0."""
        return int(getattr(self.source, "wide", 0))

    def _last_top(self) -> int:
        return max(len(self.source) - self.rows, 0)

    def _last_left(self) -> int:
        return max(self._wide - self.size.width, 0)


def _marks(line: Line) -> list[str]:
    """The roles of a line's spans without text, which say how the whole row is painted."""
    return [span.role for span in line if not span.text]
