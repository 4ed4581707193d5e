"""The candidates by lineage. Rows are flattened once per change; a row's line is made when it is visible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.cells import cell_len

from kbtui.state.run_state import Candidate, RunState
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, both_ends, crop, text_line
from kbtui.tui.views import numbers as n
from kbtui.tui.views.status import candidate_mark, evidence, in_work, origin, status_word

RECENT = 12
"""Candidates born last that are never folded away."""
FEW = 3
"""Fewer dropped siblings than this are not worth a fold."""
DEEP = 10
"""Levels of lineage drawn; older ones become an ellipsis."""


@dataclass(frozen=True)
class Row:
    """One row. `candidate_id` None: `hidden` old and dropped children of `parent_id` in one line, or, with a `pull`, the
    version that is being written in it.

    `rails` are the lineage's glyphs, two cells each. `below` counts the candidates folded under this one.
    """

    candidate_id: int | None
    parent_id: int | None
    rails: str
    below: int = 0
    hidden: int = 0
    pull: int | None = None


class Folds:
    """What is folded: branches that a person folded, and, unless `everything` is shown, old dropped candidates."""

    def __init__(self) -> None:
        self.folded: set[int] = set()
        self.opened: set[int] = set()
        """Parents whose dropped children a person asked to see."""
        self.everything = False


def rows_of(state: RunState, folds: Folds) -> list[Row]:
    """All rows in drawing order: children after their parent, by id."""
    rows: list[Row] = []
    newest = max(state.candidates, default=0)
    roots = [c.id for c in state.candidates.values() if c.parent_id not in state.candidates]
    written: dict[int, list[int]] = {}
    for number in pulls_written(state):
        written.setdefault(state.pulls[number].parent_id, []).append(number)
    # an explicit stack: lineages grow longer than Python's recursion limit
    stack: list[Iterator[Row]] = [iter(_siblings(state, folds, None, roots, "", newest, []))]
    while stack:
        row = next(stack[-1], None)
        if row is None:
            stack.pop()
            continue
        rows.append(row)
        if row.candidate_id is None or row.below:
            continue
        children, coming = state.candidates[row.candidate_id].children, written.get(row.candidate_id, [])
        if children or coming:
            stack.append(iter(_siblings(state, folds, row.candidate_id, children, row.rails, newest, coming)))
    return rows


def pulls_written(state: RunState) -> list[int]:
    """The pulls in which a version is being written, which is no candidate yet."""
    if state.status == "stopped":
        return []
    return [pull.number for pull in state.open_pulls if not pull.candidate_ids and pull.parent_id in state.candidates]


def _siblings(
    state: RunState, folds: Folds, parent: int | None, ids: list[int], rails: str, newest: int, coming: list[int]
) -> list[Row]:
    shown, hidden = ids, 0
    if not folds.everything and parent not in folds.opened:
        kept = [i for i in ids if not _is_old_and_dropped(state, state.candidates[i], newest)]
        if len(ids) - len(kept) >= FEW:
            shown, hidden = kept, len(ids) - len(kept)
    # a child's rails are its parent's with the parent's own branch turned into a rail
    inner = rails.replace("├ ", "│ ").replace("└ ", "  ")
    last = len(shown) + (1 if hidden else 0) + len(coming) - 1
    rows = []
    for place, child in enumerate(shown):
        branch = "" if parent is None else "└ " if place == last else "├ "
        below = _count_below(state, child) if child in folds.folded else 0
        rows.append(Row(child, parent, inner + branch, below=below))
    if hidden:
        rows.append(Row(None, parent, inner + ("├ " if coming else "└ "), hidden=hidden))
    for place, number in enumerate(coming, last + 1 - len(coming)):
        rows.append(Row(None, parent, inner + ("└ " if place == last else "├ "), pull=number))
    return rows


def _is_old_and_dropped(state: RunState, candidate: Candidate, newest: int) -> bool:
    """Childless, off the frontier, of no one's interest any more, and not among the newest."""
    return (
        candidate.id <= newest - RECENT
        and not candidate.children
        and not candidate.correct
        and not candidate.tags
        and candidate.status != "cheat"
        and candidate.generator != "inject"
        and candidate.id not in (state.best_id, state.pinned)
    )


def _count_below(state: RunState, candidate_id: int) -> int:
    count = 0
    todo = list(state.candidates[candidate_id].children)
    while todo:
        count += 1
        todo.extend(state.candidates[todo.pop()].children)
    return count


