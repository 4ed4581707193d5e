"""The SQL screen's panes: the schema as a list, and an answer as lines."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len

from kbtui.history.tables import TABLES
from kbtui.history.views import VIEWS
from kbtui.text import clean_line
from kbtui.tui.line import Line, LineBuilder

if TYPE_CHECKING:
    from kbtui.history.asking import Table

CELL_MOST = 48
"""Cells of a column at most: source texts would push everything else away."""
SAMPLE = 500
"""Rows that a column's width is taken from."""
_NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL")


class SchemaSource:
    """Tables and views, each with its columns below. `name_at` is what enter puts into the query."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str]] = []  # (table or "", name, about)
        for table in TABLES:
            self._rows.append(("", table.name, table.comment))
            self._rows += [(table.name, column.name, f"{column.type:10} {column.comment}") for column in table.columns]
        for view in VIEWS:
            self._rows.append(("", view.name, view.comment))
            self._rows += [(view.name, name, comment) for name, comment in view.columns]

    def __len__(self) -> int:
        return len(self._rows)

    def line(self, index: int, width: int) -> Line:  # noqa: ARG002  (a source's signature)
        table, name, about = self._rows[index]
        if not table:
            return LineBuilder().add(f" {name}", "strong").line()
        return LineBuilder().add("   ").left(name, 22).add(f" {about}", "dim").line()

    def name_at(self, index: int) -> str:
        return self._rows[index][1]

    def about(self, index: int) -> str:
        """The comment of a table, view or column."""
        return self._rows[index][2]


class AnswerSource:
    """The rows of an answer; the first line names the columns. Lines are made on demand and may be scrolled sideways."""

    def __init__(self, found: Table) -> None:
        self.found = found
        sample = found.rows[:SAMPLE]
        self._right = [any(word in kind.upper() for word in _NUMERIC) and "[" not in kind for kind in found.types]
        self._widths = [
            min(CELL_MOST, max([cell_len(clean_line(name)), *(cell_len(cell_text(row[i])) for row in sample)]))
            for i, name in enumerate(found.columns)
        ]
        self.wide = sum(self._widths) + 2 * len(self._widths) + 1

    def __len__(self) -> int:
        return len(self.found.rows) + 1

    def line(self, index: int, width: int) -> Line:  # noqa: ARG002  (a source's signature)
        out = LineBuilder().gap()
        cells = self.found.columns if index == 0 else [cell_text(value) for value in self.found.rows[index - 1]]
        for cell, size, right in zip(cells, self._widths, self._right, strict=True):
            role = "label" if index == 0 else "dim" if cell == "NULL" else "text"
            (out.right if right else out.left)(cell, size, role).gap(2)
        return out.line()


def cell_text(value: Any) -> str:
    """A value in one line: `NULL`, six digits of a number, times to the second."""
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dt.datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    # long texts are cut before they are cleaned: a source may have a thousand lines
    return clean_line(str(value)[: 2 * CELL_MOST], CELL_MOST)
