"""Triton's caches of a `cuda` lane: one folder for each source, so that what a candidate compiled once stays compiled.

A candidate runs in a dozen processes: compiled, checked, timed in pairs, profiled. Each would build Triton's own C extensions
(about a second each with gcc) and compile its kernels again. A folder is written by processes of its source alone; what
Triton builds for itself comes from a job that runs no candidate and is copied into each.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from pathlib import Path

from kbtui.errors import EnvironmentFailure

MOST = 32
"""More than are at work at once: those that compile ahead, the one on the device, the baseline."""


class Caches:
    """`pinned` is the source whose folder stays whatever else comes: the baseline. Methods may be called from any thread."""

    def __init__(self, folder: Path, pinned: str) -> None:
        self._folder = folder
        self._pinned = _name(pinned)
        self._made: dict[str, Path] = {}
        self._lock = threading.Lock()

    def own(self) -> Path:
        """The folder of jobs that run no candidate. Raises EnvironmentFailure."""
        return _make(self._folder / "own")

    def of(self, source: str) -> Path:
        """The folder of a source, which begins as a copy of `own`; of too many, the one not used for longest goes.

        Raises EnvironmentFailure.
        """
        name = _name(source)
        with self._lock:
            path = self._made.pop(name, None)
            if path is None:
                path = self._folder / name
                try:
                    shutil.copytree(self.own(), path)
                except (OSError, shutil.Error) as error:
                    raise EnvironmentFailure(f"{path} cannot be filled ({error}): free some space") from error
            self._made[name] = path
            for old in [old for old in self._made if old not in (name, self._pinned)][: max(0, len(self._made) - MOST)]:
                shutil.rmtree(self._made.pop(old), ignore_errors=True)
            return path


def _name(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be made ({error.strerror}): free some space") from error
    return folder
