"""A pane that is drawn to fit: it has no lines out of sight, and is drawn anew when its size changes."""

from __future__ import annotations

from textual.message import Message

from kbtui.tui.line import EMPTY, Line, Lines
from kbtui.tui.widgets.line_view import LineView


class PlotView(LineView):
    """Tells its screen when what it shows no longer fits."""

    class Resized(Message):
        """The plot has another size now."""

    def on_resize(self) -> None:
        super().on_resize()
        if len(self.source) > self.rows:
            self.show(Lines([]), note=self.note)  # drawn for another height: nothing rather than half of it
        self.post_message(self.Resized())

    def position_line(self) -> Line:
        return EMPTY
