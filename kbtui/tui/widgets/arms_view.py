"""The arm matrix with a cursor of two dimensions."""

from __future__ import annotations

from textual.events import Click

from kbtui.state.records import STRATEGIES
from kbtui.state.run_state import RunState
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import text_line
from kbtui.tui.views.arms import ArmsSource, Cell, cells_of, choice_text, clusters_of, column_width
from kbtui.tui.widgets.line_view import LineView


class ArmsView(LineView):
    """Shows the arms; enter forces the one under the cursor."""

    BINDINGS = bindings_of("arms")

    def __init__(self) -> None:
        super().__init__("Arms", id="arms")
        self.row = 0
        self.column = 0
        self._state: RunState | None = None

    def show_state(self, state: RunState) -> None:
        self._state = state
        self.row = min(self.row, len(clusters_of(state)) - 1)
        self.show(ArmsSource(state, (self.row, self.column)), note=text_line(choice_text(state), "label"))

    @property
    def cell(self) -> Cell | None:
        """The arm under the cursor."""
        if self._state is None:
            return None
        return cells_of(self._state)[clusters_of(self._state)[self.row], STRATEGIES[self.column]]

    @property
    def wanted_rows(self) -> int:
        """Rows that show the whole matrix, title included."""
        return len(self.source) + 1

    def _go(self, lines: int) -> None:
        if self._state is not None:
            self.row = max(0, min(self.row + lines, len(clusters_of(self._state)) - 1))
            self.show_state(self._state)
            self.keep_visible(self.row + 1)

    def _move_sideways(self, columns: int) -> None:
        if self._state is not None:
            self.column = max(0, min(self.column + columns, len(STRATEGIES) - 1))
            self.show_state(self._state)

    def do_cell_left(self) -> None:
        self._move_sideways(-1)

    def do_cell_right(self) -> None:
        self._move_sideways(1)

    def on_click(self, event: Click) -> None:
        at = event.get_content_offset(self)
        if at is None or self._state is None:
            return
        row = at.y - self.header_rows + self.top - 1
        column = (at.x - 5) // column_width(self.size.width)
        if 0 <= row < len(clusters_of(self._state)) and 0 <= column < len(STRATEGIES):
            self.row, self.column = row, column
            self.show_state(self._state)
