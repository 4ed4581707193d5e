"""What a person can do to a run and to its candidates, from the cockpit and from a candidate's screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbtui.history.export import headed_source
from kbtui.state import commands as c
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean_line
from kbtui.tui.session import who

if TYPE_CHECKING:
    from kbtui.tui.app import KbtuiApp

MORE_PULLS = 5
SOURCE_LIMIT = 1_000_000
"""Bytes of a file that is injected; a kernel has some thousands."""


class Steering:
    """Actions over `chosen`, mixed into the screens that have a chosen candidate."""

    if TYPE_CHECKING:

        @property
        def kbtui(self) -> KbtuiApp: ...

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that actions mean."""
        raise NotImplementedError

    @property
    def _state(self) -> RunState:
        session = self.kbtui.session
        assert session is not None
        return session.state

    def _chosen_or_say(self) -> Candidate | None:
        if self.chosen is None:
            self.kbtui.tell("no candidate is chosen", "warning")
        return self.chosen

    # ------------------------------------------------------------ the run

    async def do_pause(self) -> None:
        paused = self._state.status == "paused"
        await self.kbtui.ask(c.Resume(by=who()) if paused else c.Pause(by=who()))

    async def do_step(self) -> None:
        await self.kbtui.ask(c.Step(by=who()))

    async def do_more(self) -> None:
        await self.kbtui.ask(c.SetBudget(by=who(), iterations=self._state.iterations + MORE_PULLS))

    async def do_fewer(self) -> None:
        state = self._state
        least = max(state.pulls_ended, 1)
        await self.kbtui.ask(c.SetBudget(by=who(), iterations=max(state.iterations - MORE_PULLS, least)))

    def do_stop(self) -> None:
        from kbtui.tui.screens.dialogs import ConfirmScreen

        run_id = self.kbtui.session.run_id if self.kbtui.session else ""
        effect = "The pull in flight is abandoned and the run's process ends. `kbtui run --continue` can go on later."
        self.kbtui.push_screen(ConfirmScreen(f"Stop run {run_id}?", effect, "stop it"), self._stop)

    async def _stop(self, sure: bool | None) -> None:
        if sure:
            await self.kbtui.ask(c.Stop(by=who()))

    def do_force(self) -> None:
        from kbtui.tui.screens.arms import ForceScreen

        chosen = self.chosen
        parent = chosen.id if chosen is not None and chosen.correct else None
        self.kbtui.push_screen(ForceScreen(self._state, parent), self._command)

    def do_ban(self) -> None:
        from kbtui.tui.screens.arms import BanScreen

        self.kbtui.push_screen(BanScreen(self._state), self._command)

    async def _command(self, command: c.AnyCommand | None) -> None:
        if command is not None:
            await self.kbtui.ask(command)

    def do_inject(self) -> None:
        from kbtui.tui.screens.dialogs import PromptScreen

        text = "A file with your version of the kernel; it is judged like any other candidate."
        self.kbtui.push_screen(PromptScreen("Inject a candidate", text, "file", check=file_problem), self._inject)

    async def _inject(self, path: str | None) -> None:
        if not path:
            return
        file = Path(path).expanduser()
        try:
            source = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            self.kbtui.tell(f"{file} cannot be read as text: {error}", "error")
            return
        await self.kbtui.ask(c.Inject(by=who(), name=clean_line(file.name, 80), source=source))

    async def do_cancel_reply(self) -> None:
        await self.kbtui.ask(c.Cancel(by=who()))

    # ------------------------------------------------------------ a candidate

    async def do_pin(self) -> None:
        chosen = self._chosen_or_say()
        if chosen is not None:
            again = chosen.id == self._state.pinned
            await self.kbtui.ask(c.Pin(by=who(), parent_id=None if again else chosen.id))

    def do_tag(self) -> None:
        from kbtui.tui.screens.dialogs import PromptScreen

        chosen = self._chosen_or_say()
        if chosen is None:
            return
        number = chosen.id

        async def send(tag: str | None) -> None:
            if tag:
                word, _, note = tag.partition(" ")
                await self.kbtui.ask(c.Tag(by=who(), candidate_id=number, tag=word, note=note))

        text = "A word for the tree, and after a space a note if you like."
        self.kbtui.push_screen(PromptScreen(f"Mark candidate #{number}", text, "tag"), send)

    def do_copy(self) -> None:
        chosen = self._chosen_or_say()
        if chosen is not None:
            self.kbtui.copy_text(chosen.source, f"c{chosen.id}.py", f"the source of #{chosen.id}")

    def do_export(self) -> None:
        chosen = self._chosen_or_say()
        if chosen is None:
            return
        run_id = self.kbtui.session.run_id if self.kbtui.session else "run"
        path = Path.cwd() / f"{run_id}-c{chosen.id}.py"
        try:
            # "x": a file that is there already may have been edited
            with open(path, "x", encoding="utf-8", errors="surrogatepass") as file:
                file.write(headed_source(self._state, chosen))
        except FileExistsError:
            self.kbtui.tell(f"{path} is there already: move it away first", "warning")
        except OSError as error:
            self.kbtui.tell(f"cannot write {path}: {error.strerror or error}", "error")
        else:
            self.kbtui.tell(f"#{chosen.id} is in {path}")


def file_problem(text: str) -> str:
    """What is wrong with the path of a file to inject; "" when nothing is."""
    path = Path(text).expanduser()
    try:
        if not path.is_file():
            return f"{text} is not a file" if path.exists() else f"there is no file {text}"
        size = path.stat().st_size
        if size > SOURCE_LIMIT:
            return f"{text} has {size:,} bytes, a kernel has {SOURCE_LIMIT:,} at most"
        path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        return f"{text} cannot be read as text: {error}"
    return ""
