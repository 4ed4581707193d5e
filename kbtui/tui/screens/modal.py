"""The frame of the dialogs: a box over the screen, with a title line, its content and its keys."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Container

from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.widgets.strips import Strip

Result = TypeVar("Result")


class Modal(KbtuiScreen[Result], Generic[Result], inherit_bindings=False):
    """A dialog. Escape closes it without a result; letters never reach the screen below."""

    PLACES: ClassVar[tuple[str, ...]] = ("dialog",)
    BINDINGS = bindings_of("dialog")

    def __init__(self, *, size: str = "") -> None:
        super().__init__()
        self._modal = True
        if size:
            self.add_class(f"-{size}")

    def body(self) -> ComposeResult:
        with Container(id="dialog"):
            yield from self.content()
            yield Strip(id="dialog-keys")

    def content(self) -> ComposeResult:
        """What is in the box."""
        raise NotImplementedError

    def keys_line(self) -> Line:
        """The dialog's keys."""
        raise NotImplementedError

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#dialog-keys", Strip).set_lines([self.keys_line()])

    def do_cancel(self) -> None:
        self.dismiss(None)
