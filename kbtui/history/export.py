"""A candidate's source as a file, headed by where it comes from and what is known of it."""

from __future__ import annotations

from pathlib import Path

from kbtui import paths
from kbtui.errors import UsageError
from kbtui.state.run_state import Candidate, RunState
from kbtui.text import clean_line


def export_candidate(state: RunState, candidate_id: int | None, file: Path | None, *, overwrite: bool) -> Path:
    """Write candidate `candidate_id` (None: the best) to `file` (None: `<run>-<candidate>.py` here); the path.

    Raises UsageError when there is no such candidate or the file cannot be written.
    """
    if state.started is None:
        raise UsageError("the run's journal holds no start of a run: nothing can be exported from it")
    candidate = _chosen(state, candidate_id)
    path = file if file is not None else Path(f"{state.started.run_id}-{candidate.id}.py")
    text = "".join(f"# {clean_line(line)}\n" for line in _header(state, candidate)) + candidate.source
    try:
        with path.open("w" if overwrite else "x", encoding="utf-8", errors="surrogatepass") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists: choose another file with --output, or add --overwrite") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path.resolve()


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
    made = "the baseline" if candidate.strategy is None else f"{candidate.strategy} · {candidate.move}"
    return [
        f"Exported by kbtui from run {started.run_id} ({paths.journal_file(started.run_id)}).",
        f"Candidate #{candidate.id}, {made}; problem {started.problem.name}, sha256 {started.problem.digest[:16]}.",
        f"{candidate.status} on {started.device.name}: {_figure(candidate)}.",
    ]


def _figure(candidate: Candidate) -> str:
    timing = candidate.timing
    if timing is None:
        return "not timed"
    if timing.ratio is not None:
        interval = (
            f" [{timing.low:.2f}, {timing.high:.2f}]" if timing.low is not None and timing.high is not None else ""
        )
        return f"{timing.ratio:.2f}x{interval} against the baseline, measured"
    if timing.estimate is not None:
        return f"~{timing.estimate:.2f} est against the baseline, modelled and not measured"
    return "no time"
