"""Folders on a local disk that belong to a process, and sweeping up after processes that were killed.

An owner holds an flock on its folder, which the kernel drops with the process: so a folder nobody holds is nobody's,
whatever run of whatever data folder it was.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbtui import clock, paths

SUFFIX = ".lane"
YOUNG_S = 60.0
"""What is younger may only just be made by an owner that has yet to take its lock, or to listen."""


@contextmanager
def owned(folder: Path) -> Iterator[Path]:
    """`folder`, empty, as this process's during the block and gone after it. Its name ends in SUFFIX, in `paths.socket_dir()`.
    What was there before is removed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    owner = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(owner, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)


def sweep() -> list[Path]:
    """Remove the folders and sockets of processes that are gone, and return what was removed. Blocks."""
    removed = []
    for path in paths.socket_dir().iterdir():
        if path.suffix == SUFFIX and _old(path) and _unowned(path):
            shutil.rmtree(path, ignore_errors=True)
        elif path.suffix == ".sock" and _old(path) and _deaf(path):
            path.unlink(missing_ok=True)
        else:
            continue
        removed.append(path)
    return removed


def _old(path: Path) -> bool:
    try:
        return clock.wall() - path.stat().st_mtime > YOUNG_S
    except FileNotFoundError:
        return False


def _unowned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _deaf(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
