"""Two or more runs side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.events import Resize

from kbtui.tui.actions import bindings_of
from kbtui.tui.line import LineBuilder, both_ends, text_line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.views.compare import comparison_lines
from kbtui.tui.views.numbers import plural
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Footer, Strip

if TYPE_CHECKING:
    from kbtui.history.compare import Comparison


class CompareScreen(KbtuiScreen[None]):
    """Shows a comparison; it does not change while it is open."""

    PLACES: ClassVar[tuple[str, ...]] = ("compare", "any")
    BINDINGS = bindings_of("compare")

    def __init__(self, found: Comparison) -> None:
        super().__init__()
        self._found = found

    def body(self) -> ComposeResult:
        yield Strip(id="header")
        yield LineView(id="comparison")
        yield Footer("compare", "any")

    def on_mount(self) -> None:
        super().on_mount()
        self.set_focus(self.query_one("#comparison", LineView))

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.call_after_refresh(self.paint)

    def paint_panes(self) -> None:
        width = self.size.width
        left = LineBuilder().add(" kbtui", "accent").add("  comparison", "label").line()
        right = text_line(f"{plural(len(self._found.runs), 'run')} ", "label")
        self.query_one("#header", Strip).set_lines([both_ends(left, right, width)])
        self.query_one("#comparison", LineView).show(comparison_lines(self._found, width))

    def do_back(self) -> None:
        self.dismiss(None)
