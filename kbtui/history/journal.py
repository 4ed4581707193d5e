"""The journal of a run: append-only JSON lines, one durable event each, numbered from 1. It is the truth about a run.

One writer, holding the run's lock; any number of readers, each from its own offset. A line counts once its newline is
there: what follows the last newline was being written when the writer died (a *torn* line), readers leave it alone and
the next writer cuts it off. A complete line that is not the next event means that someone else wrote into the file, and
is an error that names file and line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from kbtui.errors import JournalError
from kbtui.history.lock import HEARTBEAT_S, STALE_S, RunLock, heartbeat_file
from kbtui.state import events as e

__all__ = [
    "HEARTBEAT_S", "STALE_S", "JournalReader", "JournalWriter", "RunLock", "heartbeat_file", "read_journal",
]  # fmt: skip

_TAIL = 65536
_PIECE = 1 << 18
"""Bytes that are decoded at a time: some 500 µs."""

E = TypeVar("E", bound=e.Event)


class JournalWriter:
    """Appends events to a journal. The caller holds the run's lock.

    `append` hands the line to the kernel, so a killed process loses no appended event; `flush` puts all lines on the
    disk, so that a power cut loses none either.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path` and cut a torn line off its end. Raises JournalError when the last event is not one."""
        self.path = path
        self.cut_bytes = 0
        """Bytes behind the last newline that were dropped when the journal was opened."""
        self.seq = 0
        """The last event's number, 0 in an empty journal."""
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._end = self._cut_torn_line()
            self.seq = self._last_seq()
            if new:
                _sync_folder(path.parent)
        except BaseException:
            os.close(self._descriptor)
            raise

    def append(self, event: E) -> E:
        """Write one durable event and return it with its number.

        Raises JournalError when the disk refuses (full, quota, gone); the journal then ends where it ended before and
        the same event can be appended again.
        """
        if not e.is_durable(event):
            raise TypeError(f"{type(event).__name__} is transient and has no place in a journal")
        numbered = msgspec.structs.replace(event, seq=self.seq + 1)
        line = e.encode(numbered) + b"\n"
        try:
            written = os.write(self._descriptor, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes fitted")
        except OSError as error:
            # A torn line in the middle would make all that follows unreadable.
            os.ftruncate(self._descriptor, self._end)
            raise JournalError(
                f"cannot append to {self.path}: {error.strerror or error}; make room on the disk, then continue the run"
            ) from error
        self._end += len(line)
        self.seq += 1
        return numbered

    def flush(self) -> None:
        """Wait until all appended events are on the disk. Raises JournalError when the disk fails."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise JournalError(f"cannot write {self.path} to the disk: {error.strerror or error}") from error

    def close(self) -> None:
        """Flush and close; may be called twice."""
        if self._descriptor >= 0:
            try:
                self.flush()
            finally:
                os.close(self._descriptor)
                self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _cut_torn_line(self) -> int:
        size = os.fstat(self._descriptor).st_size
        end = self._newline_before(size)
        self.cut_bytes = size - end
        if self.cut_bytes:
            os.ftruncate(self._descriptor, end)
            os.fsync(self._descriptor)
        return end

    def _newline_before(self, end: int) -> int:
        """The offset just behind the last newline before offset `end`; 0 when there is none."""
        while end > 0:
            start = max(0, end - _TAIL)
            at = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0

    def _last_seq(self) -> int:
        if self._end == 0:
            return 0
        start = self._newline_before(self._end - 1)
        line = os.pread(self._descriptor, self._end - start, start)
        try:
            return e.decode(line).seq
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise JournalError(f"{self.path}: the last line is not an event ({error})") from error


class JournalReader:
    """Follows a journal that may still grow. Keeps its own byte offset and never locks.

    `decode_lines` makes events of whole lines; it raises as `events.decode_lines` does.
    """

    def __init__(self, path: Path, decode_lines: Callable[[bytes], Sequence[e.Event]] = e.decode_lines) -> None:
        self.path = path
        self._decoded = decode_lines
        self.offset = 0
        """Bytes read so far: always just behind a newline."""
        self.seq = 0
        """The number of the last event read; also the number of the last line."""
        self.behind = False
        """Whether a limited `read` left something for the next one."""

    def read(self, limit: int | None = None) -> list[e.Event]:
        """The events completed since the last call; none when the file does not exist (yet). With a `limit`, those in about so
        many bytes: `behind` then says whether there is more.

        Raises JournalError naming file and line when a complete line is not the next event, when the journal shrank
        below what was read, or when a newer kbtui wrote it. The events before a bad line are then not returned.
        """
        try:
            with open(self.path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < self.offset:
                    raise JournalError(
                        f"{self.path} shrank from {self.offset} to {size} bytes: another run took its place"
                    )
                file.seek(self.offset)
                block = file.read(limit)
                if limit is not None and len(block) == limit:
                    block += file.readline()  # the limit may fall into a line, which may be longer than the limit
        except FileNotFoundError:
            return []
        except OSError as error:
            raise JournalError(f"cannot read {self.path}: {error.strerror or error}") from error
        complete = block.rfind(b"\n") + 1
        events = self._decode(block[:complete])
        self.offset += complete
        self.seq += len(events)
        self.behind = complete == len(block) > 0 and self.offset < size
        return events

    def _decode(self, block: bytes) -> list[e.Event]:
        events: list[e.Event] = []
        start = 0
        while start < len(block):
            # Between two pieces other threads have their turn: a decoder that is at work lets none in.
            end = block.find(b"\n", start + _PIECE) + 1 or len(block)
            events += self._decode_lines(block[start:end], self.seq + len(events))
            start = end
        return events

    def _decode_lines(self, lines: bytes, seq: int) -> Sequence[e.Event]:
        """The events after number `seq`. All at once, which takes half as long as line by line; only a block with a bad line is
        looked at again, to name the line."""
        try:
            events = self._decoded(lines)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return self._decode_each(lines, seq)
        numbers = list(range(seq + 1, seq + 1 + lines.count(b"\n")))
        if [event.seq for event in events] != numbers:
            return self._decode_each(lines, seq)
        if e.RunStarted in set(map(type, events)):
            self._check_versions(events)
        return events

    def _decode_each(self, lines: bytes, seq: int) -> list[e.Event]:
        events: list[e.Event] = []
        for expected, line in enumerate(lines.split(b"\n")[:-1], seq + 1):
            try:
                event = e.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._bad_line(expected, lines if seq == 0 else b"", str(error)) from error
            if event.seq != expected:
                raise self._bad_line(expected, b"", f"its number is {event.seq}")
            self._check_versions([event])
            events.append(event)
        return events

    def _check_versions(self, events: Iterable[e.Event]) -> None:
        for event in events:
            if isinstance(event, e.RunStarted) and event.journal_version > e.JOURNAL_VERSION:
                raise self._newer(event.journal_version)

    def _bad_line(self, line: int, block: bytes, why: str) -> JournalError:
        version = _version(block.partition(b"\n")[0])
        if version > e.JOURNAL_VERSION:
            return self._newer(version)
        return JournalError(
            f"{self.path}, line {line}: not event {line} of the run ({why}); the file was changed or damaged"
        )

    def _newer(self, version: int) -> JournalError:
        return JournalError(
            f"{self.path} has journal version {version} and this kbtui reads up to {e.JOURNAL_VERSION}: upgrade kbtui"
        )


def read_journal(path: Path) -> list[e.Event]:
    """All complete events of a journal; none when the file does not exist. Raises JournalError as `JournalReader.read`."""
    return JournalReader(path).read()


class _Head(msgspec.Struct):
    journal_version: int = 0


def _version(line: bytes) -> int:
    """The journal version in a first line that may hold fields this kbtui does not know; 0 when it says none."""
    try:
        return msgspec.json.decode(line, type=_Head).journal_version
    except msgspec.DecodeError:
        return 0


def _sync_folder(folder: Path) -> None:
    """Make a new file's name durable, which syncing the file alone does not."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
