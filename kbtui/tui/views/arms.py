"""The arm matrix: what the bandit believes of each cluster and strategy, what it chose and why, what is held back."""

from __future__ import annotations

from dataclasses import dataclass

from kbtui.state.records import PRIOR_PULLS, STRATEGIES, ArmScore, Signature, Strategy
from kbtui.state.run_state import RunState
from kbtui.tui import glyphs as g
from kbtui.tui.line import EMPTY, Line, LineBuilder, crop, text_line, wrap
from kbtui.tui.views.numbers import percent_text
from kbtui.tui.views.status import SHORT

HELD: dict[str, tuple[str, str]] = {
    "masked": (g.MASKED, "mask"),
    "banned": (g.BANNED, "ban"),
    "no move": (g.NONE, "faint"),
    "empty": (g.NONE, "faint"),
    "resting": (g.PAUSED, "warn"),
}
"""Why an arm is held back -> glyph and role."""


@dataclass(frozen=True)
class Cell:
    """One arm as the matrix shows it. `held` as in ArmScore, with bans made since the last choice.

    `pulls` are those that were rewarded, without the one that every arm is believed to have had; `mean` is what they earned
    on average, None before the first. `believed` is the mean as the last choice weighed it: some policies scale it, and
    before the first pull it is the prior's. `believed` + `bonus` = `score` wherever
    there is a bonus.
    """

    cluster: int
    strategy: Strategy
    pulls: float = 0.0
    mean: float | None = None
    believed: float | None = None
    bonus: float | None = None
    score: float | None = None
    held: str = ""
    reason: str = ""
    headroom_percent: float | None = None
    chosen: bool = False
    runner_up: bool = False


def clusters_of(state: RunState) -> list[int]:
    """The clusters that hold candidates or can be pulled, in order; cluster 0 before anything is clustered."""
    named = {score.cluster for score in state.scores} | {cluster for cluster, _ in state.arms}
    alive = {score.cluster for score in state.scores if score.held != "empty"} | set(state.labels.values())
    return sorted(alive) or sorted(named) or [0]


def cells_of(state: RunState) -> dict[tuple[int, str], Cell]:
    """Every arm, from the scores of the last choice and the statistics since."""
    scores = {(score.cluster, score.strategy): score for score in state.scores}
    selected = state.selected
    chosen = (selected.cluster, str(selected.strategy)) if selected is not None else None
    runner_up = selected.runner_up if selected is not None else None
    cells = {}
    for cluster in clusters_of(state):
        for strategy in STRATEGIES:
            key = (cluster, str(strategy))
            cells[key] = _cell(
                state, cluster, strategy, scores.get((cluster, strategy)), chosen == key, runner_up == key
            )
    return cells


def _cell(
    state: RunState, cluster: int, strategy: Strategy, score: ArmScore | None, chosen: bool, runner_up: bool
) -> Cell:
    arm = state.arms.get((cluster, strategy))
    held, reason = (score.held, score.reason) if score is not None else ("", "")
    masked = state.held.get(cluster, {}).get(strategy, "")
    if score is None and masked:
        held, reason = "masked", masked
    if state.banned(cluster, strategy):
        held, reason = "banned", "banned by a person"
    elif held == "banned":
        held, reason = "", ""
    pulls = max(arm.pulls - PRIOR_PULLS, 0.0) if arm is not None else 0.0
    return Cell(
        cluster=cluster,
        strategy=strategy,
        pulls=pulls,
        mean=arm.mean if arm is not None and pulls else None,
        believed=score.mean if score is not None else None,
        bonus=score.bonus if score is not None and adds_up(score) else None,
        score=score.score if score is not None else None,
        held=held,
        reason=reason,
        headroom_percent=score.headroom_percent if score is not None else None,
        chosen=chosen,
        runner_up=runner_up,
    )


def adds_up(score: ArmScore) -> bool:
    """Whether a score is its mean and its bonus, as those of the UCB family are."""
    return bool(score.bonus) and abs(score.mean + score.bonus - score.score) < 1e-6


