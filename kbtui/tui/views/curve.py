"""The best-so-far curve: a step line over pulls, the trials as dots, the speed of light where it is in sight.

Drawn with box characters: long runs of one glyph cost the fewest bytes and look the same in every terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kbtui.state.counting import iterations_by_candidate, iterations_by_pull
from kbtui.state.run_state import Candidate, RunState
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, text_line
from kbtui.tui.views.numbers import duration_text, money_text, plural, speed_of_light

AXIS = 7
"""Cells for the scale on the left."""
Grid = list[list[tuple[str, str]]]
"""Rows of (glyph, role)."""


AXES = ("pulls", "dollars", "time")
"""What the curve can be drawn over."""


@dataclass(frozen=True)
class _Plot:
    """The curve over one axis: (x, ratio) of each change and of each trial, how far the run has come, and where x ends."""

    changes: list[tuple[float, float]]
    trials: list[tuple[float, float]]
    reached: float
    end: float


def axes_of(state: RunState) -> tuple[str, ...]:
    """The axes that mean something: a run that spends nothing has no curve over dollars."""
    return AXES if state.cost_usd > 0 else ("pulls", "time")


def curve_lines(state: RunState, width: int, height: int, axis: str = "pulls") -> list[Line]:
    """The plot over `axis` in `height` lines of `width` cells; one line of words where there is nothing to draw or no room."""
    if not state.curve:
        return [text_line(" nothing timed yet: the baseline comes first", "dim")]
    columns, rows = width - AXIS - 2, height - 1
    if columns < 12 or rows < 3:
        after = plural(iterations_by_pull(state)[state.curve[-1][0]], "pull")
        return [text_line(f" best {_label(state, state.curve[-1][1])} after {after}")]
    plot = _plot(state, axis if axis in axes_of(state) else "pulls")
    light = _light_ratio(state)
    low, high = _range([ratio for _, ratio in state.curve], light)
    grid = [[(" ", "text")] * columns for _ in range(rows)]

    def column(x: float) -> int:
        return min(columns - 1, round(x / plot.end * (columns - 1)))

    def row(ratio: float) -> int:
        return min(rows - 1, max(0, round((high - ratio) / (high - low) * (rows - 1))))

    if light is not None and light <= high:
        for at in range(columns):
            grid[row(light)][at] = ("┈", "sol")
    for x, ratio in plot.trials:
        if low <= ratio <= high:
            grid[row(ratio)][column(x)] = (g.DOT, "trial")
    _step(grid, [(column(x), row(r)) for x, r in plot.changes], column(plot.reached))
    return [
        *_with_scale(state, grid, light if light is not None and light <= high else None, row),
        _foot(axis if axis in axes_of(state) else "pulls", plot.end, columns),
    ]


def _plot(state: RunState, axis: str) -> _Plot:
    trials = _trials(state)
    ratios = [ratio for _, ratio in state.curve]
    if axis == "dollars":
        # over money the end is what was spent: the limit may be far away
        end = max(state.cost_usd, 1e-9)
        points = [(candidate.born_usd, ratio) for candidate, ratio in trials]
        return _Plot(list(zip(state.curve_usd, ratios, strict=True)), points, end, end)
    if axis == "time":
        end = max(state.elapsed, 1e-9)
        points = [(candidate.born_elapsed, ratio) for candidate, ratio in trials]
        return _Plot(list(zip(state.curve_s, ratios, strict=True)), points, end, end)
    # as the header counts them: numbers of pulls run ahead of that by those that were dropped
    at = iterations_by_pull(state)
    reached = max(at.values())
    changes = [(float(at[pull]), ratio) for pull, ratio in state.curve]
    stands = iterations_by_candidate(state, at)
    points = [(float(stands[candidate.id]), ratio) for candidate, ratio in trials]
    return _Plot(changes, points, reached, max(state.iterations, reached, 1))


def _trials(state: RunState) -> list[tuple[Candidate, float]]:
    out = []
    for candidate in state.candidates.values():
        value = candidate.ratio if candidate.ratio is not None else candidate.estimate
        if value is not None and candidate.correct:
            out.append((candidate, value))
    return out


def _light_ratio(state: RunState) -> float | None:
    """The speed of light as a ratio to the baseline; None when unknown or modelled."""
    base = state.baseline
    if base is None or base.timing is None:
        return None
    percent = speed_of_light(state, base.timing)
    return 100.0 / percent if percent else None


def curve_note(state: RunState, axis: str) -> Line:
    """What it is drawn over, and where the speed of light lies if that is known."""
    out = LineBuilder().add(f"over {axis if axis in axes_of(state) else 'pulls'}", "label")
    light = _light_ratio(state)
    if light is not None:
        out.add(f" {g.NONE} speed of light {light:.2f}x", "label")
    elif not state.modelled and state.baseline is not None and state.baseline.timing is not None:
        out.add(f" {g.NONE} speed of light unknown", "label")
    return out.line()


def _range(ratios: list[float], light: float | None) -> tuple[float, float]:
    """From a little under the curve's lowest point to a little over its highest; the speed of light is let in when near."""
    low, high = min(*ratios, 1.0), max(*ratios, 1.0)
    if light is not None and light < 1.0 + 2.5 * max(high - 1.0, 0.1):
        high = max(high, light)
    pad = max((high - low) * 0.08, 0.02)
    return low - pad, high + pad


def _step(grid: Grid, points: list[tuple[int, int]], end: int) -> None:
    """Draw the step line through (column, row) points, to column `end`."""
    for index, (x, y) in enumerate(points):
        until = points[index + 1][0] if index + 1 < len(points) else max(end, x + 1)
        for at in range(x, min(until, len(grid[0]) - 1) + 1):
            grid[y][at] = ("─", "curve")
        if index == 0:
            continue
        before = points[index - 1][1]
        if before == y:
            continue
        for at in range(min(before, y) + 1, max(before, y)):
            grid[at][x] = ("│", "curve")
        rising = before > y
        grid[before][x] = ("╯" if rising else "╮", "curve")
        grid[y][x] = ("╭" if rising else "╰", "curve")


def _with_scale(state: RunState, grid: Grid, light: float | None, row: Callable[[float], int]) -> list[Line]:
    labels: dict[int, tuple[str, str]] = {row(1.0): (_label(state, 1.0), "label")}
    if light is not None:
        labels[row(light)] = (f"SOL{light:.1f}x", "sol")
    labels[row(state.curve[-1][1])] = (_label(state, state.curve[-1][1]), "accent")
    lines = []
    for index, cells in enumerate(grid):
        text, role = labels.get(index, ("", "label"))
        out = LineBuilder().right(text, AXIS, role).gap()
        start = 0
        while start < len(cells):
            stop = start
            while stop < len(cells) and cells[stop][1] == cells[start][1]:
                stop += 1
            out.add("".join(glyph for glyph, _ in cells[start:stop]), cells[start][1])
            start = stop
        lines.append(out.line())
    return lines


def _foot(axis: str, end: float, columns: int) -> Line:
    """The scale below: where x begins and ends."""
    if axis == "dollars":
        begins, ends = "$0", f"{money_text(end)} spent"
    elif axis == "time":
        begins, ends = "0:00", duration_text(end)
    else:
        begins, ends = "0", plural(round(end), "pull")
    out = LineBuilder().gap(AXIS + 1).add(begins, "dim")
    return out.to(AXIS + 1 + columns - len(ends)).add(ends, "dim").line()


def _label(state: RunState, ratio: float) -> str:
    return f"~{ratio:.2f}" if state.modelled else f"{ratio:.2f}x"
