"""A run as a Markdown page, for a pull request or a notebook."""

from __future__ import annotations

import re

from kbtui import __version__
from kbtui.report import content
from kbtui.report.content import Cell, Pairs, Table
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean, clean_line

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def markdown_report(state: RunState, candidate: Candidate | None) -> str:
    """The page. `candidate` is the one that is shown whole; None where the run has none to show."""
    parts = [f"# {_escaped(content.title(state))}", ""]
    if state.modelled:
        parts += [f"> **Modelled.** {content.MODELLED}", ""]
    parts += ["## Summary", "", *_pairs(content.summary(state)), "", "## Best so far", "", *_curve(state), ""]
    if candidate is not None:
        word = "best" if candidate.id == state.best_id else "candidate"
        parts += [f"## The {word}, \\#{candidate.id}, by case", "", *_table(content.cases(state, candidate)), ""]
        parts += ["## Compiled, and the hardware signature", "", *_pairs(content.facts(candidate)), ""]
        parts += [
            "## What changed against the baseline",
            "",
            *_fenced("\n".join(content.difference(state, candidate)), "diff"),
            "",
        ]
        parts += ["## Evidence", "", *_fenced(content.card(state, candidate)), ""]
    parts += ["## Candidates", "", *_table(content.tree(state)), "", "## Arms", "", *_table(content.arms(state)), ""]
    acts = content.people(state)
    parts += ["## What people did", ""]
    parts += [f"- {at} {_escaped(what)}" for at, what in acts] or ["Nothing: the run went by itself."]
    parts += ["", "## Configuration", "", *_pairs(content.configuration(state)), ""]
    if candidate is not None:
        parts += [f"## The source of \\#{candidate.id}", "", *_fenced(clean(candidate.source), "python"), ""]
    parts += [f"Made by kbtui {__version__} from the run's journal.", ""]
    return "\n".join(parts)


def _curve(state: RunState) -> list[str]:
    """The curve's changes: Markdown draws no lines."""
    if not state.curve:
        return ["Nothing was timed."]
    rows = tuple(
        (
            Cell(str(pull), "num"),
            Cell(f"~{ratio:.2f} est", "est") if state.modelled else Cell(f"{ratio:.2f}x", "num"),
            Cell(f"${usd:.2f}", "num"),
            Cell(f"{seconds / 60:.1f} min", "num"),
        )
        for (pull, ratio), usd, seconds in zip(state.curve, state.curve_usd, state.curve_s, strict=True)
    )
    return _table(Table(("pull", "best", "spent", "after"), rows))


def _pairs(pairs: Pairs) -> list[str]:
    return _table(Table(("", ""), tuple((Cell(name), cell) for name, cell in pairs)))


def _table(table: Table) -> list[str]:
    if not table.rows:
        return [_escaped(table.note or "There are none.")]
    lines = [f"| {' | '.join(_escaped(word) for word in table.head)} |"]
    lines.append("|" + "".join(f" {_rule(table, at)} |" for at in range(len(table.head))))
    for at, row in enumerate(table.rows):
        depth = table.depths[at] if table.depths else 0
        cells = [_cell(cell) for cell in row]
        cells[0] = "&nbsp;&nbsp;" * min(depth, 12) + cells[0]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rule(table: Table, column: int) -> str:
    return "---:" if all(row[column].kind in ("num", "est") for row in table.rows) else "---"


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    if text and cell.kind == "est":
        return f"*{text}*"
    return f"**{text}**" if text and cell.kind == "best" else text


def _fenced(text: str, language: str = "") -> list[str]:
    """A code block whose fence is longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *text.rstrip("\n").split("\n"), fence]


def _escaped(text: str) -> str:
    """Foreign text as text: nothing in it is markup."""
    return _MARKUP.sub(r"\\\1", clean_line(text))
