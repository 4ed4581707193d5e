"""Out of kbtui into files: a candidate's source, headed by what is known of it; a query's answer as CSV, JSON or Parquet."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kbtui import __version__
from kbtui.errors import UsageError
from kbtui.history.evidence import baseline_name, make_card, write_card
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean_line

if TYPE_CHECKING:
    from kbtui.history.database import History, Table

FORMATS = (".csv", ".json", ".jsonl", ".parquet")


def require_writable(path: Path, *, overwrite: bool, formats: Sequence[str] = FORMATS) -> None:
    """Raise UsageError unless `path` has a known suffix, lies in a folder that exists, and is free or may be replaced."""
    if path.suffix not in formats:
        raise UsageError(f"{path} does not say its format: end it in {', '.join(formats)}")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder: make it first")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists: choose another file, or add --overwrite")


def write_answer(history: History, query: str, path: Path) -> int:
    """Write the answer to `query` in the format of the suffix; the number of rows. Raises HistoryError or UsageError."""
    if path.suffix == ".parquet":
        return history.write_parquet(query, path)
    found = history.sql(query)
    write_table(found, path)
    return len(found.rows)


def write_table(table: Table, path: Path) -> None:
    """Write `table` in the format of the suffix, Parquet excepted. NULL is an empty field in CSV. Raises UsageError."""
    try:
        if path.suffix == ".csv":
            with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as out:
                writer = csv.writer(out)
                writer.writerow(table.columns)
                writer.writerows(table.rows)
            return
        records = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        encoder = msgspec.json.Encoder(enc_hook=str)
        encoded = encoder.encode(records) + b"\n" if path.suffix == ".json" else encoder.encode_lines(records)
        path.write_bytes(encoded)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def export_candidate(state: RunState, candidate_id: int | None, file: Path | None, *, overwrite: bool) -> Path:
    """Write candidate `candidate_id` (None: the best) to `file` (None: `<run>-<candidate>.py` here); the path. The evidence
    card of one that is correct and was timed comes beside it, as `.evidence.json` and `.evidence.txt`.

    Raises UsageError when there is no such candidate or a file cannot be written.
    """
    if state.started is None:
        raise UsageError("the run's journal holds no start of a run: nothing can be exported from it")
    candidate = _chosen(state, candidate_id)
    path = file if file is not None else Path(f"{state.started.run_id}-{candidate.id}.py")
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8", errors="surrogatepass") as out:
            out.write(headed_source(state, candidate))
    except FileExistsError:
        raise UsageError(f"{path} exists: choose another file with --output, or add --overwrite") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    if candidate.correct and candidate.timing is not None:
        write_card(make_card(state, candidate), path.with_suffix(".evidence.json"))
    return path.resolve()


def headed_source(state: RunState, candidate: Candidate) -> str:
    """The candidate's source under comment lines that say where it comes from and whether its time was measured or modelled."""
    return "".join(f"# {clean_line(line)}\n" for line in _header(state, candidate)) + candidate.source


def _chosen(state: RunState, candidate_id: int | None) -> Candidate:
    if candidate_id is None:
        if state.best is None:
            raise UsageError("the run has no best yet: name a candidate with --candidate")
        return state.best
    if candidate_id not in state.candidates:
        last = max(state.candidates, default=-1)
        raise UsageError(f"the run has no candidate #{candidate_id}; they go up to #{last}")
    return state.candidates[candidate_id]


def _header(state: RunState, candidate: Candidate) -> list[str]:
    started = state.started
    assert started is not None
    made = candidate.move if candidate.strategy is None else f"{candidate.strategy} · {candidate.move}"
    if candidate.id == state.baseline_id:
        made = "the baseline" if candidate.strategy is None else f"the baseline ({made})"
    return [
        f"Exported by kbtui {__version__} from run {started.run_id}.",
        f"Candidate #{candidate.id}, {made}; problem {started.problem.name}, sha256 {started.problem.digest[:16]}.",
        f"{candidate.status} on {started.device.name}: {_figure(candidate, baseline_name(state))}.",
    ]


def _figure(candidate: Candidate, baseline: str) -> str:
    timing = candidate.timing
    if timing is None:
        return "not timed"
    if timing.ratio is not None:
        interval = (
            f" [{timing.low:.2f}, {timing.high:.2f}]" if timing.low is not None and timing.high is not None else ""
        )
        return f"{timing.ratio:.2f}x{interval} against {baseline}, measured"
    if timing.estimate is not None:
        return f"~{timing.estimate:.2f} est against {baseline}, modelled and not measured"
    return "no time"
