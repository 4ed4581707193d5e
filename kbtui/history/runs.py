"""The runs of this user: which there are, how each stands, and its state folded from its journal. No database needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kbtui import clock
from kbtui.errors import JournalError, RunNotFoundError
from kbtui.history.journal import STALE_S, RunLock, heartbeat_file, read_journal
from kbtui.paths import journal_file, runs_dir
from kbtui.state.run_state import RunState, device_text

RunStatus = Literal["live", "paused", "stale", "crashed", "stopped"]
"""`live` and `paused`: a run process owns the run. `stale`: it owns it and gives no sign of life. `crashed`: no process,
and the journal does not end with `run_stopped`. `stopped`: finished; it can be continued."""


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `kbtui runs`. Times are seconds since the epoch.

    `best_ratio` is measured and `best_estimate` modelled; at most one is set. `pid` is the run process, None when there
    is none. `error` is the sentence of a journal that cannot be read; the other fields are then empty.
    """

    run_id: str
    status: RunStatus
    problem: str = ""
    device: str = ""
    timing: str = ""
    generator: str = ""
    model: str = ""
    policy: str = ""
    started_t: float = 0.0
    last_t: float = 0.0
    pulls: int = 0
    iterations: int = 0
    candidates: int = 0
    correct: int = 0
    best_id: int | None = None
    best_ratio: float | None = None
    best_estimate: float | None = None
    best_verdict: str = ""
    cost_usd: float = 0.0
    stopped_by: str = ""
    pid: int | None = None
    error: str = ""
    tags: tuple[str, ...] = ()
    """Words that people gave its candidates."""


def run_ids() -> list[str]:
    """The ids of all runs that have a journal, in no particular order."""
    try:
        return [entry.name for entry in runs_dir().iterdir() if (entry / "journal.jsonl").is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def list_runs() -> list[RunEntry]:
    """All runs, newest first. A run whose journal cannot be read is listed too, with the reason in `error`."""
    ids = run_ids()
    _forget_all_but(ids)
    entries = [_entry(run_id) for run_id in ids]
    return sorted(entries, key=lambda entry: (entry.started_t, entry.run_id), reverse=True)


def load_state(run_id: str) -> RunState:
    """The run's state, folded from its journal. Raises RunNotFoundError or JournalError."""
    path = journal_file(run_id)
    if not path.is_file():
        raise RunNotFoundError(f"there is no run {run_id}: `kbtui runs` lists them")
    return _fold(path)


def find_run(text: str | None, *, to_steer: bool = False) -> str:
    """The id of the run that `text` means.

    None: the newest live or paused run, else the newest. "latest": the newest. Otherwise an exact id, a problem's name
    (its newest run), or a prefix or suffix that fits one run only. `to_steer`: among a problem's
    runs those that a process owns come first, since only they can obey. Raises RunNotFoundError.
    """
    known = run_ids()
    if text is not None and text in known:
        return text
    if not known:
        raise RunNotFoundError("there are no runs yet: start one with `kbtui run PROBLEM`")
    runs = list_runs()
    if text is None:
        return next((run.run_id for run in runs if run.pid is not None), runs[0].run_id)
    if text == "latest":
        return runs[0].run_id
    named = [run for run in runs if run.problem == text]
    if to_steer:
        named = [run for run in named if run.pid is not None] or named
    fitting = [run.run_id for run in named[:1]]
    fitting = fitting or [run.run_id for run in runs if text and run.run_id.startswith(text)]
    fitting = fitting or [run.run_id for run in runs if text and run.run_id.endswith(text)]
    if not fitting:
        raise RunNotFoundError(
            f"no run is called {text!r} and no run id starts or ends with it: `kbtui runs` lists them"
        )
    if len(fitting) > 1:
        raise RunNotFoundError(f"{text!r} fits {len(fitting)} runs ({', '.join(fitting[:4])}...): write more of the id")
    return fitting[0]


def _entry(run_id: str) -> RunEntry:
    entry = _look(run_id)
    # A process may have started or finished between the look at its lock and the look at its journal: look twice
    # before saying that it crashed.
    return _look(run_id) if entry.status == "crashed" else entry


def _look(run_id: str) -> RunEntry:
    path = journal_file(run_id)
    pid = RunLock.holder(run_id)
    try:
        stat = path.stat()
        folded = _summary(path, stat.st_size, stat.st_mtime_ns)
    except (JournalError, OSError) as error:
        return RunEntry(run_id=run_id, status="crashed" if pid is None else "live", pid=pid, error=str(error))
    state, entry = folded
    return msgspec.structs.replace(entry, run_id=run_id, pid=pid, status=_status(run_id, pid, state, stat.st_mtime))


def _status(run_id: str, pid: int | None, run_says: str, journal_grew: float) -> RunStatus:
    if run_says == "stopped":
        return "stopped"
    if pid is None:
        return "crashed"
    try:
        sign_of_life = max(heartbeat_file(run_id).stat().st_mtime, journal_grew)
    except FileNotFoundError:
        sign_of_life = journal_grew
    if clock.wall() - sign_of_life > STALE_S:
        return "stale"
    return "paused" if run_says == "paused" else "live"


_SUMMARIES: dict[Path, tuple[int, int, tuple[str, RunEntry]]] = {}
"""By journal: the size and time of what was folded, and what came of it. As many as there are runs, however many: a list
redraws each second, and one that forgot some would fold them all again each time."""


def _forget_all_but(ids: Sequence[str]) -> None:
    kept = {journal_file(run_id) for run_id in ids}
    for path in list(_SUMMARIES):
        if path not in kept:
            _SUMMARIES.pop(path, None)


def _summary(path: Path, size: int, mtime_ns: int) -> tuple[str, RunEntry]:
    """The fold's status and the entry of a journal, kept while the file's size and time stay."""
    known = _SUMMARIES.get(path)
    if known is not None and known[:2] == (size, mtime_ns):
        return known[2]
    found = _summarised(path)
    _SUMMARIES[path] = (size, mtime_ns, found)
    return found


def _summarised(path: Path) -> tuple[str, RunEntry]:
    state = _fold(path)
    started, best = state.started, state.best
    return state.status, RunEntry(
        run_id="",
        status="crashed",
        problem=started.problem.name if started else "",
        device=device_text(started) if started else "",
        timing=started.timing if started else "",
        generator=started.generator if started else "",
        model=started.model if started else "",
        policy=started.policy if started else "",
        started_t=state.first_t,
        last_t=state.last_t,
        pulls=state.pulls_ended,
        iterations=state.iterations,
        candidates=len(state.candidates),
        correct=len(state.frontier),
        best_id=state.best_id,
        best_ratio=best.ratio if best else None,
        best_estimate=best.estimate if best else None,
        best_verdict=best.timing.verdict if best and best.timing else "",
        cost_usd=state.cost_usd,
        stopped_by=state.stopped_by,
        tags=tuple(sorted({tag for candidate in state.candidates.values() for tag in candidate.tags})),
    )


def _fold(path: Path) -> RunState:
    try:
        return RunState().apply_all(read_journal(path))
    except KeyError as error:
        # An event names a candidate that no event made: each line is an event, but together they are no run.
        raise JournalError(
            f"{path}: an event speaks of candidate {error}, which no event made; the file was damaged"
        ) from error
