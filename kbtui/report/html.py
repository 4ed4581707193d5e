"""A run as one HTML file: no script, nothing from elsewhere, light or dark as the reader's system is."""

from __future__ import annotations

import html
from importlib.resources import files

from kbtui import __version__
from kbtui.report import content
from kbtui.report.content import Cell, Pairs, Table
from kbtui.report.curve_svg import curve_svg
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean, clean_line

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""What the page may load and run, said to the browser: nothing but its own style."""


def html_report(state: RunState, candidate: Candidate | None) -> str:
    """The page. `candidate` is the one that is shown whole; None where the run has none to show."""
    assert state.started is not None
    name = _escaped(content.title(state))
    css = (files("kbtui.report") / "page.css").read_text(encoding="utf-8")
    parts = [
        "<!DOCTYPE html>", '<html lang="en">', "<head>", '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name}</title>", f"<style>\n{css}</style>", "</head>", "<body>",
        f"<h1>{name}</h1>",
        f'<p class="sub">{_escaped(state.started.problem.summary)} · run {_escaped(state.started.run_id)}</p>',
    ]  # fmt: skip
    if state.modelled:
        parts.append(f'<p class="banner">{content.MODELLED}</p>')
    parts += [_section("Summary", _pairs(content.summary(state)))]
    parts += [_section("Best so far", curve_svg(state) or "<p>Nothing was timed.</p>")]
    if candidate is not None:
        parts += _candidate(state, candidate)
    parts += [_section("Candidates", _table(content.tree(state)))]
    parts += [_section("Arms", _table(content.arms(state)))]
    parts += [_section("What people did", _people(state))]
    parts += [_section("Configuration", _pairs(content.configuration(state)))]
    parts += [f"<footer>Made by kbtui {_escaped(__version__)} from the run's journal.</footer>", "</body>", "</html>"]
    return "\n".join(parts) + "\n"


def _candidate(state: RunState, candidate: Candidate) -> list[str]:
    word = "best" if candidate.id == state.best_id else "candidate"
    base = state.baseline
    against = f" against #{base.id}" if base is not None else ""
    return [
        _section(f"The {word}, #{candidate.id}, by case", _table(content.cases(state, candidate))),
        _section("Compiled, and the hardware signature", _pairs(content.facts(candidate))),
        _section(f"What changed{against}", _diff(content.difference(state, candidate))),
        _section("Evidence", f"<pre>{_escaped_text(content.card(state, candidate))}</pre>"),
        f"<details><summary>The whole source of #{candidate.id}</summary>"
        f"<pre>{_escaped_text(clean(candidate.source))}</pre></details>",
    ]


def _section(name: str, body: str) -> str:
    return f"<section>\n<h2>{_escaped(name)}</h2>\n{body}\n</section>"


def _pairs(pairs: Pairs) -> str:
    if not pairs:
        return "<p>Nothing is known.</p>"
    rows = "\n".join(f"<tr><th>{_escaped(name)}</th>{_cell(cell)}</tr>" for name, cell in pairs)
    return f'<div class="scroll"><table class="pairs">\n{rows}\n</table></div>'


def _table(table: Table) -> str:
    if not table.rows:
        return f"<p>{_escaped(table.note or 'There are none.')}</p>"
    head = "".join(f"<th>{_escaped(word)}</th>" for word in table.head)
    rows = []
    for at, row in enumerate(table.rows):
        depth = table.depths[at] if table.depths else 0
        first = f' style="padding-left:{min(depth, 12) * 14}px"' if depth else ""
        cells = "".join(_cell(cell, first if place == 0 else "") for place, cell in enumerate(row))
        rows.append(f"<tr>{cells}</tr>")
    return f'<div class="scroll"><table>\n<tr>{head}</tr>\n' + "\n".join(rows) + "\n</table></div>"


def _cell(cell: Cell, extra: str = "") -> str:
    kind = f' class="{cell.kind}"' if cell.kind else ""
    return f"<td{kind}{extra}>{_escaped(cell.text)}</td>"


def _diff(lines: list[str]) -> str:
    if not lines:
        return "<p>The same text.</p>"
    kinds = {"+": "add", "-": "del", "@": "hunk"}
    spans = [f'<span class="{kinds.get(line[:1], "same")}">{_escaped(line)}</span>' for line in lines]
    return f"<pre>{''.join(spans)}</pre>"


def _people(state: RunState) -> str:
    acts = content.people(state)
    if not acts:
        return "<p>Nothing: the run went by itself.</p>"
    rows = "\n".join(f'<tr><th class="num">{_escaped(at)}</th><td>{_escaped(what)}</td></tr>' for at, what in acts)
    return f"<table>\n{rows}\n</table>"


def _escaped(text: str) -> str:
    return html.escape(clean_line(text))


def _escaped_text(text: str) -> str:
    return html.escape(text)
