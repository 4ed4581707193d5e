"""`kbtui bench`: one method over a suite, and the table of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from kbtui.cli import options, output
from kbtui.cli.importing import names
from kbtui.cli.output import Column
from kbtui.cli.runs import AsJson
from kbtui.config import load_settings
from kbtui.errors import HistoryError, UsageError
from kbtui.text import plural

if TYPE_CHECKING:
    from kbtui.bench.rows import Row
    from kbtui.bench.running import Replies

COLUMNS = (
    Column("kernel"), Column("verdict"), Column("best", right=True), Column("sum/sum", right=True),
    Column("correct", right=True), Column("$", right=True), Column("s", right=True), Column("run or reason", gives=True),
)  # fmt: skip

FAMILY_COLUMNS = (
    Column("family", gives=True), Column("tasks", right=True), Column("correct", right=True),
    Column("Fast@1", right=True), Column("all tasks", right=True), Column("median", right=True),
)  # fmt: skip

MOST_JOBS = 64


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    suite: Annotated[str, typer.Argument(help="bundled, the name of an imported suite, or a folder of problems.")],
    method: Annotated[
        str, typer.Option(help="rewrite, llm, paper, best-of-n, geak, autotune or torch-compile.")
    ] = "rewrite",
    iterations: Annotated[int, typer.Option(min=1, help="Pulls for each kernel.")] = 20,
    kernels: Annotated[
        str | None, typer.Option(help="Only these, in this order; @FILE names them one a line.", metavar="A,B|@FILE")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="Every N-th kernel from the I-th on; several machines share a suite.", metavar="I/N")
    ] = "",
    jobs: Annotated[
        int, typer.Option(min=1, max=MOST_JOBS, help="Kernels at a time, each in a process of its own.")
    ] = 1,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Then stop so that --resume goes on; 0 prints what is there.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is there already.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where results lie; else with kbtui's data.", metavar="DIR")] = None,
    model: Annotated[list[str] | None, typer.Option(help="For methods that ask one; may be repeated.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Dollars for each kernel.")] = None,
    budget_minutes: Annotated[float | None, typer.Option(help="Minutes for each kernel.")] = None,
    families: Annotated[
        Path | None, typer.Option(help="Lines kernel,family: the table gets figures by family.", metavar="FILE")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="With --replies: prompts are written here and no model is asked.", metavar="DIR")
    ] = None,
    replies: Annotated[Path | None, typer.Option(help="Replies are read from here.", metavar="DIR")] = None,
    device: Annotated[
        str | None, typer.Option(help="cuda:0, cuda:0,1 (each with its own kernels), or cpu (estimate).")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The GPU that `cpu` compiles for, such as sm_90.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random draw.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Pulls in flight at a time.")] = None,
    worker: Annotated[str, typer.Option(hidden=True)] = "",
    as_json: AsJson = False,
) -> None:
    """Run a method over every kernel of a suite and print the table.

    Each kernel is an ordinary run. Results are kept as they come in; --resume goes on after anything, and results of
    several shards in one --out make one table. With --jobs kernels are compiled and checked beside one another and timed
    one at a time. On cpu all figures are modelled.
    """
    from kbtui.bench.limits import Limit
    from kbtui.bench.methods import find_method
    from kbtui.bench.running import Benchmark, check, folder_of, results, run
    from kbtui.bench.suites import chosen, find_suite, read_families, read_names, read_shard
    from kbtui.bench.workers import in_turn, of_worker, run_workers
    from kbtui.cli.crash import reported
    from kbtui.engine.devices import choose_devices
    from kbtui.engine.spec import RunSpec

    chosen_method = find_method(method)
    files = _files(prompts, replies, chosen_method.generator)
    settings, _ = load_settings(
        {
            "generator": chosen_method.generator or None,
            "model": ",".join(model) if model else ("files/model" if files is not None else None),
            "budget_usd": budget_usd,
            "budget_minutes": budget_minutes,
            "device": device,
            "target": target,
            "python": python,
            "seed": seed,
            "parallel": parallel,
        }
    )
    devices = choose_devices(settings.device)
    number, count = read_shard(worker)
    jobs = min(max(jobs, len(devices)), MOST_JOBS)
    base = RunSpec(
        problem="",
        model=settings.model,
        generator_parameters=options.generator_parameters(settings),
        policy=settings.policy,
        policy_parameters=dict(settings.policy_parameters),
        budget_usd=settings.budget_usd,
        budget_tokens=settings.budget_tokens or None,
        budget_minutes=settings.budget_minutes or None,
        objective=settings.objective,
        device=of_worker(devices, number),
        target=settings.target,
        python=settings.interpreter,
        seed=settings.seed,
        parallel=settings.parallel,
        arguments=tuple(sys.argv[1:]),
    )
    benchmark = Benchmark(
        suite=suite, method=chosen_method, iterations=iterations, base=base, shard=shard, through_files=files
    )
    folder = folder_of(benchmark, out)
    named = read_names(Path(kernels[1:])) if kernels and kernels.startswith("@") else names(kernels)
    problems = chosen(find_suite(suite), named, shard)
    family_of = read_families(families) if families is not None else {}
    if worker:
        mine, limit = in_turn(problems, number, count), Limit(minutes, parent=os.getppid())
        progress = _Progress()
        run(benchmark, mine, folder, resume=True, report=progress, limit=limit, worker=worker, on_bug=reported)
        return
    lost, resume = 0, resume or minutes == 0
    if jobs > 1 and minutes != 0:
        check(benchmark, folder, resume=resume)
        jobs = min(jobs, len(problems))
        lost = run_workers(jobs, sys.argv[1:])
    else:
        progress = _Progress(len(problems))
        run(benchmark, problems, folder, resume=resume, report=progress, limit=Limit(minutes), on_bug=reported)
    rows = [msgspec.structs.replace(row, family=family_of.get(row.kernel, "")) for row in results(folder)]
    device_name = next((row.device for row in rows if row.device), base.device)
    pulls = f", {plural(iterations, 'pull')} for each kernel" if chosen_method.searches else ""
    title = f"{suite}, {method}{pulls}, {device_name}"
    _show(title, rows, folder, files, as_json)
    if lost:
        output.note(f"{lost} of {jobs} processes failed as said above: --resume goes on")
        raise typer.Exit(1)


def _show(title: str, rows: list[Row], folder: Path, files: Replies | None, as_json: bool) -> None:
    """Write the tables, put the rows into the history database, and print."""
    from kbtui.bench.running import keep_rows, write_tables
    from kbtui.bench.table import by_family, figures

    write_tables(folder, title, rows)
    try:
        keep_rows(rows)
    except HistoryError as error:
        output.note(f"the history database has no row of this yet ({error}); --resume puts them in")
    if as_json:
        said = {"folder": str(folder), "figures": figures(rows), "families": by_family(rows)}
        output.json({**said, "rows": [msgspec.to_builtins(row) for row in rows]})
    else:
        _print(rows, folder, files)


def _files(prompts: Path | None, replies: Path | None, generator: str) -> Replies | None:
    from kbtui.bench.running import Replies

    if prompts is None and replies is None:
        return None
    if prompts is None or replies is None:
        raise UsageError(
            "--prompts and --replies go together: one is where prompts go, the other where replies come from"
        )
    if generator != "llm":
        raise UsageError("--prompts and --replies are for methods that ask a model: add --method llm")
    return Replies(prompts=prompts.expanduser().resolve(), replies=replies.expanduser().resolve())


class _Progress:
    """Says on stderr what came out of each kernel; of how many, where one process does them all."""

    def __init__(self, count: int = 0) -> None:
        self._count, self._done = count, 0

    def __call__(self, row: Row) -> None:
        from kbtui.bench.table import cells

        self._done += 1
        kernel, verdict, best, *_, last = cells(row)
        at = f"{self._done}/{self._count} " if self._count else ""
        output.note(f"{at}{kernel}: {verdict} {best if row.gain is not None else last}")


def _print(rows: list[Row], folder: Path, files: Replies | None) -> None:
    from kbtui.bench.table import by_family, cells, family_cells, figures, summary_lines

    found = figures(rows)
    output.table(COLUMNS, [cells(row) for row in rows])
    output.line()
    families = by_family(rows)
    if families:
        output.table(FAMILY_COLUMNS, [family_cells(name, one) for name, one in families.items()])
        output.line()
    if found.timing == "modelled":
        output.line("modelled: no GPU was used, nothing was timed, and no figure here is a speedup")
    for name, value in summary_lines(found):
        output.line(f"{name:36} {value}")
    output.line(f"table.md, rows.csv and results.json are in {folder}")
    if files is not None and found.waiting:
        output.line(
            f"{plural(found.waiting, 'kernel')} to go: answer the prompts in {files.prompts} by files of the same names in"
        )
        output.line(f"{files.replies}, then run the same command with --resume")
