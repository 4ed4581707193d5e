"""What a person can do to a run and to its candidates, from the cockpit and from a candidate's screen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kbtui.history.export import headed_source
from kbtui.state import commands as c
from kbtui.state.acts import last_act, nothing_left
from kbtui.state.run_state import Candidate, RunState
from kbtui.tui.screens.injection import Injection
from kbtui.tui.session import who
from kbtui.tui.views.status import origin

MORE_PULLS = 5


class Steering(Injection):
    """Actions over `chosen`, mixed into the screens that have a chosen candidate."""

    @property
    def chosen(self) -> Candidate | None:
        """The candidate that actions mean."""
        raise NotImplementedError

    @property
    def chosen_pull(self) -> int | None:
        """The pull that actions mean where no candidate of it exists yet."""
        return None

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

    # ------------------------------------------------------------ limits and hints

    async def do_more_usd(self) -> None:
        await self._change_usd(1)

    async def do_fewer_usd(self) -> None:
        await self._change_usd(-1)

    async def _change_usd(self, way: int) -> None:
        state = self._state
        if state.budget_usd is None:
            self.kbtui.tell("the run has no limit in dollars: `kbtui budget RUN --budget-usd X` sets one", "warning")
            return
        # what is spent is spent: a limit below it would only end the run
        limit = max(stepped(state.budget_usd, way), state.cost_usd if way < 0 else 0.0)
        await self.kbtui.ask(c.SetBudget(by=who(), budget_usd=limit))

    def do_hint(self) -> None:
        from kbtui.tui.screens.dialogs import PromptScreen

        before = self._state.hint

        async def send(text: str | None) -> None:
            if text is not None and text != before:
                await self.kbtui.ask(c.Hint(by=who(), text=text))

        about = "Every coming prompt carries this sentence until you change it; empty takes it back."
        self.kbtui.push_screen(PromptScreen("A hint for the model", about, "hint", value=before, empty_ok=True), send)

    # ------------------------------------------------------------ taking back, and ending what is in work

    async def do_undo(self) -> None:
        from kbtui.tui.screens.dialogs import ConfirmScreen

        act = last_act(self._state)
        if act is None:
            self.kbtui.tell(nothing_left(self._state), "warning")
            return
        command = c.Undo(by=who(), act=act.seq)
        if _person(act.by) == _person(command.by):
            await self.kbtui.ask(command)
            return

        async def send(sure: bool | None) -> None:
            if sure:
                await self.kbtui.ask(command)

        # somebody else's: it may have been meant
        self.kbtui.push_screen(ConfirmScreen(f"Take back what {act.by} did?", act.text, "take it back"), send)

    def do_end_work(self) -> None:
        """One rule: what is in work on the chosen line ends; where nothing is, the replies that are being written."""
        from kbtui.tui.screens.dialogs import ConfirmScreen

        work = work_at(self._state, self.chosen, self.chosen_pull)
        if work is None:
            self.kbtui.tell("nothing is in work here, and no model is writing", "warning")
            return

        async def send(sure: bool | None) -> None:
            if sure:
                await self.kbtui.ask(work.command)

        self.kbtui.push_screen(ConfirmScreen(work.question, work.effect, work.yes), send)

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

    def do_compare(self) -> None:
        """The mark is this viewer's own: it changes nothing in the run."""
        chosen, session = self._chosen_or_say(), self.kbtui.session
        if chosen is None or session is None:
            return
        session.marked = None if session.marked == chosen.id else chosen.id
        session.version += 1
        what = "to compare others with it" if session.marked is not None else "no longer"
        self.kbtui.tell(f"#{chosen.id} is marked {what}")

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


@dataclass(frozen=True)
class Work:
    """What `x` would end: the command, and what is asked before it is sent."""

    command: c.Kill | c.Cancel
    question: str
    effect: str
    yes: str


def work_at(state: RunState, chosen: Candidate | None, pull: int | None) -> Work | None:
    """What is in work: the judgement of the chosen candidate, else the reply to the chosen pull, else any replies."""
    if chosen is not None and _is_judged(state, chosen):
        effect = "It is judged no further and its pull is dropped: the bandit learns nothing from it."
        return Work(
            c.Kill(by=who(), candidate_id=chosen.id),
            f"Kill candidate #{chosen.id}, {origin(chosen)}?",
            effect,
            "kill it",
        )
    written = sorted({number for number, _ in state.asks if not state.pulls[number].ended})
    if not written:
        return None
    number = pull if pull in written else written[0] if len(written) == 1 else None
    what = (
        f"the reply to pull {number}" if number is not None else f"the replies to pulls {', '.join(map(str, written))}"
    )
    effect = "What has arrived is paid for and lost; the pull is dropped, and the run goes on."
    return Work(c.Cancel(by=who(), pull=number), f"Cancel {what}?", effect, "cancel it")


def _is_judged(state: RunState, candidate: Candidate) -> bool:
    """Whether something is still to be done to a candidate: in a pull that goes on, or queued by a person."""
    pull = state.pulls.get(candidate.pull)
    goes_on = not pull.ended if pull is not None else candidate.generator == "inject"
    return goes_on and candidate.status in ("generated", "compiled", "verified")


def stepped(limit: float, way: int) -> float:
    """A limit in dollars, a step up or down: 0.10 below a dollar, 0.50 below five, 1 below twenty, else 5."""
    at = limit if way > 0 else limit - 1e-9  # on a border the step is that of the side one goes to
    step = 0.1 if at < 1 else 0.5 if at < 5 else 1.0 if at < 20 else 5.0
    return max(0.0, round(limit + way * step, 2))


def _person(by: str) -> str:
    """The user of `user@terminal`."""
    return by.partition("@")[0]
