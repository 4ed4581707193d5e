"""One candidate, read like a code review: what changed, did it work, how much by case, and why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.events import Resize

from kbtui.state.run_state import Candidate
from kbtui.tui import glyphs as g
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line, LineBuilder, Lines, both_ends, text_line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.screens.steering import Steering
from kbtui.tui.views import cases, code, facts
from kbtui.tui.views import numbers as n
from kbtui.tui.views.status import candidate_mark, evidence, origin, status_word
from kbtui.tui.views.tree import marks
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Footer, Strip, tabs_line

TABS = ("source", "diff", "cases", "facts", "verdict")


class CandidateScreen(Steering, KbtuiScreen[None]):
    """Tabs over one candidate; stays up to date while it is judged."""

    PLACES: ClassVar[tuple[str, ...]] = ("candidate", "any")
    BINDINGS = bindings_of("candidate")

    def __init__(self, candidate_id: int, tab: str = "source") -> None:
        super().__init__()
        self.candidate_id = candidate_id
        self.tab = tab
        self.against = "parent"
        self._painted: object = None

    def body(self) -> ComposeResult:
        yield Strip(id="header")
        yield Strip(id="tabs")
        yield LineView(self.tab, id="content")
        yield Footer("candidate", "any")

    @property
    def chosen(self) -> Candidate | None:
        session = self.kbtui.session
        return session.state.candidates.get(self.candidate_id) if session is not None else None

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
        if candidate is None or session is None:
            self.query_one("#header", Strip).set_lines([text_line(f" no candidate #{self.candidate_id}", "warn")])
            return
        seen = (candidate.stage, candidate.status, candidate.reward, len(candidate.tags), session.state.best_id)
        key = (self.candidate_id, self.tab, self.against, self.size, seen, session.state.pinned)
        if key == self._painted:
            return
        self._painted = key
        self._paint_head(candidate)
        self.run_worker(self._paint_content(candidate, key), group="content", exclusive=True, exit_on_error=True)

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
        glyph, role = candidate_mark(state, candidate)
        left = LineBuilder().add(f" {glyph} ", role).add(f"#{candidate.id} ", "accent").add(origin(candidate), "strong")
        for word in marks(state, candidate):
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
        return both_ends(left.line(), text_line(n.time_of(candidate) + " ", "label"), width)

    async def _paint_content(self, candidate: Candidate, key: object) -> None:
        view = self.query_one("#content", LineView)
        width = max(view.size.width, 20)
        state = self._state
        other = self._other()
        makers: dict[str, Callable[[], Lines]] = {
            "source": lambda: code.source_lines(candidate.source),
            "diff": lambda: code.diff_lines(other.source if other is not None else "", candidate.source),
            "cases": lambda: Lines(cases.case_lines(state, candidate, width)),
            "facts": lambda: Lines(facts.fact_lines(state, candidate)),
            "verdict": lambda: Lines(facts.verdict_lines(state, candidate, width)),
        }
        make = makers[self.tab]
        # Highlighting and comparing go to a thread: a model may write a long file.
        lines = await asyncio.to_thread(make) if self.tab in ("source", "diff") else make()
        note = text_line(f"against {self._other_name()}", "label") if self.tab == "diff" else ()
        if key == self._painted:
            view.pane_title = self.tab.capitalize()
            view.show(lines, note=note)

    # ------------------------------------------------------------ what it is compared with

    def _other(self) -> Candidate | None:
        state, candidate = self._state, self.chosen
        if candidate is None:
            return None
        if self.against == "best":
            return state.best
        if self.against == "baseline" or candidate.parent_id is None:
            return state.baseline
        return state.candidates.get(candidate.parent_id)

    def _other_name(self) -> str:
        other = self._other()
        word = "baseline" if other is not None and other.id == self._state.baseline_id else self.against
        return f"{word} #{other.id}" if other is not None else "nothing"

    def do_diff_other(self) -> None:
        if self.tab == "diff":
            choices = ["parent", "baseline", "best"]
            self.against = choices[(choices.index(self.against) + 1) % len(choices)]
        self._to_tab("diff")

    # ------------------------------------------------------------ tabs and neighbours

    def _to_tab(self, tab: str) -> None:
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
        self.candidate_id = candidate_id
        self.query_one("#content", LineView).jump(0)
        self.kbtui.choose_in_tree(candidate_id)
        self.paint()

    def do_next_candidate(self) -> None:
        self._to_candidate(next((i for i in sorted(self._state.candidates) if i > self.candidate_id), None))

    def do_previous_candidate(self) -> None:
        before = [i for i in self._state.candidates if i < self.candidate_id]
        self._to_candidate(max(before, default=None))

    def do_go_parent(self) -> None:
        self._to_candidate(self.chosen.parent_id if self.chosen is not None else None)

    def do_back(self) -> None:
        self.dismiss(None)
