"""Which runs are kept: forgetting old ones, and taking in a run's folder that was copied from another machine."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from kbtui.errors import EnvironmentFailure, JournalError, UsageError
from kbtui.history.database import History
from kbtui.history.filters import Filter
from kbtui.history.journal import RunLock, read_journal
from kbtui.history.runs import RunEntry, list_runs
from kbtui.paths import data_dir, journal_file, run_dir
from kbtui.state import events as e
from kbtui.state.run_state import RunState

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_OF_THE_PROCESS = frozenset({"lock", "heartbeat"})
"""Files that say which process owns a run: they mean nothing on another machine."""


def prunable(chosen: Filter, now: float) -> list[RunEntry]:
    """The runs that fit the filter and that no process owns, oldest first."""
    fitting = [run for run in list_runs() if run.pid is None and chosen.fits(run, now)]
    return sorted(fitting, key=lambda run: (run.last_t, run.run_id))


def prune(runs: Sequence[RunEntry], history: History) -> list[str]:
    """Delete these runs, folders and rows, for good; the ids of those deleted.

    A run that a process owns by now is left alone. The rows go first: a database that is held stops this before
    anything is lost. Raises HistoryError, and EnvironmentFailure when a folder cannot be removed.
    """
    locks = []
    for run in runs:
        lock = RunLock(run.run_id)
        try:
            lock.acquire()
        except JournalError:
            continue
        locks.append(lock)
    try:
        ids = [lock.run_id for lock in locks]
        history.forget(ids)
        for run_id in ids:
            _remove(run_id)
    finally:
        for lock in locks:
            lock.release()
    return ids


def _remove(run_id: str) -> None:
    """Under another name first: a crash in the middle leaves no half of a run in the list."""
    aside = data_dir() / f"pruned-{run_id}"
    try:
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(run_dir(run_id), aside)
        shutil.rmtree(aside)
    except OSError as error:
        raise EnvironmentFailure(f"{run_dir(run_id)} cannot be removed: {error.strerror}") from error


def import_run(folder: Path) -> str:
    """Copy a run's folder into this user's runs, under the id that its journal says; returns the id.

    Only its regular files are copied: what a link points to is not part of the run. Raises UsageError when the folder
    holds no run or the run is here already, JournalError when its journal is damaged, EnvironmentFailure when copying
    fails.
    """
    journal = folder / "journal.jsonl"
    if not journal.is_file():
        raise UsageError(f"{folder} holds no journal.jsonl: name the folder of one run, such as <data>/runs/<run id>")
    run_id = _run_id(journal)
    if journal_file(run_id).exists():
        raise UsageError(
            f"run {run_id} is here already, in {run_dir(run_id)}: `kbtui history prune` removes it, if that is what you want"
        )
    beside = data_dir() / f"importing-{run_id}-{os.getpid()}"
    try:
        _copy(folder, beside)
        run_dir(run_id).parent.mkdir(parents=True, exist_ok=True)
        os.rename(beside, run_dir(run_id))
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise EnvironmentFailure(
            f"{folder} cannot be copied to {run_dir(run_id)}: {error.strerror or error}"
        ) from error
    return run_id


def _run_id(journal: Path) -> str:
    """The id that the journal's first event gives its run. The whole journal has to be one."""
    events = read_journal(journal)
    first = events[0] if events else None
    if not isinstance(first, e.RunStarted):
        raise UsageError(f"{journal} does not begin with the start of a run: it is no run's journal")
    if _RUN_ID.fullmatch(first.run_id) is None:
        raise UsageError(f"{journal} names a run whose id cannot be a folder's name: it was not written by kbtui")
    try:
        RunState().apply_all(events)
    except KeyError as error:
        raise JournalError(f"{journal}: an event speaks of candidate {error}, which no event made") from error
    return first.run_id


def _copy(source: Path, target: Path) -> None:
    target.mkdir(parents=True, mode=0o700)
    for entry in os.scandir(source):
        if entry.is_dir(follow_symlinks=False):
            _copy(Path(entry.path), target / entry.name)
        elif entry.is_file(follow_symlinks=False) and entry.name not in _OF_THE_PROCESS:
            shutil.copy2(entry.path, target / entry.name)
