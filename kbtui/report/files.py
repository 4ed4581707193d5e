"""Reports into files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kbtui.errors import UsageError
from kbtui.state.run_state import Candidate, RunState

Make = Callable[[RunState, Candidate | None], str]


def write_report(make: Make, state: RunState, candidate_id: int | None, file: Path, *, overwrite: bool) -> Path:
    """Write what `make` makes of a run to `file`; its full path. `candidate_id` None: the best is shown whole.

    Raises UsageError when the run never started, has no such candidate, or the file exists or cannot be written.
    """
    if state.started is None:
        raise UsageError("the run's journal holds no start of a run: nothing can be exported from it")
    if candidate_id is not None and candidate_id not in state.candidates:
        last = max(state.candidates, default=-1)
        raise UsageError(f"the run has no candidate #{candidate_id}; they go up to #{last}")
    candidate = state.candidates[candidate_id] if candidate_id is not None else state.best
    text = make(state, candidate)
    try:
        with file.open("w" if overwrite else "x", encoding="utf-8", errors="replace") as out:
            out.write(text)
    except FileExistsError:
        raise UsageError(f"{file} exists: choose another file, or add --overwrite") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from None
    return file.resolve()
