"""An editor for a few lines of text that takes nothing a terminal acts upon, pasted text included."""

from __future__ import annotations

from textual.events import Paste
from textual.widgets import TextArea

from kbtui.text import clean


class Editor(TextArea):
    """Textual's editor with a cursor that does not blink; tab leaves it."""

    def __init__(self, text: str = "", *, id: str | None = None) -> None:
        super().__init__(
            clean(text), id=id, soft_wrap=True, tab_behavior="focus", show_line_numbers=False, compact=True,
            highlight_cursor_line=False, theme="css",
        )  # fmt: skip
        self.cursor_blink = False

    def put(self, text: str) -> None:
        """Replace all of it."""
        self.load_text(clean(text))
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: Paste) -> None:
        event.text = clean(event.text)
        await super()._on_paste(event)
