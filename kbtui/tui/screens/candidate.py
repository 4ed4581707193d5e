"""One candidate, read like a code review: what changed, did it work, how much by case, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.events import Resize

from kbtui.errors import KbtuiError
from kbtui.state.events import Asked
from kbtui.state.run_state import Candidate, RunState
from kbtui.tui import glyphs as g
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line, LineBuilder, Lines, both_ends, text_line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.screens.steering import Steering
from kbtui.tui.views import cases, code, facts, prompt
from kbtui.tui.views import numbers as n
from kbtui.tui.views.offence import offending_lines
from kbtui.tui.views.status import evidence, in_work, origin, status_word, verdict_mark
from kbtui.tui.views.tree import marks, writing_text
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Footer, Strip, tabs_line

TABS = ("source", "diff", "cases", "facts", "prompt", "verdict")
SIDE_BY_SIDE = 100
"""Columns from which two versions have room beside each other."""


class CandidateScreen(Steering, KbtuiScreen[None]):
    """Tabs over one candidate; stays up to date while it is judged. Before there is one, over the reply that grows."""

    PLACES: ClassVar[tuple[str, ...]] = ("candidate", "any")
    NEWCOMER = (("next_tab", "next tab"), ("side_by_side", "side by side"), ("next_candidate", "next candidate"))
    BINDINGS = bindings_of("candidate")

    def __init__(self, candidate_id: int | None, tab: str = "source", *, pull: int | None = None) -> None:
        """`candidate_id` None: what is being written in `pull`."""
        super().__init__()
        self._candidate_id = candidate_id
        self._pull = pull
        self.tab = tab
        self.against = "parent"
        self.beside = False
        self._requests: dict[tuple[int, int], list[Asked]] = {}
        """What models were asked, by pull and how many requests it has had."""
        self._painted: object = None

    def body(self) -> ComposeResult:
        yield Strip(id="header")
        yield Strip(id="tabs")
        yield LineView(self.tab, id="content")
        yield Footer("candidate", "any")

    @property
    def candidate_id(self) -> int | None:
        """The candidate; None while it is only being written."""
        session = self.kbtui.session
        if self._candidate_id is None and session is not None and self._pull is not None:
            pull = session.state.pulls.get(self._pull)
            if pull is not None and pull.candidate_ids:
                self._candidate_id = pull.candidate_ids[-1]
        return self._candidate_id

    @property
    def chosen(self) -> Candidate | None:
        session, number = self.kbtui.session, self.candidate_id
        return session.state.candidates.get(number) if session is not None and number is not None else None

    @property
    def chosen_pull(self) -> int | None:
        chosen = self.chosen
        return chosen.pull if chosen is not None else self._pull

    def on_mount(self) -> None:
        super().on_mount()
        self.set_focus(self.query_one("#content", LineView))
        self.call_after_refresh(self.paint)

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self._painted = None
        self.call_after_refresh(self.paint)

    # ------------------------------------------------------------ painting

    def paint_panes(self) -> None:
        candidate, session = self.chosen, self.kbtui.session
        if session is None:
            return
        if candidate is None:
            self._paint_writing(session.state)
            return
        seen = (candidate.stage, candidate.status, candidate.reward, len(candidate.tags), session.state.best_id)
        key = (
            self.candidate_id, self.tab, self.against, self.beside, self.size, seen, session.state.pinned,
            session.marked, self._talk(candidate.pull), in_work(session.state, candidate),
        )  # fmt: skip
        if key == self._painted:
            return
        self._painted = key
        self._paint_head(candidate)
        self.run_worker(self._paint_content(candidate, key), group="content", exclusive=True, exit_on_error=True)

    def _talk(self, pull: int) -> object:
        """What changes when a model writes; nothing for tabs that do not show it."""
        if self.tab != "prompt":
            return None
        state = self._state
        found, growing = state.pulls.get(pull), state.reply_deltas.get(pull)
        return found and (found.calls, len(found.replies), found.ended), growing and growing.characters

    def _paint_writing(self, state: RunState) -> None:
        """There is no candidate yet: the prompt and the reply as it grows."""
        pull = state.pulls.get(self._pull) if self._pull is not None else None
        if pull is None:
            missing = "no such candidate" if self._candidate_id is None else f"no candidate #{self._candidate_id}"
            self.query_one("#header", Strip).set_lines([text_line(f" {missing}", "warn")])
            return
        self.tab = "prompt"
        key = (self._pull, self.size, self._talk(pull.number))
        if key == self._painted:
            return
        self._painted = key
        width = self.size.width
        left = (
            LineBuilder().add(f" {g.WORK} ", "info").add(f"pull {pull.number} ", "accent").add(pull.strategy, "strong")
        )
        how = f"dropped: {pull.outcome}" if pull.ended else writing_text(state, pull.number)
        title = both_ends(left.line(), text_line(f"{how} ", "warn" if pull.ended else "info"), width)
        about = text_line(f" c{pull.cluster} from #{pull.parent_id} {g.NONE} it is no candidate yet", "label")
        self.query_one("#header", Strip).set_lines([title, about])
        self.query_one("#tabs", Strip).set_lines([tabs_line(["prompt"], 0, ["tab_prompt"])])
        self.run_worker(
            self._paint_prompt(pull.number, "llm", key), group="content", exclusive=True, exit_on_error=True
        )

    async def _paint_prompt(self, pull: int, generator: str, key: object) -> None:
        session = self.kbtui.session
        if session is None:
            return
        found = session.state.pulls.get(pull)
        asked = await self._asked(pull, found.calls) if found is not None else []
        view = self.query_one("#content", LineView)
        lines = prompt.prompt_lines(session.state, found, asked, generator, max(view.size.width, 20))
        if key == self._painted:
            view.pane_title = "Prompt and reply"
            view.show(Lines(lines))

    async def _asked(self, pull: int, calls: int) -> list[Asked]:
        session = self.kbtui.session
        if session is None or not calls:
            return []
        if (pull, calls) not in self._requests:
            try:
                self._requests = {(pull, calls): await session.feed.requests(pull)}
            except KbtuiError as error:
                self.kbtui.tell(str(error), "error")
                self._requests = {(pull, calls): []}
        return self._requests[pull, calls]

    def _paint_head(self, candidate: Candidate) -> None:
        width = self.size.width
        self.query_one("#header", Strip).set_lines([self._title(candidate, width), self._subtitle(candidate, width)])
        names = [self._tab_name(tab) for tab in TABS]
        self.query_one("#tabs", Strip).set_lines(
            [tabs_line(names, TABS.index(self.tab), [f"tab_{tab}" for tab in TABS])]
        )

    def _tab_name(self, tab: str) -> str:
        return f"diff to {self._other_name()}" if tab == "diff" else tab

    def _title(self, candidate: Candidate, width: int) -> Line:
        state = self._state
        glyph, role = verdict_mark(state, candidate)
        left = LineBuilder().add(f" {glyph} ", role).add(f"#{candidate.id} ", "accent").add(origin(candidate), "strong")
        if candidate.id == state.best_id:
            left.add(f" {g.BEST} best", "accent")
        marked = self.kbtui.session.marked if self.kbtui.session is not None else None
        for word in marks(state, candidate, marked):
            left.gap().add(word, "info")
        right = LineBuilder()
        text, figure_role = n.figure(candidate)
        right.add(text, "accent" if figure_role == "text" else figure_role)
        if candidate.timing is not None:
            right.gap().add(n.interval_text(candidate.timing))
        right.gap().add(status_word(state, candidate), role)
        return both_ends(left.line(), right.add(" ").line(), width)

    def _subtitle(self, candidate: Candidate, width: int) -> Line:
        left = LineBuilder().add(f" pull {candidate.pull}", "label")
        if candidate.parent_id is not None:
            left.add(f" {g.NONE} from #{candidate.parent_id}", "label")
        left.add(f" {g.NONE} {candidate.generator}", "label")
        if why := evidence(candidate):
            left.add(f" {g.NONE} ", "label").add(why, "warn")
        elif candidate.detail:
            left.add(f" {g.NONE} {candidate.detail}", "label")
        right = LineBuilder()
        if (timing := candidate.timing) is not None:
            right.add(time := n.objective_time(self._state, timing), "label")
            if time and width >= 100 and (kind := n.time_kind(self._state, timing)):
                right.gap().add(kind, "label")
        return both_ends(left.line(), right.add(" ").line(), width)

    async def _paint_content(self, candidate: Candidate, key: object) -> None:
        if self.tab == "prompt":
            await self._paint_prompt(candidate.pull, candidate.generator, key)
            return
        view = self.query_one("#content", LineView)
        width = max(view.size.width, 20)
        state = self._state
        other = self._other()
        before = other.source if other is not None else ""
        beside = self.beside and self.size.width >= SIDE_BY_SIDE
        makers: dict[str, Callable[[], Lines]] = {
            "source": lambda: code.source_lines(candidate.source, offending_lines(candidate)),
            "diff": lambda: (
                code.side_lines(before, candidate.source, width)
                if beside
                else code.diff_lines(before, candidate.source)
            ),
            "cases": lambda: Lines(cases.case_lines(state, candidate, width)),
            "facts": lambda: Lines(facts.fact_lines(state, candidate, width)),
            "verdict": lambda: Lines(facts.verdict_lines(state, candidate, width)),
        }
        make = makers[self.tab]
        # Highlighting and comparing go to a thread: a model may write a long file.
        lines = await asyncio.to_thread(make) if self.tab in ("source", "diff") else make()
        note = self._diff_note(before, candidate.source) if self.tab == "diff" else ()
        if key == self._painted:
            view.pane_title = self.tab.capitalize()
            view.show(lines, note=note)

    # ------------------------------------------------------------ what it is compared with

    def _diff_note(self, before: str, after: str) -> Line:
        added, removed = code.diff_counts(before, after)
        out = LineBuilder().add(f"against {self._other_name()}", "label").gap(2)
        return out.add(f"+{added}", "good").gap().add(f"-{removed}", "bad").line()

    def _other(self) -> Candidate | None:
        state, candidate = self._state, self.chosen
        if candidate is None:
            return None
        if self.against == "best":
            return state.best
        if self.against == "marked":
            session = self.kbtui.session
            return state.candidates.get(session.marked) if session is not None and session.marked is not None else None
        if self.against == "baseline" or candidate.parent_id is None:
            return state.baseline
        return state.candidates.get(candidate.parent_id)

    def _other_name(self) -> str:
        other = self._other()
        word = "baseline" if other is not None and other.id == self._state.baseline_id else self.against
        return f"{word} #{other.id}" if other is not None else "nothing"

    def do_diff_other(self) -> None:
        if self.tab == "diff":
            session = self.kbtui.session
            marked = session is not None and session.marked not in (None, self.candidate_id)
            choices = ["parent", "baseline", "best", *(["marked"] if marked else [])]
            at = choices.index(self.against) if self.against in choices else 0
            self.against = choices[(at + 1) % len(choices)]
        self._to_tab("diff")

    def do_side_by_side(self) -> None:
        if self.size.width < SIDE_BY_SIDE:
            self.kbtui.tell(f"side by side needs {SIDE_BY_SIDE} columns, here are {self.size.width}", "warning")
            return
        self.beside = not self.beside
        self._to_tab("diff")

    # ------------------------------------------------------------ tabs and neighbours

    def _to_tab(self, tab: str) -> None:
        if self.chosen is None:
            self.kbtui.tell("it is only being written: there is a prompt, and no candidate yet")
            return
        if tab != self.tab:
            self.query_one("#content", LineView).jump(0)
        self.tab = tab
        self.paint()

    def do_tab_source(self) -> None:
        self._to_tab("source")

    def do_tab_diff(self) -> None:
        self._to_tab("diff")

    def do_tab_cases(self) -> None:
        self._to_tab("cases")

    def do_tab_facts(self) -> None:
        self._to_tab("facts")

    def do_tab_prompt(self) -> None:
        self._to_tab("prompt")

    def do_tab_verdict(self) -> None:
        self._to_tab("verdict")

    def do_next_tab(self) -> None:
        self._to_tab(TABS[(TABS.index(self.tab) + 1) % len(TABS)])

    def do_previous_tab(self) -> None:
        self._to_tab(TABS[(TABS.index(self.tab) - 1) % len(TABS)])

    def show_candidate(self, candidate_id: int) -> None:
        """Show another candidate in the same tab."""
        self._to_candidate(candidate_id)

    def _to_candidate(self, candidate_id: int | None) -> None:
        if candidate_id is None or candidate_id not in self._state.candidates:
            self.kbtui.tell("there is no candidate that way")
            return
        self._candidate_id = candidate_id
        self.query_one("#content", LineView).jump(0)
        self.kbtui.choose_in_tree(candidate_id)
        self.paint()

    def do_next_candidate(self) -> None:
        here = self.candidate_id if self.candidate_id is not None else max(self._state.candidates, default=0)
        self._to_candidate(next((i for i in sorted(self._state.candidates) if i > here), None))

    def do_previous_candidate(self) -> None:
        here = self.candidate_id
        before = [i for i in self._state.candidates if here is None or i < here]
        self._to_candidate(max(before, default=None))

    def do_go_parent(self) -> None:
        self._to_candidate(self.chosen.parent_id if self.chosen is not None else None)

    def do_back(self) -> None:
        self.dismiss(None)
