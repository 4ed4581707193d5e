"""Running a benchmark: kernel by kernel, each result on disk before the next one begins, so that it can go on at any time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock, paths
from kbtui.bench.claims import claimed
from kbtui.bench.limits import Limit
from kbtui.bench.methods import Method
from kbtui.bench.references import time_reference
from kbtui.bench.rows import Row, RowFile, read_rows, row_of
from kbtui.bench.suites import read_shard
from kbtui.engine.spec import RunSpec, run_id_for
from kbtui.errors import EnvironmentFailure, KbtuiError, ProblemError, ProviderFailure, UsageError
from kbtui.state.events import Event
from kbtui.state.records import Record
from kbtui.state.run_state import RunState
from kbtui.text import plural

MOST_LOST = 3
"""So many kernels in a row that the machine or a provider failed on end the benchmark: the next ones would fail alike."""
NO_LIMIT = Limit()
Report = Callable[[Row], None]
OnBug = Callable[[Exception], str]


def raised(bug: Exception) -> str:
    """For callers that have no other use for a bug."""
    raise bug


class Replies(Record, frozen=True, kw_only=True):
    """Folders of a model that is reached through files, each with one folder per kernel."""

    prompts: Path
    replies: Path


class Benchmark(Record, frozen=True, kw_only=True):
    """What is run. `base` holds what all runs share; its problem, id and method are filled in for each kernel."""

    suite: str
    method: Method
    iterations: int
    base: RunSpec
    shard: str = ""
    through_files: Replies | None = None

    @property
    def name(self) -> str:
        """Suite, method and a digest of all that decides the results: two machines that run shards of it agree on it."""
        shaped = self.method.shape(self.base, self.iterations)
        kind = shaped.device.partition(":")[0]
        plain = msgspec.structs.replace(shaped, device=kind, python="", arguments=(), run_id="")
        decides = msgspec.to_builtins(plain)
        digest = hashlib.sha256(msgspec.json.encode([decides, self.through_files is not None], order="sorted"))
        suite = Path(self.suite).name or "suite"
        return f"{suite}-{self.method.name}-{digest.hexdigest()[:8]}"


def folder_of(benchmark: Benchmark, out: Path | None) -> Path:
    """Where its results lie."""
    return out if out is not None else paths.benchmarks_dir() / benchmark.name


def results(folder: Path) -> list[Row]:
    """The results in a folder, those of all shards together. Raises HistoryError for a damaged file."""
    return list(read_rows(folder.glob("rows-*.jsonl")).values())


def rows_file(benchmark: Benchmark, folder: Path, worker: str = "") -> Path:
    """Where a shard's results go, those of one of its workers to a file of its own."""
    name = "rows-{}of{}".format(*read_shard(benchmark.shard))
    return folder / (f"{name}.w{worker.partition('/')[0]}.jsonl" if worker else f"{name}.jsonl")


def check(benchmark: Benchmark, folder: Path, *, resume: bool) -> None:
    """Raise UsageError where the folder has results of another benchmark, or some of this shard's without `resume`."""
    own = read_rows(folder.glob(f"{rows_file(benchmark, folder).stem}.*jsonl"))
    if any(map(_counts, own.values())) and not resume:
        raise UsageError(f"{folder} has results already: --resume goes on with it, --out DIR begins elsewhere")
    _refuse_another({row.kernel: row for row in results(folder)}, benchmark.name, folder)


def run(
    benchmark: Benchmark,
    problems: dict[str, Path],
    folder: Path,
    *,
    resume: bool,
    report: Report,
    limit: Limit = NO_LIMIT,
    worker: str = "",
    on_bug: OnBug = raised,
) -> list[Row]:
    """Run the method over the problems; the rows of the whole folder, those of others included.

    Results that are over are left alone with `resume`, and refused without it; a kernel that another process works on
    is left to it. Once `limit` is over no kernel begins, and the one under way is stopped so that `resume` goes on
    with it. `on_bug` is told of an error that nobody expected, and says what the kernel's row shall say. Raises
    UsageError, and EnvironmentFailure, ProviderFailure or such an error when it came on several kernels in a row.
    """
    check(benchmark, folder, resume=resume)
    file = RowFile(rows_file(benchmark, folder, worker))
    lost = 0
    for kernel, path in problems.items():
        if limit.over:
            break
        with claimed(folder, kernel) as is_mine:
            known = {row.kernel: row for row in results(folder)}.get(kernel) if is_mine else None
            if not is_mine or (known is not None and known.over):
                continue
            row, failure = _one(benchmark, kernel, path, known, file, limit, on_bug)
            file.append(row)
        report(row)
        lost = lost + 1 if failure is not None else 0
        if failure is not None and lost == MOST_LOST:
            raise failure
    return results(folder)


def _counts(row: Row) -> bool:
    """Whether anything came of it: a run that was refused before it began leaves nothing to go on with."""
    return row.status != "started" or paths.journal_file(row.run_id).exists()


def _refuse_another(before: dict[str, Row], name: str, folder: Path) -> None:
    other = next((row.benchmark for row in before.values() if row.benchmark != name), None)
    if other is not None:
        raise UsageError(
            f"{folder} holds {other} and this is {name}: give the same method, iterations, seed, device and model, "
            "or another --out"
        )


