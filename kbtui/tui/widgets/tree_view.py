"""The candidate tree: the chosen candidate stays chosen, and stays on its line of the screen, while the tree grows."""

from __future__ import annotations

from textual.events import Click

from kbtui.state.run_state import RunState
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line, LineBuilder
from kbtui.tui.views.tree import Folds, TreeSource, pulls_written, rows_of
from kbtui.tui.widgets.line_view import LineView


class TreeView(LineView):
    """Shows a run's candidates."""

    BINDINGS = bindings_of("tree")
    has_cursor = True

    def __init__(self) -> None:
        super().__init__("Candidates", id="tree")
        self.folds = Folds()
        self.follow_best = True
        """Until a person moves the cursor, it is on the best candidate."""
        self._state: RunState | None = None
        self._marked: int | None = None
        self._key: object = None

    def show_state(self, state: RunState, marked: int | None = None) -> None:
        """Bring the tree up to date with a state that may have grown. `marked`: the one that others are compared with."""
        self._state, self._marked = state, marked
        source = self._fresh_source(state)
        if source is None:
            self.note = _note(state)
            self.repaint()
            return
        chosen, pull, at = self.chosen_id, self.chosen_pull, self.cursor - self.top
        if self.follow_best:
            chosen = state.best_id
        self.source = source
        written = state.pulls.get(pull) if pull is not None else None  # a replay may have gone back before it
        if written is not None and not self.follow_best and written.candidate_ids:
            chosen = written.candidate_ids[-1]  # what was being written is there now
        index = source.index_of(chosen) if chosen is not None else None
        if index is None and pull is not None:
            index = source.index_of_pull(pull)
        if index is None:
            self.show(source, note=_note(state))
            return
        self.cursor = index
        self.show(source, note=_note(state))
        if self.follow_best:
            self.keep_visible(index)
        else:
            # the tree grew above or below: scroll so that the chosen line stays where the eye left it
            self.jump(index - at)

    def _fresh_source(self, state: RunState) -> TreeSource | None:
        """New rows; None when the rows are those of before and only their contents may have changed."""
        outcomes = sum(1 for c in state.candidates.values() if c.stage != "generated")
        key = (
            id(state), len(state.candidates), outcomes, state.best_id, state.pinned, self._fold_key(),
            self._marked, *pulls_written(state),
        )  # fmt: skip
        if key == self._key:
            return None
        self._key = key
        return TreeSource(state, rows_of(state, self.folds), self._marked)

    def _fold_key(self) -> object:
        return (frozenset(self.folds.folded), frozenset(self.folds.opened), self.folds.everything)

    @property
    def chosen_id(self) -> int | None:
        """The candidate under the cursor; None on a line that stands for several, and in an empty tree."""
        source = self.source
        if not isinstance(source, TreeSource) or not source.rows:
            return None
        return source.rows[min(self.cursor, len(source.rows) - 1)].candidate_id

    @property
    def chosen_pull(self) -> int | None:
        """The pull under the cursor whose version is being written; None on any other line."""
        source = self.source
        if not isinstance(source, TreeSource) or not source.rows:
            return None
        return source.rows[min(self.cursor, len(source.rows) - 1)].pull

    def go_to(self, candidate_id: int) -> None:
        """Put the cursor on a candidate, unfolding what hides it."""
        if self._state is None or candidate_id not in self._state.candidates:
            return
        self.follow_best = False
        parent = self._state.candidates[candidate_id].parent_id
        if parent is not None:
            self.folds.opened.add(parent)
        while parent is not None:
            self.folds.folded.discard(parent)
            parent = self._state.candidates[parent].parent_id
        self.show_state(self._state, self._marked)
        assert isinstance(self.source, TreeSource)
        index = self.source.index_of(candidate_id)
        if index is not None:
            self.choose(index)

    def _go(self, lines: int) -> None:
        self.follow_best = False
        super()._go(lines)

    def on_click(self, event: Click) -> None:
        self.follow_best = False
        super().on_click(event)

    # ------------------------------------------------------------ actions

    def do_fold(self) -> None:
        chosen = self.chosen_id
        if self._state is None:
            return
        self.follow_best = False
        if chosen is None:
            parent = self._row_parent()
            if parent is not None:
                self.go_to(parent)
            return
        candidate = self._state.candidates[chosen]
        if candidate.children and chosen not in self.folds.folded:
            self.folds.folded.add(chosen)
            self.show_state(self._state, self._marked)
        elif candidate.parent_id is not None:
            self.go_to(candidate.parent_id)

    def do_unfold(self) -> None:
        if self._state is None:
            return
        self.follow_best = False
        chosen = self.chosen_id
        if chosen is None:
            parent = self._row_parent()
            if parent is not None:
                self.folds.opened.add(parent)
                self.show_state(self._state, self._marked)
            return
        if chosen in self.folds.folded:
            self.folds.folded.discard(chosen)
            self.show_state(self._state, self._marked)
        elif self._state.candidates[chosen].children:
            self.choose(self.cursor + 1)

    def do_fold_all(self) -> None:
        self.folds.everything = not self.folds.everything
        self.folds.folded.clear()
        self.folds.opened.clear()
        if self._state is not None:
            self.show_state(self._state, self._marked)

    def do_go_best(self) -> None:
        if self._state is not None and self._state.best_id is not None:
            self.go_to(self._state.best_id)
            self.follow_best = True

    def _row_parent(self) -> int | None:
        source = self.source
        return source.rows[self.cursor].parent_id if isinstance(source, TreeSource) and source.rows else None


def _note(state: RunState) -> Line:
    count = len(state.candidates)
    correct = sum(1 for c in state.candidates.values() if c.correct)
    return LineBuilder().add(f"{count}, {correct} correct", "label").line()