LABEL = 5
"""Cells for a cluster's name."""
RESOURCE = 13
"""Cells for a cluster's tightest resource: ` DRAM ~100 %` and what parts it from the last arm."""
COLUMN = 9
"""Cells of an arm that hold `»12 .38«` and a blank. The resource goes before an arm gets fewer."""
DESCRIPTION = 2
"""Rows for what there is to say about the arm under the cursor."""


def column_width(width: int) -> int:
    """Cells of one strategy's column, for a pane of that width."""
    room = width - LABEL - RESOURCE
    if room < COLUMN * len(STRATEGIES):
        return max(7, min(COLUMN, (width - LABEL) // len(STRATEGIES)))
    return min(16, room // len(STRATEGIES))


def has_resources(width: int) -> bool:
    """Whether the rows of a pane of that width have room for the clusters' tightest resources."""
    return width - LABEL - column_width(width) * len(STRATEGIES) >= RESOURCE


def head_line(width: int, at: int | None) -> Line:
    """The strategies' names, as long as the columns allow; the cursor's column stands out."""
    column = column_width(width)
    out = LineBuilder().left("", LABEL)
    for index, strategy in enumerate(STRATEGIES):
        name = strategy if len(strategy) < column else SHORT[strategy]
        out.right(name, column - 1, "strong" if index == at else "label").gap()
    return out.line()


def cluster_line(state: RunState, cells: dict[tuple[int, str], Cell], cluster: int, width: int, at: int | None) -> Line:
    """`c1   1 .40   1 .08 »2 .38« ...   DRAM 83 %`. `at`: the column under the cursor, if it is in this row."""
    column = column_width(width)
    out = LineBuilder().left(f" c{cluster}", LABEL, "strong")
    for index, strategy in enumerate(STRATEGIES):
        out.extend(_cell_spans(cells[cluster, strategy], column, under_cursor=index == at))
    if has_resources(width):
        out.gap().add(tightest(state.signatures.get(cluster)), "label")
    return crop(out.line(), width)


def _cell_spans(cell: Cell, column: int, *, under_cursor: bool) -> Line:
    """Exactly `column` cells."""
    marked = f"{g.NEXT_LEFT}" if cell.chosen else " "
    end = f"{g.NEXT_RIGHT}" if cell.chosen else "'" if cell.runner_up else " "
    if cell.held:
        glyph, role = HELD.get(cell.held, (g.UNKNOWN, "warn"))
        body = glyph if cell.held in ("no move", "empty") else f"{glyph} {short(cell.mean)}".rstrip()
    else:
        role = "accent" if cell.chosen else "text"
        body = f"{cell.pulls:.3g} {short(cell.mean)}".rstrip() if cell.score is not None or cell.pulls else g.NONE
    text = LineBuilder().right(body, column - 2, "select" if under_cursor else role)
    return LineBuilder().add(marked, "accent").extend(text.line()).add(end, "accent").line()


def short(value: float | None) -> str:
    """At most three characters of a number that is not negative: `.38` for 0.38, `1.2` for 1.23, `13` for 13.4."""
    if value is None:
        return ""
    text = f"{value:.2f}" if abs(value) < 0.995 else f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def tightest(signature: Signature | None) -> str:
    """The resource nearest its peak: `DRAM 83 %`, `DRAM ~77 %` when modelled; `?` when none is known."""
    if signature is None:
        return "?"
    named = (("SM", signature.sm), ("DRAM", signature.dram), ("L2", signature.l2))
    known = [(reading.percent, name, reading) for name, reading in named if reading.percent is not None]
    if not known:
        return "?"
    _, name, reading = max(known, key=lambda entry: entry[0])
    return f"{name} {percent_text(reading)}"


def describe(cell: Cell, resource: str = "") -> Line:
    """What there is to say about the arm under the cursor; why it is held back comes before the numbers. `resource`: the
    cluster's tightest, where the rows do not show it."""
    out = LineBuilder().add(f" c{cell.cluster} {cell.strategy}", "strong")
    if cell.held:
        _, role = HELD.get(cell.held, (g.UNKNOWN, "warn"))
        out.gap(2).add(cell.held, role).add(f": {cell.reason}" if cell.reason else "", "label")
    if cell.mean is not None:
        pulls = f"{cell.pulls:.3g} {'pull' if cell.pulls == 1 else 'pulls'}"
        out.gap(2).add(f"{pulls}, mean {short(cell.mean)}", "label")
    elif not cell.held:
        out.gap(2).add("not played yet", "label")
    if resource:
        out.gap(2).add(resource, "label")
    if cell.held:
        return out.line()
    if cell.bonus is not None and cell.score is not None:
        scaled = cell.mean is not None and cell.believed is not None and abs(cell.believed - cell.mean) > 0.005
        what = "scaled mean" if scaled else "mean"
        out.gap(2).add(f"{what} {short(cell.believed)} + bonus {short(cell.bonus)} = {short(cell.score)}", "label")
    elif cell.chosen or cell.runner_up:
        out.gap(2).add("chosen last" if cell.chosen else "would have been next", "label")
    if cell.headroom_percent is not None:
        out.gap(2).add(headroom_text(cell.headroom_percent), "label")
    return out.line()


def headroom_text(percent: float) -> str:
    """What is left of a resource, in percent points below its threshold; past it there is none."""
    whole = round(percent)
    return f"headroom {whole} %" if whole >= 0 else f"no headroom, {-whole} % past the threshold"


def choice_text(state: RunState) -> str:
    """What goes next because a person said so, else what was chosen last: `now c1 fusion .61, then c0 tiling .55`."""
    if state.forces:
        force = next(iter(state.forces.values()))
        where = f"c{force.cluster} " if force.cluster is not None else ""
        return f"next {where}{force.strategy}, forced by {force.by}"
    selected = state.selected
    if selected is None:
        return ""
    # Where it is no sum a score is a rank or a draw: a number that says nothing to a person.
    scores = {(score.cluster, str(score.strategy)): score.score for score in state.scores if adds_up(score)}
    how = " forced" if selected.forced is not None else ""
    score = scores.get((selected.cluster, str(selected.strategy)))
    # a run that was stopped leaves its last pull open
    open_now = state.status != "stopped" and any(pull.number == selected.pull for pull in state.open_pulls)
    text = f"{'now' if open_now else 'last'} c{selected.cluster} {selected.strategy}{how}"
    if score is not None and not how:
        text += f" {short(score)}"
    if selected.runner_up is not None:
        cluster, strategy = selected.runner_up
        text += f", then c{cluster} {strategy} {short(scores.get((cluster, strategy)))}".rstrip()
    return text


def legend(width: int) -> Line:
    """The signs of the matrix, as many as fit whole."""
    out = LineBuilder().add(" pulls mean", "dim")
    for sign, role, word in (
        (f"{g.NEXT_LEFT}{g.NEXT_RIGHT}", "accent", "chosen"),
        ("'", "accent", "next best"),
        (g.MASKED, "mask", "masked"),
        (g.BANNED, "ban", "banned"),
        (g.NONE, "dim", "none"),
    ):
        if out.cells + len(f"  {sign} {word}") <= width:
            out.gap(2).add(sign, role).add(f" {word}", "dim")
    return out.line()


class ArmsSource:
    """The matrix as a pane shows it: names, one line per cluster, the arm under the cursor in two, the legend."""

    def __init__(self, state: RunState, at: tuple[int, int] | None) -> None:
        """`at` is (row, column) of the cursor."""
        self._state = state
        self._at = at
        self._clusters = clusters_of(state)
        self._cells = cells_of(state)

    def __len__(self) -> int:
        return len(self._clusters) + 2 + DESCRIPTION

    def line(self, index: int, width: int) -> Line:
        at_row, at_column = self._at or (None, None)
        if index == 0:
            return head_line(width, at_column)
        if index <= len(self._clusters):
            row = index - 1
            here = at_column if row == at_row else None
            return cluster_line(self._state, self._cells, self._clusters[row], width, here)
        row = index - len(self._clusters) - 1
        if row >= DESCRIPTION:
            return legend(width)
        if not self._state.arms and not self._state.scores:
            return text_line(" no arm has been scored yet", "dim") if row == 0 else EMPTY
        cluster = self._clusters[at_row or 0]
        resource = "" if has_resources(width) else tightest(self._state.signatures.get(cluster)).replace("?", "")
        rows = wrap(describe(self._cells[cluster, STRATEGIES[at_column or 0]], resource), width, rows=DESCRIPTION)
        return rows[row] if row < len(rows) else EMPTY
