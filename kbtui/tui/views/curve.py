"""The best-so-far curve: a step line over pulls, the trials as dots, the speed of light where it is in sight.

Drawn with box characters: long runs of one glyph cost the fewest bytes and look the same in every terminal.
"""

from __future__ import annotations

from collections.abc import Callable

from kbtui.state.run_state import RunState
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, text_line
from kbtui.tui.views.numbers import speed_of_light

AXIS = 7
"""Cells for the scale on the left."""
Grid = list[list[tuple[str, str]]]
"""Rows of (glyph, role)."""


def curve_lines(state: RunState, width: int, height: int) -> list[Line]:
    """The plot in `height` lines of `width` cells; one line of words where there is nothing to draw or no room."""
    if not state.curve:
        return [text_line(" nothing timed yet", "dim")]
    columns, rows = width - AXIS - 2, height - 1
    if columns < 12 or rows < 3:
        return [text_line(f" best {_label(state, state.curve[-1][1])} at pull {state.curve[-1][0]}")]
    pulls = max(state.iterations, max(state.pulls, default=0), 1)
    trials = _trials(state)
    light = _light_ratio(state)
    low, high = _range([ratio for _, ratio in state.curve], light)
    grid = [[(" ", "text")] * columns for _ in range(rows)]

    def column(pull: float) -> int:
        return min(columns - 1, round(pull / pulls * (columns - 1)))

    def row(ratio: float) -> int:
        return min(rows - 1, max(0, round((high - ratio) / (high - low) * (rows - 1))))

    if light is not None and light <= high:
        for x in range(columns):
            grid[row(light)][x] = ("┈", "sol")
    for pull, ratio in trials:
        if low <= ratio <= high:
            grid[row(ratio)][column(pull)] = (g.DOT, "trial")
    _step(grid, [(column(p), row(r)) for p, r in state.curve], column(_reached(state)))
    return [
        *_with_scale(state, grid, light if light is not None and light <= high else None, row),
        _pull_axis(pulls, columns),
    ]


def _reached(state: RunState) -> int:
    return max((pull.number for pull in state.pulls.values()), default=0)


def _trials(state: RunState) -> list[tuple[int, float]]:
    out = []
    for candidate in state.candidates.values():
        value = candidate.ratio if candidate.ratio is not None else candidate.estimate
        if value is not None and candidate.correct:
            out.append((candidate.pull, value))
    return out


def _light_ratio(state: RunState) -> float | None:
    """The speed of light as a ratio to the baseline; None when unknown or modelled."""
    base = state.baseline
    if base is None or base.timing is None:
        return None
    percent = speed_of_light(base.timing)
    return 100.0 / percent if percent else None


def light_note(state: RunState) -> Line:
    """Where the speed of light lies; nothing when it is unknown."""
    light = _light_ratio(state)
    return text_line(f"speed of light {light:.2f}x", "label") if light is not None else ()


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


def _pull_axis(pulls: int, columns: int) -> Line:
    end = f"pull {pulls}"
    out = LineBuilder().right("pull 0", AXIS + 1 + 6, "dim")
    out.to(AXIS + 1 + columns - len(end))
    return out.add(end, "dim").line()


def _label(state: RunState, ratio: float) -> str:
    return f"~{ratio:.2f}" if state.modelled else f"{ratio:.2f}x"
