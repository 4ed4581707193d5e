"""Who may write a run's journal, and whether that process still gives signs of life."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from kbtui.errors import JournalError
from kbtui.paths import run_dir

HEARTBEAT_S = 5.0
"""How often a run process calls `RunLock.beat`."""
STALE_S = 30.0
"""A run process that has not beaten for so long is stale: alive, but stuck or stopped by a signal."""

_LOCK_PROBES = 5
_LOCK_PROBE_S = 0.02


class RunLock:
    """The right to write a run's journal: an flock on `<run dir>/lock`, whose content is the holder's process id.

    The kernel drops the lock with the process, so a crash leaves none behind.
    """

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self._folder = run_dir(run_id)
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock and create the run's folder. Raises JournalError naming the process that holds it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(descriptor, self.run_id)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        self.beat()

    def beat(self) -> None:
        """Say that this process is alive: touch `<run dir>/heartbeat`."""
        heartbeat_file(self.run_id).touch()

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @staticmethod
    def holder(run_id: str) -> int | None:
        """The process id of the run's writer, 0 when it has not said it, None when there is none."""
        try:
            descriptor = os.open(run_dir(run_id) / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _pid(descriptor)
        else:
            return None
        finally:
            os.close(descriptor)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def heartbeat_file(run_id: str) -> Path:
    """The file whose modification time is the run process's last sign of life."""
    return run_dir(run_id) / "heartbeat"


def _lock(descriptor: int, run_id: str) -> None:
    # `holder` probes with a shared lock that lasts microseconds: one refusal may be such a probe, so ask again.
    for _ in range(_LOCK_PROBES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_LOCK_PROBE_S)
    pid = _pid(descriptor)
    raise JournalError(
        f"run {run_id} belongs to process {pid or 'unknown'}: attach to it with `kbtui attach {run_id}`, or stop it first"
    )


def _pid(descriptor: int) -> int:
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0
