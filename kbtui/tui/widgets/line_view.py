"""A pane of lines that scrolls by itself, by keys and by the mouse.

There is no scrollbar: the title says where one is, which costs a few bytes instead of a column.
"""

from __future__ import annotations

from textual.events import Click, MouseScrollDown, MouseScrollUp
from textual.geometry import Offset
from textual.message import Message

from kbtui.tui.actions import bindings_of
from kbtui.tui.line import width_of
from kbtui.tui.widgets.painted import PaintedLines

WHEEL_LINES = 3
SIDEWAYS = 16
"""Cells that one key scrolls to the side."""


class LineView(PaintedLines, can_focus=True):
    """Lines that can be gone through; one of them is chosen where `has_cursor`."""

    BINDINGS = bindings_of("list")  # type: ignore[assignment]  # a list of bindings is what Textual reads

    class Chosen(Message):
        """The cursor came to another line."""

    class Clicked(Message):
        """An action's span was clicked."""

        def __init__(self, action: str) -> None:
            super().__init__()
            self.action = action

    # ------------------------------------------------------------ place

    def on_resize(self) -> None:
        self.top = min(self.top, self._last_top())
        if self.has_cursor:
            self.keep_visible(self.cursor)
        self.repaint()

    def on_focus(self) -> None:
        # later: Textual says so before `has_focus` has its new value
        self.call_later(self.repaint)

    def on_blur(self) -> None:
        self.call_later(self.repaint)

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
        self.top = max(0, min(top, self._last_top()))
        self.repaint()

    def choose(self, index: int) -> None:
        """Put the cursor on line `index` (clipped) and show it."""
        index = max(0, min(index, len(self.source) - 1))
        moved = index != self.cursor
        self.cursor = index
        self.keep_visible(self.cursor)
        self.repaint()
        if moved:
            self.post_message(self.Chosen())

    # ------------------------------------------------------------ keys and mouse

    async def action_perform(self, action_id: str) -> None:
        # through the screen, so that a refusal is decided in one place
        await self._kbtui_screen.action_perform(action_id)

    def _go(self, lines: int) -> None:
        if self.has_cursor:
            self.choose(self.cursor + lines)
        else:
            self.jump(self.top + lines)

    def _sideways(self, cells: int) -> None:
        self.left = max(0, min(self.left + cells, self._last_left()))
        self.repaint()

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

    def do_scroll_left(self) -> None:
        self._sideways(-SIDEWAYS)

    def do_scroll_right(self) -> None:
        self._sideways(SIDEWAYS)

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