def _one(
    benchmark: Benchmark,
    kernel: str,
    path: Path,
    known: Row | None,
    file: RowFile,
    limit: Limit,
    on_bug: OnBug,
) -> tuple[Row, Exception | None]:
    """Run one kernel; its row, and the failure if it was the machine's, a provider's or kbtui's own."""
    spec, row = _begun(benchmark, kernel, path, known)
    file.append(row)
    state = RunState()
    if spec.continue_run:
        from kbtui.history.journal import read_journal

        state.apply_all(read_journal(paths.journal_file(spec.run_id)))
    waits: list[bool] = []
    began = clock.monotonic()
    try:
        if not benchmark.method.searches:
            found = time_reference(spec, row, limit)
            return msgspec.structs.replace(found, seconds=row.seconds + clock.monotonic() - began), None
        summary = _run(benchmark, spec, kernel, state, waits, limit)
    except KeyboardInterrupt:
        if not limit.over:
            raise
        return _stopped(row, f"{limit.over} before its baseline was timed", began), None
    except (EnvironmentFailure, ProviderFailure) as failure:
        return _failed(row, failure, failure.owner, began), failure
    except UsageError as error:
        if isinstance(error, ProblemError):
            return _failed(row, error, "candidate", began), None
        raise
    except KbtuiError as error:
        return _failed(row, error, "candidate", began), None
    except Exception as bug:  # noqa: BLE001  one kernel's bug must not take the other kernels' results with it
        return _failed(row, KbtuiError(on_bug(bug)), "kbtui", began), bug
    seconds = row.seconds + clock.monotonic() - began
    if waits:
        waiting = "its prompts wait for replies"
        return msgspec.structs.replace(row, status="waiting", seconds=seconds, reason=waiting), None
    found = row_of(row, state, summary, seconds, clock.wall())
    if found.status == "stopped":
        why = limit.over or "somebody stopped it"
        found = msgspec.structs.replace(found, reason=f"{why} after {plural(found.pulls, 'pull')}")
    return found, None


def _begun(benchmark: Benchmark, kernel: str, path: Path, known: Row | None) -> tuple[RunSpec, Row]:
    """The run to do, and its row while it runs: the one that was begun before, else a new one."""
    spec = msgspec.structs.replace(benchmark.method.shape(benchmark.base, benchmark.iterations), problem=str(path))
    if known is not None and known.run_id and paths.journal_file(known.run_id).exists():
        spec = RunSpec(problem="", run_id=known.run_id, continue_run=True, python=spec.python)
        return spec, msgspec.structs.replace(known, status="started", reason="", owner="")
    spec.run_id = run_id_for(str(path)) if benchmark.method.searches else ""
    row = Row(
        benchmark=benchmark.name,
        suite=benchmark.suite,
        method=benchmark.method.name,
        kernel=kernel,
        status="started",
        run_id=spec.run_id,
        timing="measured" if spec.device.startswith("cuda") else "modelled",
    )
    return spec, row


def _run(benchmark: Benchmark, spec: RunSpec, kernel: str, state: RunState, waits: list[bool], limit: Limit) -> Any:
    from kbtui.engine.run_process import default_parts, run_in_foreground
    from kbtui.state.events import is_durable

    def hear(event: Event) -> None:
        if is_durable(event):
            state.apply(event)

    engines: list[Any] = []

    def keep(engine: Any) -> None:
        engines.append(engine)
        limit.watch(engine.stop)

    def stop() -> None:
        waits.append(True)
        engines[0].stop()

    parts = default_parts()
    if benchmark.through_files is not None:
        make = partial(_generator, benchmark.through_files, kernel, stop)
        parts = replace(parts, make_generator=make)
    return run_in_foreground(spec, hear, parts, keep)


def _generator(files: Replies, kernel: str, stop: Callable[[], None], spec: RunSpec) -> Any:
    """The llm generator, its model reached through files."""
    from kbtui.generate.llm.by_files import backend_of
    from kbtui.generate.llm.generator import LlmGenerator
    from kbtui.generate.llm.settings import read_models, read_settings

    settings, passed_on = read_settings(spec.generator_parameters)
    backend = backend_of(files.prompts / kernel, files.replies / kernel, stop)
    return LlmGenerator("llm", settings, read_models(spec.model), passed_on, backend)


def _failed(row: Row, error: KbtuiError, owner: str, began: float) -> Row:
    seconds = row.seconds + clock.monotonic() - began
    return msgspec.structs.replace(
        row, status="failed", reason=str(error), owner=owner, seconds=seconds, finished_at=clock.wall()
    )


def _stopped(row: Row, reason: str, began: float) -> Row:
    seconds = row.seconds + clock.monotonic() - began
    return msgspec.structs.replace(row, status="stopped", reason=reason, seconds=seconds, finished_at=clock.wall())


def write_tables(folder: Path, title: str, rows: Sequence[Row]) -> None:
    """`table.md`, `rows.csv` and `results.json` in the folder, replacing older ones. Raises EnvironmentFailure."""
    from kbtui.bench.table import as_csv, as_json, markdown

    texts = {"table.md": markdown(title, rows).encode(), "rows.csv": as_csv(rows).encode()}
    try:
        for name, text in {**texts, "results.json": as_json(title, rows)}.items():
            fresh = folder / f".{name}.new"
            fresh.write_bytes(text)
            fresh.replace(folder / name)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be written ({error.strerror}): choose another --out") from None


_NOT_KEPT = ("stopped_by", "of_limit_percent", "family")
"""What the table `benchmarks` has no column for: the runs' own tables know it, or the caller."""


def keep_rows(rows: Sequence[Row]) -> None:
    """Put the rows into the history database. Raises HistoryError when another process holds it."""
    from kbtui.history.database import History

    kept: list[dict[str, Any]] = []
    for row in rows:
        values = {name: getattr(row, name) for name in Row.__struct_fields__ if name not in _NOT_KEPT}
        modelled = row.timing == "modelled"
        values["sum_estimate"] = row.sum_ratio if modelled else None
        values["sum_ratio"] = None if modelled else row.sum_ratio
        kept.append(values)
    History().add_benchmarks(kept)
