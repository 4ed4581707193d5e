"""`kbtui history compare`: two or more runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbtui.cli import output
from kbtui.cli.output import Column
from kbtui.text import plural

if TYPE_CHECKING:
    from kbtui.history.compare import Comparison


def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Ids, their starts or ends, or problems.")],
    file: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write it to NAME.md, NAME.csv or NAME.json instead.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON value.")] = False,
) -> None:
    """Compare two or more runs: best, interval, pulls, time, cost, by case and by strategy, and what was set differently.

    Modelled ratios are never compared with measured ones.
    """
    from kbtui.history.compare import compare as compare_states
    from kbtui.history.comparison_file import COMPARISONS, write_comparison
    from kbtui.history.export import require_writable
    from kbtui.history.runs import find_run, load_state

    if file is not None:
        require_writable(file, overwrite=overwrite, formats=COMPARISONS)
    found = compare_states([load_state(find_run(run)) for run in runs])
    if file is not None:
        write_comparison(found, file)
        output.line(f"{plural(len(found.runs), 'run')} in {file}")
    elif as_json:
        output.json(found)
    else:
        _print(found)


def _print(found: Comparison) -> None:
    from kbtui.history.side_by_side import remarks, sections

    runs = [Column(run.run_id, right=True, gives=True) for run in found.runs]
    for title, rows in sections(found):
        output.table([Column(title, gives=True), *runs], rows)
        output.line()
    for text in remarks(found):
        output.line(text)
