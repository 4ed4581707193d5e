"""`kbtui history prune` and `import`: which runs are kept."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kbtui.cli import output
from kbtui.cli.runs import AsJson, print_runs
from kbtui.errors import UsageError


def prune(
    older: Annotated[str, typer.Option(help="Runs whose last event is older than this, such as 30d or 12h.")] = "",
    chosen: Annotated[str, typer.Option("--filter", help="Runs that fit, such as 'status:crashed pulls:0'.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete old runs for good, after asking: their folders and their rows.

    A run that a process owns is never deleted.
    """
    from kbtui import clock
    from kbtui.history.database import History
    from kbtui.history.filters import parse
    from kbtui.history.keeping import prunable
    from kbtui.history.keeping import prune as delete

    if not older and not chosen.strip():
        raise UsageError("say which runs: --older 30d, --filter 'status:crashed', or both")
    runs = prunable(parse(f"{chosen} age>{older}" if older else chosen), clock.wall())
    if not runs:
        output.json([]) if as_json else output.line("no run fits: nothing was deleted")
        return
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"{_count(runs)} fit: add --yes to delete without being asked")
        print_runs(runs)
        typer.confirm(f"Delete {_count(runs)} for good, with every candidate?", abort=True, err=True)
    gone = delete(runs, History())
    left = sorted({run.run_id for run in runs} - set(gone))
    for run_id in left:
        output.note(f"run {run_id} was left alone: a process owns it by now")
    output.json(gone) if as_json else output.line(f"{_count(gone)} deleted")


def _count(runs: Sequence[object]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def import_(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders, each with a journal.jsonl.")],
    as_json: AsJson = False,
) -> None:
    """Take in runs copied from another machine, such as <data>/runs/<run id>.

    They are then listed, replayed, compared and asked about like any other.
    """
    from kbtui.history.database import History
    from kbtui.history.keeping import import_run

    ids = []
    for folder in folders:
        ids.append(import_run(folder))
        if not as_json:
            output.line(ids[-1])
    History().ingest()
    if as_json:
        output.json(ids)
