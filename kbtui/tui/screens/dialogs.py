"""Questions: yes or no, and a line of text."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.events import Key
from textual.widgets import Input

from kbtui.tui.line import EMPTY, Line, LineBuilder
from kbtui.tui.screens.modal import Modal
from kbtui.tui.widgets.strips import Sentences, Strip


class ConfirmScreen(Modal[bool]):
    """Names the target and the effect; No is chosen until a person moves to yes."""

    def __init__(self, question: str, effect: str, yes: str) -> None:
        super().__init__(size="small")
        self._question = question
        self._effect = effect
        self._yes = yes
        self.sure = False

    def content(self) -> ComposeResult:
        yield Sentences("Please confirm", id="dialog-text")
        yield Strip(id="dialog-buttons")

    def on_mount(self) -> None:
        super().on_mount()
        self._show()

    def _show(self) -> None:
        self.query_one("#dialog-text", Sentences).say((self._question, "strong"), (self._effect, "label"))
        buttons = LineBuilder().gap()
        buttons.add("  no  ", "tab" if self.sure else "tab-active").gap(2)
        buttons.add(f"  {self._yes}  ", "tab-active" if self.sure else "tab")
        self.query_one("#dialog-buttons", Strip).set_lines([EMPTY, buttons.line(), EMPTY])

    def keys_line(self) -> Line:
        out = (
            LineBuilder()
            .add(" left right", "key")
            .add(" move  ", "label")
            .add("enter", "key")
            .add(" take it  ", "label")
        )
        return out.add("y n", "key").add(" answer  ", "label").add("esc", "key").add(" no", "label").line()

    def on_key(self, event: Key) -> None:
        if event.key in ("left", "right", "tab", "shift+tab", "h", "l"):
            event.stop()
            event.prevent_default()
            self.sure = not self.sure
            self._show()
        elif event.key in ("y", "n"):
            event.stop()
            self.dismiss(event.key == "y")

    def do_choose(self) -> None:
        self.dismiss(self.sure)


class SafeInput(Input):
    """An input that takes no control characters, pasted ones included, and whose cursor does not blink."""

    def __init__(self, value: str = "", *, id: str | None = None, placeholder: str = "") -> None:
        super().__init__(
            value,
            placeholder=placeholder,
            id=id,
            compact=True,
            select_on_focus=False,
            restrict=r"[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]*",
        )
        self.cursor_blink = False


class PromptScreen(Modal[str]):
    """Asks for a line of text. `check` says what is wrong with an answer, "" when nothing is."""

    def __init__(
        self,
        title: str,
        text: str,
        word: str,
        check: Callable[[str], str] | None = None,
        *,
        value: str = "",
        empty_ok: bool = False,
    ) -> None:
        """`value` is there to begin with. An empty answer is as good as escape, unless `empty_ok`."""
        super().__init__(size="small")
        self._value = value
        self._empty_ok = empty_ok
        self._title = title
        self._text = text
        self._word = word
        self._check = check

    def content(self) -> ComposeResult:
        yield Sentences(self._title, id="dialog-text")
        yield SafeInput(self._value, id="dialog-input", placeholder=self._word)
        yield Sentences(id="dialog-error", most=3)

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one("#dialog-text", Sentences).say((self._text, "label"))
        self.set_focus(self.query_one("#dialog-input", SafeInput))

    def keys_line(self) -> Line:
        return (
            LineBuilder().add(" enter", "key").add(" send  ", "label").add("esc", "key").add(" cancel", "label").line()
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.do_choose()

    def do_choose(self) -> None:
        answer = self.query_one("#dialog-input", SafeInput).value.strip()
        if not answer:
            self.dismiss("" if self._empty_ok else None)
            return
        problem = self._check(answer) if self._check is not None else ""
        if problem:
            self.query_one("#dialog-error", Sentences).say((problem, "bad"))
            return
        self.dismiss(answer)
