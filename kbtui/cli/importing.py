"""`kbtui import`: files of other suites become problems."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbtui.cli import output
from kbtui.cli.output import Column
from kbtui.cli.runs import AsJson
from kbtui.config import load_settings
from kbtui.errors import UsageError

if TYPE_CHECKING:
    from kbtui.evaluate.survey import Surveyed
    from kbtui.problems.importers.folders import Imported

COLUMNS = (Column("kernel"), Column("timed", right=True), Column("checked", right=True), Column("remarks", gives=True))
Where = Annotated[Path, typer.Argument(help="The suite's folder, or one above it.", metavar="PATH")]
Out = Annotated[Path | None, typer.Option(help="Where the problems go; else with kbtui's data.", metavar="DIR")]
Kernels = Annotated[str | None, typer.Option(help="Only these, by file name without .py.", metavar="A,B")]
NoTry = Annotated[
    bool, typer.Option("--no-try", help="Only read the files; do not see whether their inputs can be made.")
]
Python = Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")]


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Make problems of another suite's files.")
    group.command()(tritonbench)
    group.command()(kernelbench)
    app.add_typer(group, name="import")


def tritonbench(
    path: Where,
    out: Out = None,
    kernels: Kernels = None,
    no_try: NoTry = False,
    python: Python = None,
    as_json: AsJson = False,
) -> None:
    """Import TritonBench-G.

    Each kernel is the start and, as it was shipped, the reference. What its timing script times is timed; what its tests
    call is verified. Nothing in PATH is changed, and its code only runs in processes of its own.
    """
    from kbtui.problems.importers import tritonbench
    from kbtui.problems.importers.folders import default_folder

    place = out or default_folder(tritonbench.SUITE)
    found = tritonbench.import_suite(path.expanduser(), place.expanduser(), names(kernels))
    _finish(found, place, python, no_try, as_json)


def kernelbench(
    path: Where,
    levels: Annotated[str, typer.Option(help="Folders level1, level2, ...", metavar="1,2")] = "1,2",
    out: Out = None,
    kernels: Kernels = None,
    no_try: NoTry = False,
    python: Python = None,
    as_json: AsJson = False,
) -> None:
    """Import KernelBench.

    Each torch module is a reference; there is no kernel to start from, so a run over one needs `--generator llm`.
    """
    from kbtui.problems.importers import kernelbench
    from kbtui.problems.importers.folders import default_folder

    numbers = names(levels)
    if not numbers or not all(one.isdecimal() for one in numbers):
        raise UsageError(f"--levels takes numbers with commas between them, such as 1,2, not {levels!r}")
    place = out or default_folder(kernelbench.SUITE)
    found = kernelbench.import_suite(
        path.expanduser(), place.expanduser(), names(kernels), tuple(int(one) for one in numbers)
    )
    _finish(found, place, python, no_try, as_json)


def names(text: str | None) -> tuple[str, ...]:
    """What stands between the commas of an option."""
    return tuple(one.strip() for one in (text or "").split(",") if one.strip())


def _finish(found: Sequence[Imported], place: Path, python: str | None, no_try: bool, as_json: bool) -> None:
    """Try the problems out, print the table, and end: status 1 when not one was imported."""
    settings, _ = load_settings({"python": python})
    tried = {} if no_try else _tried(found, settings.interpreter, settings.target)
    rows = [_row(one, tried.get(one.folder)) for one in found]
    usable = sum(not row["reason"] for row in rows)
    if as_json:
        output.json({"folder": str(place), "imported": usable, "files": rows})
    else:
        output.table(COLUMNS, [_cells(row) for row in rows])
        output.line(f"{usable} of {len(rows)} imported to {place}")
    raise typer.Exit(0 if usable else 1)


def _tried(found: Sequence[Imported], python: str, target: str) -> dict[Path | None, Surveyed]:
    from kbtui.evaluate.survey import survey

    folders = [one.folder for one in found if one.folder is not None]
    tried: dict[Path | None, Surveyed] = {}
    with tempfile.TemporaryDirectory(prefix="kbtui-import-", ignore_cleanup_errors=True) as scratch:
        for number, one in enumerate(survey(python, target, folders, Path(scratch)), 1):
            tried[one.folder] = one
            if number % 20 == 0:
                output.note(f"{number} of {len(folders)} tried ...")
    return tried


def _row(one: Imported, tried: Surveyed | None) -> dict[str, object]:
    from kbtui.problems.suites.setting import NO_KERNEL

    reason = one.reason or (tried.reason if tried is not None else "")
    notes = [*one.notes, *(tried.notes if tried is not None else ())]
    if reason and one.folder is not None and NO_KERNEL in reason:
        notes, reason, tried = [f"not tried: {reason}", *notes], "", None  # a machine with a GPU may well import it
    if reason and one.folder is not None:
        _withdraw(one.folder)
    return {
        "kernel": one.name,
        "problem": None if reason else str(one.folder),
        "reason": reason,
        "timed": tried.cases if tried is not None and not reason else None,
        "checked": tried.checks if tried is not None and not reason else None,
        "notes": notes,
    }


def _withdraw(folder: Path) -> None:
    """Remove a folder that cannot be used: what is there is what can be run."""
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _cells(row: dict[str, object]) -> list[str]:
    notes = row["notes"]
    assert isinstance(notes, list)
    if row["reason"]:
        return [str(row["kernel"]), "-", "-", f"not imported: {row['reason']}"]
    figures = ["?" if row[name] is None else str(row[name]) for name in ("timed", "checked")]
    return [str(row["kernel"]), *figures, "; ".join(map(str, notes))]
