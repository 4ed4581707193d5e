"""Bytes that two processes share without trusting one another: a memfd sealed against shrinking, growing and writing.

Without the shrink seal the peer could truncate the file under a reader, who would die of SIGBUS.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterable

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class SealError(Exception):
    """A descriptor is not a memfd sealed in every way, or has another size than stated."""


def create_sealed(pieces: Iterable[tuple[int, memoryview]], size: int, name: str = "kbtui") -> int:
    """A sealed memfd of `size` bytes holding each piece at its offset; what lies between reads as zeros and costs nothing.

    The caller closes the descriptor. Raises OSError when the memory is not there.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        for offset, data in pieces:
            view = data.cast("B")
            done = 0
            while done < len(view):
                done += os.pwrite(fd, view[done : done + (1 << 30)], offset + done)
        # shrink and grow first: the write seal alone would leave the size open in between
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_sealed(fd: int, size: int) -> None:
    """Raise SealError unless `fd` is a memfd with all three seals and exactly `size` bytes."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError as error:
        raise SealError("the descriptor is not a memfd") from error
    if seals & SEALS != SEALS:
        raise SealError("the memfd is not sealed against shrinking, growing and writing")
    held = os.fstat(fd).st_size
    if held != size:
        raise SealError(f"the memfd holds {held} bytes where {size} were stated")


def map_private(fd: int, size: int) -> mmap.mmap:
    """A private, writable mapping of a sealed memfd: what is written stays in this process. Raises SealError."""
    check_sealed(fd, size)
    return mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
