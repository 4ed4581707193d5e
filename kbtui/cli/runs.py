"""The runs there are: list, attach, replay, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kbtui.cli import output
from kbtui.cli.cockpit import drawing_flags, open_cockpit
from kbtui.cli.output import Column
from kbtui.cli.screen import Ascii, LowBandwidth, NoMouse, Theme
from kbtui.errors import UsageError

if TYPE_CHECKING:
    from kbtui.history.runs import RunEntry

RunOrNewest = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="A run's id, the start or end of one, or a problem's name; the newest."),
]
AsJson = Annotated[bool, typer.Option("--json", help="As one JSON value.")]
Chosen = Annotated[
    str, typer.Option("--filter", help="Only runs that fit, such as 'problem:softmax speedup>1.2 -status:failed'.")
]

COLUMNS = (
    Column("run", gives=True),
    Column("status"),
    Column("problem", gives=True),
    Column("device", gives=True),
    Column("pulls", right=True),
    Column("best"),
    Column("cost", right=True),
    Column("age", right=True),
)


def register(app: typer.Typer) -> None:
    for command in (runs, attach, replay, export):
        app.command()(command)


def runs(chosen: Chosen = "", as_json: AsJson = False) -> None:
    """List the runs that are not finished.

    They are live, paused, stale (the process does not answer) or crashed. `kbtui history list` has the finished ones too.
    """
    entries = [entry for entry in fitting(chosen) if entry.status != "stopped"]
    if as_json:
        output.json(entries)
    elif entries:
        print_runs(entries)
    elif chosen:
        output.line(
            "no run that is under way fits the filter: `kbtui history list --filter` looks at finished ones too"
        )
    else:
        output.line("no run is under way: `kbtui run PROBLEM` starts one, `kbtui history list` shows the finished ones")


def attach(
    run: RunOrNewest = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Look and do not touch.")] = False,
    theme: Theme = None,
    plain: Ascii = False,
    no_mouse: NoMouse = False,
    low_bandwidth: LowBandwidth = False,
) -> None:
    """Watch and steer a run. `q` detaches; the run goes on."""
    from kbtui.history.runs import find_run
    from kbtui.tui.terminal import require_terminal

    require_terminal("kbtui attach", "`kbtui runs` and `kbtui history show` tell how a run stands")
    flags = drawing_flags(theme, plain, no_mouse, low_bandwidth)
    raise typer.Exit(open_cockpit(find_run(run, to_steer=True), flags, read_only=read_only))


def replay(
    run: RunOrNewest = None,
    theme: Theme = None,
    plain: Ascii = False,
    no_mouse: NoMouse = False,
    low_bandwidth: LowBandwidth = False,
) -> None:
    """Look at a run as it was after any event or pull, with a slider, or play it.

    Nothing can be changed.
    """
    from kbtui.history.runs import find_run
    from kbtui.tui.terminal import require_terminal

    require_terminal("kbtui replay", "`kbtui history show` tells how a run went")
    raise typer.Exit(open_cockpit(find_run(run), drawing_flags(theme, plain, no_mouse, low_bandwidth), replay=True))


def export(
    run: RunOrNewest = None,
    candidate: Annotated[int | None, typer.Option(min=0, help="Such as 7 for #7; the best when left out.")] = None,
    file: Annotated[Path | None, typer.Option("--output", "-o", help="Where to; else RUN-CANDIDATE.py here.")] = None,
    html: Annotated[Path | None, typer.Option(help="A report of the run instead, as one HTML file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="A report of the run instead, as Markdown.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
) -> None:
    """Write a candidate's source to a file, or a report of the run.

    A comment on top of the source says where it comes from and what is known of it. A report holds curve, tree, arms, what
    changed, evidence and configuration. Modelled times are marked as modelled in all of them.
    """
    from kbtui.history.export import export_candidate
    from kbtui.history.runs import find_run, load_state

    state = load_state(find_run(run))
    if html is None and markdown is None:
        output.line(str(export_candidate(state, candidate, file, overwrite=overwrite)))
        return
    from kbtui.report.files import write_report
    from kbtui.report.html import html_report
    from kbtui.report.markdown import markdown_report

    if file is not None:
        raise UsageError("--output is for a candidate's source: --html and --markdown name their own file")
    for target, make in ((html, html_report), (markdown, markdown_report)):
        if target is not None:
            output.line(str(write_report(make, state, candidate, target, overwrite=overwrite)))


def fitting(chosen: str) -> list[RunEntry]:
    """All runs that fit the filter, newest first. Raises FilterError before any journal is read."""
    from kbtui import clock
    from kbtui.history.filters import parse
    from kbtui.history.runs import list_runs

    wanted = parse(chosen)
    return wanted.of(list_runs(), clock.wall())


def print_runs(entries: list[RunEntry]) -> None:
    """A table of runs."""
    output.table(COLUMNS, [_cells(entry) for entry in entries])


def _cells(entry: RunEntry) -> list[str]:
    from kbtui import clock

    return [
        entry.run_id,
        entry.status,
        entry.error or entry.problem,
        entry.device,
        f"{entry.pulls}/{entry.iterations}",
        best(entry),
        f"${entry.cost_usd:.2f}",
        age(clock.wall() - entry.last_t) if entry.last_t else "",
    ]


def best(entry: RunEntry) -> str:
    """Such as `#17 1.42x faster` (measured) or `#3 ~1.30 est not worse` (modelled)."""
    if entry.best_id is None:
        return ""
    if entry.best_ratio is not None:
        return f"#{entry.best_id} {entry.best_ratio:.2f}x {entry.best_verdict}"
    if entry.best_estimate is not None:
        return f"#{entry.best_id} ~{entry.best_estimate:.2f} est {entry.best_verdict}"
    return f"#{entry.best_id} {entry.best_verdict}"


def age(seconds: float) -> str:
    """Such as `12 s`, `5 min`, `3 h`, `2 d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(int(seconds), 0)} s"
