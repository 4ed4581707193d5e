"""The log: follows its end until a person scrolls up."""

from __future__ import annotations

from kbtui.tui.line import EMPTY, Line, Lines, Source
from kbtui.tui.widgets.line_view import LineView


class LogView(LineView):
    """While it follows, it turns by half a pane at a time: lines in between go into free rows, which sends one line
    instead of the whole pane."""

    def __init__(self) -> None:
        super().__init__("Log", id="log")
        self.follows = True

    def show(self, source: Source, *, note: Line = EMPTY) -> None:
        if self.follows:
            self.top = self._turned(len(source))
        super().show(source, note=note)

    def follow(self) -> None:
        """Show the end from now on, in a log that may have become another."""
        self.follows = True
        self.top = 0
        self.show(Lines([]))

    def on_resize(self) -> None:
        if self.follows:
            # before the first layout there are no rows, and in other rows the free half is another: begin at the end again
            self.top = max(len(self.source) - self.rows, 0)
        super().on_resize()

    def _turned(self, lines: int) -> int:
        """The first line while following: as before while the end fits, else so that half the pane is free again."""
        end = max(lines - self.rows, 0)
        if not len(self.source):
            return end  # a log that is opened shows as much as it can
        if end <= self.top <= max(lines - max(self.rows // 2, 1), 0):
            return self.top
        return end + self.rows // 2 if end else 0

    def _last_top(self) -> int:
        return max(len(self.source) - max(self.rows // 2, 1), 0) if self.follows else super()._last_top()

    def jump(self, top: int) -> None:
        end = max(len(self.source) - self.rows, 0)
        self.follows = top >= end
        super().jump(self._turned(len(self.source)) if self.follows else top)

    def position_line(self) -> Line:
        return EMPTY if self.follows else super().position_line()
