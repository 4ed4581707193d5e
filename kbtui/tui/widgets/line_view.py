"""A pane of lines: made on demand, painted only where they changed.

Textual sends every dirty region whole, so the pane compares each visible line with what it painted last and marks just
the lines that differ. There is no scrollbar: the title says where one is, which costs a few bytes instead of a column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.style import Style
from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from kbtui.tui.actions import bindings_of
from kbtui.tui.glyphs import BAR, to_ascii
from kbtui.tui.line import (
    EMPTY,
    Line,
    LineBuilder,
    Lines,
    Source,
    Span,
    both_ends,
    crop,
    plain,
    text_line,
    width_of,
)

if TYPE_CHECKING:
    from kbtui.tui.screens.base import KbtuiScreen

WHEEL_LINES = 3


class LineView(ScrollView, can_focus=True):
    """Shows a `Source`. With a `title` its first row is the title; with `has_cursor` one line is the chosen one."""

    BINDINGS = bindings_of("list")  # type: ignore[assignment]  # a list of bindings is what Textual reads
    has_cursor = False

    class Chosen(Message):
        """The cursor came to another line."""

        def __init__(self, view: LineView) -> None:
            super().__init__()
            self.view = view

        @property
        def control(self) -> LineView:
            return self.view

    class Clicked(Message):
        """An action's span was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    def __init__(self, title: str = "", *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.pane_title = title
        self.note: Line = EMPTY
        """What the title row says after the title."""
        self.source: Source = Lines([])
        self.cursor = 0
        self._painted: dict[int, Line] = {}
        """Row of the widget -> the line that was painted there last."""

    # ------------------------------------------------------------ what is shown

    @property
    def header_rows(self) -> int:
        return 1 if self.pane_title else 0

    @property
    def rows(self) -> int:
        """Rows for lines, without the title."""
        return max(self.size.height - self.header_rows, 0)

    @property
    def top(self) -> int:
        """Index of the first visible line."""
        return self.scroll_offset.y

    def show(self, source: Source, *, note: Line = EMPTY) -> None:
        """Show `source` from now on, and paint what differs from what is on the screen."""
        self.source = source
        self.note = note
        self._fit_virtual_size()
        self.cursor = min(self.cursor, max(len(source) - 1, 0))
        self.repaint()

    def repaint(self) -> None:
        """Paint the visible lines that are not what was painted last. Nothing is sent when nothing changed."""
        if not self.is_mounted or not self.display:
            return
        for y in range(self.size.height):
            line = self._row(y)
            if self._painted.get(y) != line:
                self._painted[y] = line
                self.refresh(Region(0, y, self.size.width, 1))

    def line_at(self, index: int) -> Line:
        """Line `index` as it is painted, with the cursor's mark."""
        return self.source.line(index, self.size.width)

    def _row(self, y: int) -> Line:
        if y < self.header_rows:
            return self._title_line()
        index = y - self.header_rows + self.top
        if index >= len(self.source):
            return EMPTY
        line = self.line_at(index)
        if self.has_cursor and index == self.cursor:
            # the mark makes the chosen line differ from the same line unchosen
            return (self._cursor_mark(), *line)
        return line

    def _cursor_mark(self) -> Span:
        return Span("", "cursor" if self.has_focus else "cursor-blurred")

    def _title_line(self) -> Line:
        focused = self.has_focus
        left = (
            LineBuilder()
            .add(BAR if focused else " ", "accent")
            .add(self.pane_title, "title-focus" if focused else "title")
        )
        if self.note:
            left.gap(2).extend(self.note)
        return both_ends(left.line(), self._position(), self.size.width)

    def _position(self) -> Line:
        total = len(self.source)
        if total <= self.rows:
            return EMPTY
        last = min(self.top + self.rows, total)
        return text_line(f"{self.top + 1}-{last} of {total} ", "dim")

    # ------------------------------------------------------------ painting

    def render_line(self, y: int) -> Strip:
        line = self._row(y)
        self._painted[y] = line
        width = self.size.width
        wide = getattr(self.source, "wide", 0)
        base = self.rich_style
        is_title = y < self.header_rows
        if is_title:
            base += self.role_style("title-bar-focus" if self.has_focus else "title-bar")
        if line and line[0].role in ("cursor", "cursor-blurred") and not line[0].text:
            base += self.role_style(line[0].role)
        if not wide or is_title:
            line = crop(line, width)
        in_ascii = self.glyphs_are_ascii
        segments = [
            Segment(to_ascii(span.text) if in_ascii else span.text, base + self.role_style(span.role))
            for span in line
            if span.text
        ]
        strip = Strip(segments)
        if is_title:
            return strip.adjust_cell_length(width, base)
        strip = self._select(strip, y, base)
        if wide:
            left = self.scroll_offset.x
            strip = strip.crop(left, left + width)
        return strip.adjust_cell_length(width, base).apply_offsets(
            self.scroll_offset.x, self.top + y - self.header_rows
        )

    def _select(self, strip: Strip, y: int, base: Style) -> Strip:
        selection = self.text_selection
        if selection is None:
            return strip
        span = selection.get_span(self.top + y - self.header_rows)
        if span is None:
            return strip
        start, end = span
        length = strip.cell_length
        end = length if end == -1 else min(end, length)
        if start >= end:
            return strip
        before, chosen, after = strip.crop(0, start), strip.crop(start, end), strip.crop(end, length)
        style = base + self.role_style("select")
        return Strip.join([before, Strip([Segment(s.text, style) for s in chosen]), after])

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

    # ------------------------------------------------------------ size and place

    def _fit_virtual_size(self) -> None:
        wide = getattr(self.source, "wide", 0)
        size = Size(max(wide, self.size.width), len(self.source) + self.header_rows)
        if size != self.virtual_size:
            self.virtual_size = size

    def on_resize(self) -> None:
        self._painted.clear()
        self._fit_virtual_size()
        if self.has_cursor:
            self.keep_visible(self.cursor)

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()

    def keep_visible(self, index: int) -> None:
        """Scroll as little as needed to show line `index`."""
        if self.rows <= 0:
            return
        if index < self.top:
            self.jump(index)
        elif index >= self.top + self.rows:
            self.jump(index - self.rows + 1)

    def jump(self, top: int) -> None:
        """Make `top` the first visible line, as far as there are lines."""
        last = max(len(self.source) - self.rows, 0)
        self.scroll_to(y=max(0, min(top, last)), animate=False, force=True)

    def choose(self, index: int) -> None:
        """Put the cursor on line `index` (clipped) and show it."""
        index = max(0, min(index, len(self.source) - 1))
        moved = index != self.cursor
        self.cursor = max(index, 0)
        self.keep_visible(self.cursor)
        self.repaint()
        if moved:
            self.post_message(self.Chosen(self))

    # ------------------------------------------------------------ keys and mouse

    async def action_perform(self, action_id: str) -> None:
        # through the screen, so that a refusal is decided in one place
        await self._kbtui_screen.action_perform(action_id)

    def _go(self, lines: int) -> None:
        if self.has_cursor:
            self.choose(self.cursor + lines)
        else:
            self.jump(self.top + lines)

    def do_cursor_up(self) -> None:
        self._go(-1)

    def do_cursor_down(self) -> None:
        self._go(1)

    def do_page_up(self) -> None:
        self._go(-max(self.rows - 1, 1))

    def do_page_down(self) -> None:
        self._go(max(self.rows - 1, 1))

    def do_first(self) -> None:
        self._go(-len(self.source))

    def do_last(self) -> None:
        self._go(len(self.source))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        event.stop()
        self.jump(self.top + WHEEL_LINES)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        event.stop()
        self.jump(self.top - WHEEL_LINES)

    def on_click(self, event: Click) -> None:
        at = event.get_content_offset(self)
        if at is None:
            return
        action = self._action_at(at)
        if action:
            self.post_message(self.Clicked(action))
        elif self.has_cursor and at.y >= self.header_rows:
            index = at.y - self.header_rows + self.top
            if index < len(self.source):
                self.choose(index)

    def _action_at(self, at: Offset) -> str:
        x = 0
        for span in self._row(at.y):
            x += width_of((span,))
            if at.x < x:
                return span.action
        return ""
