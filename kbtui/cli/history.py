"""`kbtui history`: past runs and every pull of them, in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbtui.cli import output
from kbtui.cli.comparing import compare
from kbtui.cli.keeping import import_, prune
from kbtui.cli.output import Column
from kbtui.cli.runs import AsJson, Chosen, RunOrNewest, fitting, print_runs
from kbtui.text import plural

if TYPE_CHECKING:
    from kbtui.history.database import History, Table
    from kbtui.state.run_state import Candidate, RunState

CANDIDATES = (
    Column("#", right=True),
    Column("parent", right=True),
    Column("strategy"),
    Column("move", gives=True),
    Column("status"),
    Column("ratio", right=True),
    Column("reward", right=True),
    Column("why", gives=True),
)
"""Columns of `history show`; `ratio` is `1.42x` when measured and `~1.30 est` when modelled."""


Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the rows to NAME.csv, NAME.json, NAME.jsonl or NAME.parquet instead."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Past runs: list, show, compare, sql, export, import, prune, rebuild.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    group.command("list")(list_)
    group.command("import")(import_)
    for command in (show, compare, sql, export, prune, rebuild):
        group.command()(command)
    app.add_typer(group, name="history")


def list_(chosen: Chosen = "", file: Output = None, overwrite: Overwrite = False, as_json: AsJson = False) -> None:
    """List all runs, or those that fit a filter, newest first."""
    entries = fitting(chosen)
    if file is not None:
        ids = ", ".join(_text(entry.run_id) for entry in entries)
        _write(f"select * from runs where run_id in ({ids or 'null'}) order by started_at desc", file, overwrite)
    elif as_json:
        output.json(entries)
    elif entries:
        print_runs(entries)
    elif chosen:
        output.line("no run fits the filter: `kbtui history list` shows them all")
    else:
        output.line("no runs yet: `kbtui run PROBLEM` starts one")


def show(run: RunOrNewest = None, file: Output = None, overwrite: Overwrite = False, as_json: AsJson = False) -> None:
    """Tell how a run went; with --output, write its candidates."""
    from kbtui.history.runs import find_run, load_state

    run_id = find_run(run)
    if file is not None:
        _write(f"select * from candidates where run_id = {_text(run_id)} order by candidate_id", file, overwrite)
        return
    state = load_state(run_id)
    if as_json:
        output.json({"started": state.started, "summary": state.summary, "candidates": list(state.candidates.values())})
        return
    _print_head(state)
    output.table(CANDIDATES, [_cells(state, candidate) for candidate in state.candidates.values()])


def _print_head(state: RunState) -> None:
    from kbtui.cli.headless import summary_lines
    from kbtui.state.run_state import device_text

    started = state.started
    if started is not None:
        output.line(f"{started.run_id}: {started.problem.name} on {device_text(started)}, times {started.timing}")
        output.line(
            f"{started.generator} generator, {started.policy} policy, objective {started.objective}, seed {started.seed}"
        )
    if state.summary is not None:
        for text in summary_lines(state.summary)[1:]:
            output.line(text)
    else:
        output.line(f"{state.pulls_ended} of {state.iterations} pulls so far")
    output.line()


def _cells(state: RunState, candidate: Candidate) -> list[str]:
    star = " *" if candidate.id == state.best_id else ""
    ratio = f"{candidate.ratio:.2f}x" if candidate.ratio is not None else ""
    estimate = f"~{candidate.estimate:.2f} est" if candidate.estimate is not None else ""
    return [
        str(candidate.id),
        "" if candidate.parent_id is None else str(candidate.parent_id),
        candidate.strategy or "",
        candidate.move,
        candidate.status + star,
        ratio or estimate,
        "" if candidate.reward is None else f"{candidate.reward:.3f}",
        _why(candidate),
    ]


def _why(candidate: Candidate) -> str:
    """Why it went no further; "" when it did."""
    if candidate.pruned is not None:
        return candidate.pruned.reason
    if candidate.verification is not None:
        return candidate.verification.reason
    return candidate.compilation.reason if candidate.compilation is not None else ""


def sql(
    query: Annotated[str, typer.Argument(help="Such as: select strategy, count(*) from pulls group by 1")],
    file: Output = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Ask the history database.

    docs/history.md describes its tables and views.
    """
    if file is not None:
        _write(query, file, overwrite)
        return
    found = _ask(query)
    if as_json:
        output.json([dict(zip(found.columns, row, strict=True)) for row in found.rows])
    else:
        _print_found(found)


def export(
    file: Annotated[Path, typer.Argument(help="Where to: NAME.csv, NAME.json, NAME.jsonl or NAME.parquet.")],
    query: Annotated[str, typer.Option("--sql", help="What to write.")] = "select * from pulls",
    overwrite: Overwrite = False,
) -> None:
    """Write the answer to a query, or every pull, to a file."""
    _write(query, file, overwrite)


def _write(query: str, file: Path, overwrite: bool) -> None:
    from kbtui.history.export import require_writable, write_answer

    require_writable(file, overwrite=overwrite)
    history = _up_to_date()
    output.line(f"{plural(write_answer(history, query, file), 'row')} in {file}")


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def rebuild() -> None:
    """Make the database anew from the journals."""
    from kbtui.history.database import History

    history = History()
    events = history.rebuild()
    _note_unreadable(history)
    output.line(f"{plural(events, 'event')} in {history.path}")


def _ask(query: str) -> Table:
    return _up_to_date().sql(query)


def _up_to_date() -> History:
    from kbtui.history.database import History

    history = History()
    history.ingest()
    _note_unreadable(history)
    return history


def _note_unreadable(history: History) -> None:
    for run_id, reason in history.unreadable.items():
        output.note(f"run {run_id} was left out: {reason}")


def _print_found(found: Table) -> None:
    numeric = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "HUGEINT", "BIGINT")
    columns = [
        Column(name, right=any(word in kind.upper() for word in numeric), gives="VARCHAR" in kind)
        for name, kind in zip(found.columns, found.types, strict=True)
    ]
    output.table(columns, [[_value(value) for value in row] for row in found.rows])


def _value(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
