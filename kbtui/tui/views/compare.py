"""A comparison of runs as lines: a name and a column per run."""

from __future__ import annotations

import textwrap

from rich.cells import cell_len

from kbtui.history.compare import Comparison
from kbtui.history.side_by_side import remarks, sections
from kbtui.tui import glyphs as g
from kbtui.tui.line import EMPTY, Line, LineBuilder, Lines, text_line

NAME = 18
LEAST, MOST = 16, 30
"""Cells of a run's column."""


def comparison_lines(found: Comparison, width: int) -> Lines:
    """All parts; where the columns are too narrow for their text, the lines are wider than the pane and scroll."""
    parts = sections(found)
    column = max(LEAST, min(MOST, (width - NAME - 2) // len(found.runs) - 2))
    longest = max(cell_len(row[0]) for _, rows in parts for row in rows)
    names = max(NAME, min(longest, width - 2 - len(found.runs) * (column + 2)))
    ahead = {group.ahead for group in found.groups if group.ahead}
    lines: list[Line] = [EMPTY, *_remarks(found, width)]
    for title, rows in parts:
        head = LineBuilder().gap().left(title, names, "title")
        for run in found.runs:
            shown = f"{g.BEST} {run.run_id}" if title == "run" and run.run_id in ahead else run.run_id
            head.gap(2).right(shown, column, "accent" if run.run_id in ahead else "strong")
        lines += [EMPTY, head.line()]
        for name, *cells in rows:
            out = LineBuilder().gap().left(name, names, "label")
            for cell in cells:
                out.gap(2).right(cell, column, "est" if cell.startswith("~") or " ~" in cell else "text")
            lines.append(out.line())
    return Lines(lines, wide=names + 1 + len(found.runs) * (column + 2))


def _remarks(found: Comparison, width: int) -> list[Line]:
    lines: list[Line] = []
    for text in remarks(found):
        parts = textwrap.wrap(text, max(width - 5, 20))
        lines += [text_line(f" {g.ALARM if not i else ' '} {part}", "warn") for i, part in enumerate(parts)]
    return lines