class TreeSource:
    """The tree as a pane shows it."""

    def __init__(self, state: RunState, rows: list[Row], marked: int | None = None) -> None:
        self._state = state
        self._marked = marked
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def line(self, index: int, width: int) -> Line:
        row = self.rows[index]
        if row.pull is not None:
            return _written_line(self._state, row, row.pull, width)
        if row.candidate_id is None:
            out = LineBuilder().add(f" {_shortened(row.rails)}", "faint")
            return out.add(f"… {row.hidden} more, dropped", "dim").line()
        return candidate_line(self._state, self._state.candidates[row.candidate_id], row, width, self._marked)

    def index_of_pull(self, pull: int) -> int | None:
        """The row of the version that is being written in a pull."""
        return next((index for index, row in enumerate(self.rows) if row.pull == pull), None)

    def index_of(self, candidate_id: int) -> int | None:
        """The row of a candidate; None when it is folded away."""
        for index, row in enumerate(self.rows):
            if row.candidate_id == candidate_id:
                return index
        return None


def candidate_line(state: RunState, candidate: Candidate, row: Row, width: int, marked: int | None = None) -> Line:
    """`│ ├ ✓ #4   tiling · BLOCK 2048      1.21x   44.7 µs  faster`."""
    glyph, role = candidate_mark(state, candidate)
    is_best = candidate.id == state.best_id
    working = in_work(state, candidate)
    faded = "dim" if role == "dim" else "text"
    out = LineBuilder().add(f" {_shortened(row.rails)}", "faint")
    out.add(f"{g.FOLDED} " if row.below else f"{glyph} ", role)
    out.add(f"#{candidate.id}", "accent" if is_best else "label").gap(max(1, 4 - len(str(candidate.id))))
    right = _right(state, candidate, width, working=working)
    room = width - right.cells - out.cells - 1
    extra = LineBuilder()
    for word in marks(state, candidate, marked):
        extra.gap().add(word, "info")
    if row.below:
        extra.gap().add(f"{row.below} folded", "dim")
    text = origin(candidate)
    if cell_len(text) > room - extra.cells:
        text = origin(candidate, short=True)
    out.extend(crop(text_line(text, "accent" if is_best else faded), max(room - extra.cells, 0))).extend(extra.line())
    return out.to(width - right.cells).extend(right.line()).line()


def _written_line(state: RunState, row: Row, number: int, width: int) -> Line:
    """`└ ↻ fusion · llm      writing, 412 tokens`: a version that is no candidate yet."""
    pull = state.pulls[number]
    out = LineBuilder().add(f" {_shortened(row.rails)}", "faint").add(f"{g.WORK} ", "info")
    out.add(f"pull {number} {g.NONE} {pull.strategy}", "text")
    return both_ends(out.line(), text_line(f"{writing_text(state, number)} ", "info"), width)


def writing_text(state: RunState, number: int) -> str:
    """How far the writing in a pull is: `asking`, `writing, 412 tokens`, `thinking, 90 tokens`, `cancelled`."""
    reply = state.reply_deltas.get(number)
    if reply is not None:
        return f"{'thinking' if reply.thinking else 'writing'}, {n.plural(reply.tokens, 'token')}"
    asked = any(pull == number for pull, _ in state.asks)
    return "asking the model" if asked else "writing"


def marks(state: RunState, candidate: Candidate, marked: int | None = None) -> list[str]:
    """What people did to a candidate, in brackets. `marked` is the one that this viewer compares others with."""
    words = ["[pinned]"] if candidate.id == state.pinned else []
    words += ["[marked]"] if candidate.id == marked else []
    if state.from_scratch and candidate.id == state.baseline_id:
        words.append("[baseline]")
    return words + [f"[{tag}]" for tag in candidate.tags]


def _right(state: RunState, candidate: Candidate, width: int, *, working: bool) -> LineBuilder:
    """The right-aligned columns: ratio, time where there is room, and the verdict."""
    text, role = n.figure(candidate)
    is_best = candidate.id == state.best_id
    verdict = 11 if width < 70 else 22
    out = LineBuilder()
    if (
        candidate.id == state.baseline_id
        and candidate.ratio is None
        and not state.modelled
        and candidate.timing is not None
        and candidate.timing.verdict != "unknown"
    ):
        text = "1.00x"
    out.right(text, 10 if state.modelled else 7, "accent" if is_best and role == "text" else role)
    if width >= 66:
        time = n.time_of(state, candidate)
        out.right(time, 10, "est" if time.startswith("~") else "dim")
    out.gap(2)
    word = status_word(state, candidate)
    _, verdict_role = candidate_mark(state, candidate)
    if working:
        return out.left(f"{word} …", verdict, "info")
    why = evidence(candidate)
    if why and verdict > 12:
        return out.left(f"{word}: {why}", verdict, verdict_role)
    plain = candidate.id == state.baseline_id and word in ("same", "unknown")
    return out.left("" if plain else word, verdict, verdict_role)


def _shortened(rails: str) -> str:
    deepest = 2 * DEEP
    return rails if len(rails) <= deepest else "… " + rails[-(deepest - 2) :]
