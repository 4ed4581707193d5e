"""A version of your own: from a file, or a candidate's source edited in your editor."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from kbtui import syntax
from kbtui.state import commands as c
from kbtui.state.run_state import Candidate
from kbtui.text import clean_line
from kbtui.tui.session import who

if TYPE_CHECKING:
    from kbtui.tui.app import KbtuiApp

SOURCE_LIMIT = 1_000_000
"""Bytes of a file that is injected; a kernel has some thousands."""
EDITORS = ("nano", "vim", "vi", "sensible-editor")
"""Tried in this order where neither $VISUAL nor $EDITOR says which."""


class Injection:
    """The actions `inject` and `edit`, mixed into the screens that have a chosen candidate."""

    if TYPE_CHECKING:

        @property
        def kbtui(self) -> KbtuiApp: ...

        @property
        def chosen(self) -> Candidate | None: ...

        def _chosen_or_say(self) -> Candidate | None: ...

    def do_inject(self) -> None:
        from kbtui.tui.screens.dialogs import PromptScreen

        chosen = self.chosen
        editor = editor_command()
        text = "A file with your version of the kernel; it is judged like any other candidate."
        if chosen is not None and editor:
            text += f" Leave it empty to edit #{chosen.id} in {editor_name(editor)}."
        ask = PromptScreen("Inject a candidate", text, "file", check=file_problem, empty_ok=True)
        self.kbtui.push_screen(ask, self._inject)

    async def _inject(self, path: str | None) -> None:
        if path is None:
            return
        if not path:
            await self.do_edit()
            return
        file = Path(path).expanduser()
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            self.kbtui.tell(f"{file} cannot be read as text: {error}", "error")
            return
        await self.kbtui.ask(c.Inject(by=who(), name=clean_line(file.name, 80), source=source))

    async def do_edit(self) -> None:
        chosen = self._chosen_or_say()
        if chosen is None:
            return
        editor = editor_command()
        if not editor:
            self.kbtui.tell("no editor was found: set EDITOR, or inject a file", "warning")
            return
        if not editor_is_chosen() and not self.kbtui.editor_named:
            self._name_editor(editor, chosen)
            return
        folder = Path(tempfile.mkdtemp(prefix="kbtui-edit-"))  # of the user alone, like the file in it
        file = folder / f"c{chosen.id}.py"
        file.write_text(chosen.source, encoding="utf-8", errors="surrogatepass")
        await self._edit(editor, file, chosen)

    def _name_editor(self, editor: list[str], chosen: Candidate) -> None:
        """Say once which editor comes, since nobody has chosen it, before the terminal is given to it."""
        from kbtui.tui.screens.dialogs import ConfirmScreen

        async def answered(sure: bool | None) -> None:
            if sure:
                self.kbtui.editor_named = True
                await self.do_edit()

        name = Path(editor[0]).name
        effect = "Neither $VISUAL nor $EDITOR is set; `export EDITOR=...` before kbtui starts chooses another one."
        self.kbtui.push_screen(ConfirmScreen(f"Edit #{chosen.id} in {name}?", effect, "edit"), answered)

    async def _edit(self, editor: list[str], file: Path, chosen: Candidate) -> None:
        if not await self._run_editor(editor, file):
            _remove(file)
            return
        problem, source = file_problem(str(file)), ""
        if not problem:
            source = file.read_text(encoding="utf-8")
            if source == chosen.source:
                _remove(file)
                self.kbtui.tell("nothing was changed, so nothing is injected")
                return
            problem = syntax_problem(source)
        if problem:
            self._again(editor, file, chosen, problem)
        elif await self.kbtui.ask(c.Inject(by=who(), name=f"edit of #{chosen.id}", source=source)):
            _remove(file)
        else:
            self.kbtui.tell(f"your version is kept in {file}", "warning")

    def _again(self, editor: list[str], file: Path, chosen: Candidate, problem: str) -> None:
        from kbtui.tui.screens.dialogs import ConfirmScreen

        async def answered(sure: bool | None) -> None:
            if sure:
                await self._edit(editor, file, chosen)
            else:
                self.kbtui.tell(f"your version is kept in {file}: inject it by `i` once it is mended", "warning")

        # in a dialog, since the cockpit has just come back and a toast would be missed
        self.kbtui.push_screen(ConfirmScreen(problem, "Nothing was injected. Edit it again?", "edit"), answered)

    async def _run_editor(self, editor: list[str], file: Path) -> bool:
        """Give the terminal to the editor until it ends. False when that was not possible, which has been said."""
        app = self.kbtui
        try:
            # Nothing may be painted while the terminal is not ours. The loop goes on: the run's process must not find
            # a viewer that reads nothing.
            with app.batch_update(), app.suspend():
                ended = await asyncio.to_thread(subprocess.run, [*editor, str(file)], check=False)
        except SuspendNotSupported:
            app.tell("this terminal cannot be lent to an editor: inject a file", "warning")
            return False
        except OSError as error:
            app.tell(f"{editor[0]} cannot be started: {error.strerror or error}", "error")
            return False
        finally:
            app.refresh(repaint=True, layout=True)
        if ended.returncode:
            app.tell(f"{Path(editor[0]).name} ended with status {ended.returncode}: nothing is injected", "warning")
        return ended.returncode == 0


def editor_name(editor: list[str]) -> str:
    """The editor as people call it, and how to have another where nobody has chosen this one."""
    name = Path(editor[0]).name
    return name if editor_is_chosen() else f"{name} ($EDITOR names another)"


def editor_is_chosen() -> bool:
    """Whether $VISUAL or $EDITOR says which editor is meant."""
    return bool(editor_command({name: os.environ.get(name, "") for name in ("VISUAL", "EDITOR")} | {"PATH": ""}))


def editor_command(environment: dict[str, str] | None = None) -> list[str]:
    """The editor and its arguments: $VISUAL, else $EDITOR, else the first that is installed; [] when there is none."""
    env = os.environ if environment is None else environment
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(env.get(name, ""))
        except ValueError:  # an open quote: as good as unset
            continue
        if words:
            return words
    found = next((path for name in EDITORS if (path := shutil.which(name, path=env.get("PATH")))), None)
    return [found] if found else []


def file_problem(text: str) -> str:
    """What is wrong with the path of a file to inject; "" when nothing is."""
    path = Path(text).expanduser()
    try:
        if not path.is_file():
            return f"{text} is not a file" if path.exists() else f"there is no file {text}"
        size = path.stat().st_size
        if size > SOURCE_LIMIT:
            return f"{text} has {size:,} bytes, a kernel has {SOURCE_LIMIT:,} at most"
        source = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        return f"{text} cannot be read as text: {error}"
    return syntax_problem(source)


def syntax_problem(source: str) -> str:
    """Why a source is no Python; "" when it is."""
    try:
        syntax.parse(source)
    except SyntaxError as error:
        line = (error.text or "").strip()
        return f"line {error.lineno}: {error.msg}" + (f": {clean_line(line, 60)}" if line else "")
    except (ValueError, RecursionError, MemoryError) as error:
        return f"it cannot be read as Python: {error}"
    return ""


def _remove(file: Path) -> None:
    shutil.rmtree(file.parent, ignore_errors=True)  # a file in /tmp is no reason to fail
