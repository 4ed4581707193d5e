"""`kbtui bench`: one method over a suite, and the table of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    suite: Annotated[str, typer.Argument(help="bundled, the name of an imported suite, or a folder of problems.")],
    method: Annotated[str, typer.Option(help="rewrite, llm, paper, best-of-n, geak or autotune.")] = "rewrite",
    iterations: Annotated[int, typer.Option(min=1, help="Pulls for each kernel.")] = 20,
    kernels: Annotated[str | None, typer.Option(help="Only these, in this order.", metavar="A,B")] = None,
    shard: Annotated[
        str, typer.Option(help="Every N-th kernel from the I-th on; several machines share a suite.", metavar="I/N")
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what is there already.")] = False,
    out: Annotated[Path | None, typer.Option(help="Where results lie; else with kbtui's data.", metavar="DIR")] = None,
    model: Annotated[list[str] | None, typer.Option(help="For methods that ask one; may be repeated.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Dollars for each kernel.")] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="With --replies: prompts are written here and no model is asked.", metavar="DIR")
    ] = None,
    replies: Annotated[Path | None, typer.Option(help="Replies are read from here.", metavar="DIR")] = None,
    device: Annotated[str | None, typer.Option(help="cuda:0, or cpu (interpreter and estimate).")] = None,
    target: Annotated[str | None, typer.Option(help="The GPU that `cpu` compiles for, such as sm_90.")] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that has torch and triton.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of every random draw.")] = None,
    parallel: Annotated[int | None, typer.Option(help="Pulls in flight at a time.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a method over every kernel of a suite and print the table.

    Each kernel is an ordinary run. Results are kept as they come in; --resume goes on after anything, and results of
    several shards in one --out make one table. On cpu all figures are modelled.
    """
    import msgspec

    from kbtui.bench.methods import find_method
    from kbtui.bench.running import Benchmark, folder_of, keep_rows, run, write_tables
    from kbtui.bench.suites import chosen, find_suite
    from kbtui.engine.devices import choose_device
    from kbtui.engine.spec import RunSpec

    chosen_method = find_method(method)
    files = _files(prompts, replies, chosen_method.generator)
    settings, _ = load_settings(
        {
            "generator": chosen_method.generator,
            "model": ",".join(model) if model else ("files/model" if files is not None else None),
            "budget_usd": budget_usd,
            "device": device,
            "target": target,
            "python": python,
            "seed": seed,
            "parallel": parallel,
        }
    )
    base = RunSpec(
        problem="",
        model=settings.model,
        generator_parameters=options.generator_parameters(settings),
        policy=settings.policy,
        policy_parameters=dict(settings.policy_parameters),
        budget_usd=settings.budget_usd,
        budget_tokens=settings.budget_tokens or None,
        objective=settings.objective,
        device=choose_device(settings.device),
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
    problems = chosen(find_suite(suite), names(kernels), shard)
    rows = run(benchmark, problems, folder, resume=resume, report=_Progress(len(problems)))
    title = (
        f"{suite}, {method}, {plural(iterations, 'pull')} for each kernel, {rows[0].device or base.device}"
        if rows
        else suite
    )
    write_tables(folder, title, rows)
    try:
        keep_rows(rows)
    except HistoryError as error:
        output.note(f"the history database has no row of this yet ({error}); --resume puts them in")
    if as_json:
        from kbtui.bench.table import figures

        output.json(
            {"folder": str(folder), "figures": figures(rows), "rows": [msgspec.to_builtins(row) for row in rows]}
        )
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
    """Says on stderr what came out of each kernel."""

    def __init__(self, count: int) -> None:
        self._count, self._done = count, 0

    def __call__(self, row: Row) -> None:
        from kbtui.bench.table import cells

        self._done += 1
        kernel, verdict, best, *_, last = cells(row)
        output.note(f"{self._done}/{self._count} {kernel}: {verdict} {best if row.status == 'done' else last}")


def _print(rows: list[Row], folder: Path, files: Replies | None) -> None:
    from kbtui.bench.table import cells, figures, summary_lines

    found = figures(rows)
    output.table(COLUMNS, [cells(row) for row in rows])
    output.line()
    if found.timing == "modelled":
        output.line("modelled: no GPU was used, nothing was timed, and no figure here is a speedup")
    for name, value in summary_lines(found):
        output.line(f"{name:32} {value}")
    output.line(f"table.md, rows.csv and results.json are in {folder}")
    if files is not None and found.waiting:
        output.line(
            f"{plural(found.waiting, 'kernel')} to go: answer the prompts in {files.prompts} by files of the same names in"
        )
        output.line(f"{files.replies}, then run the same command with --resume")
