"""Texts saved under a name: choosing, saving and forgetting one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.events import Key

from kbtui.errors import KbtuiError
from kbtui.text import plural
from kbtui.tui.line import Line, LineBuilder
from kbtui.tui.screens.dialogs import ConfirmScreen, PromptScreen
from kbtui.tui.screens.pick import Item, PickList, PickScreen

if TYPE_CHECKING:
    from kbtui.history.saved import Saved
    from kbtui.tui.app import KbtuiApp

_SAVE = "save"


class SavedScreen(PickScreen):
    """Ends with the text that was chosen. With a `current` text, its first line saves that one."""

    def __init__(self, saved: Saved, current: str) -> None:
        self._saved = saved
        self._current = current
        self._texts: dict[str, str] = {}
        super().__init__(f"Saved {plural(2, saved.noun)[2:]}", [], f"no {saved.noun} is saved yet")
        self._complaint = ""
        self._read()

    def _read(self) -> None:
        try:
            self._texts = self._saved.all()
        except KbtuiError as error:
            self._complaint = str(error)
        items = []
        if self._current.strip():
            items.append(Item(LineBuilder().add(" save ", "key").add(self._current, "text").line(), _SAVE))
        items += [
            Item(LineBuilder().add(" ").left(name, 24, "strong").add(text, "label").line(), f"text:{name}")
            for name, text in self._texts.items()
        ]
        self._items = items

    def on_mount(self) -> None:
        super().on_mount()
        if self._complaint:
            self.kbtui.tell(self._complaint, "error")

    def keys_line(self) -> Line:
        out = LineBuilder().add(" type", "key").add(" to narrow  ", "label").add("enter", "key").add(" use  ", "label")
        return out.add("delete", "key").add(" forget  ", "label").add("esc", "key").add(" close", "label").line()

    def on_key(self, event: Key) -> None:
        if event.key != "delete":
            super().on_key(event)
            return
        event.stop()
        event.prevent_default()
        kind, _, name = self.query_one(PickList).chosen.partition(":")
        if kind == "text":
            question = ConfirmScreen(f"Forget the {self._saved.noun} {name}?", self._texts[name], "forget")
            self.kbtui.push_screen(question, lambda sure: self._forget(name) if sure else None)

    def _forget(self, name: str) -> None:
        try:
            self._saved.remove(name)
        except KbtuiError as error:
            self.kbtui.tell(str(error), "error")
        self._read()
        self._narrow()

    def do_choose(self) -> None:
        kind, _, name = self.query_one(PickList).chosen.partition(":")
        if kind == _SAVE:
            app, saved, text = self.kbtui, self._saved, self._current
            self.dismiss(None)
            ask_name(app, saved, text)
        elif kind == "text":
            self.dismiss(self._texts[name])


def ask_name(app: KbtuiApp, saved: Saved, text: str) -> None:
    """Ask for a name and save `text` under it."""

    def keep(name: str | None) -> None:
        if not name:
            return
        try:
            saved.put(name, text)
        except KbtuiError as error:
            app.tell(str(error), "error")
        else:
            app.tell(f"the {saved.noun} is saved as {name}")

    app.push_screen(
        PromptScreen(f"Save the {saved.noun}", "Under which name? One that exists is replaced.", "name"), keep
    )
