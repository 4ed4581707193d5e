"""Which process works on which kernel, where several share a benchmark: a lock per kernel, that dies with its process."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from kbtui.errors import EnvironmentFailure


@contextlib.contextmanager
def claimed(folder: Path, kernel: str) -> Iterator[bool]:
    """Whether the kernel is this process's for the block; False where another one has it. Raises EnvironmentFailure."""
    file = folder / ".claims" / quote(kernel, safe="")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be written ({error.strerror}): choose another --out") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
