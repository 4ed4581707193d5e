"""A run's journal into the database: read piece by piece, one transaction. While DuckDB takes in the rows of one piece, the
next is decoded, folded and made rows of."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kbtui.errors import JournalError
from kbtui.history import light
from kbtui.history.asking import explained
from kbtui.history.journal import JournalReader, RunLock
from kbtui.history.loading import Lines, Writer
from kbtui.history.rows import Rows, RunRows
from kbtui.history.tables import CANDIDATES, CASE_TIMES, DERIVED, INGESTED, KERNELS, PULLS
from kbtui.paths import journal_file

if TYPE_CHECKING:
    import duckdb

_PIECE = 16 << 20
"""Bytes of a journal that are decoded at a time."""
_BY_NAME = {table.name: table for table in DERIVED}


class RefusedRunError(JournalError):
    """A run whose journal cannot be taken in; its old rows stay."""


class _Followed(msgspec.Struct):
    """A run that may grow: its rows as the database has them, and the place in its journal."""

    rows: RunRows
    reader: JournalReader
    file: tuple[int, int]
    """Device and inode of the journal."""


_MOST_FOLLOWED = 4
_followed: dict[tuple[Path, str], _Followed] = {}
"""By database and run, the last to grow at the end: runs that a process owns, so that taking in what they say costs what they
say and not what they said before. The database's own word on how much it has decides whether one is of use."""


def take_in(writer: Writer, run_id: str) -> int:
    """Take in what the run's journal has and the database lacks, in one transaction; returns how many events that were.

    Raises RefusedRunError; duckdb.Error when the database itself fails.
    """
    path = journal_file(run_id)
    row = writer.connection.execute("select seq, journal_bytes from ingested where run_id = $1", [run_id]).fetchone()
    since, taken = row if row is not None else (0, 0)
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0  # deleted just now: its rows stay
    if found.st_size < taken:
        since = 0  # another journal took the place of that one
    file = (found.st_dev, found.st_ino)
    followed = _followed.pop((writer.database, run_id), None)
    with collector_at_rest():
        if followed is not None and (followed.file, followed.rows.seen, followed.reader.offset) == (file, since, taken):
            try:
                return _take_in(writer, followed) or 0
            except RefusedRunError:
                pass  # from the start it may be another journal
        fresh = _Followed(RunRows(run_id, since), JournalReader(path, light.decode_lines), file)
        count = _take_in(writer, fresh)
        if count is None:
            # Fewer events than were taken in: another journal again, so the rows of the old one all go.
            fresh = _Followed(RunRows(run_id), JournalReader(path, light.decode_lines), file)
            count = _take_in(writer, fresh) or 0
        return count


def grew_since(database: Path) -> bool:
    """Whether a run that is followed has more in its journal than was taken into the database."""
    followed = [one.reader for (path, _), one in _followed.items() if path == database]
    return any(reader.path.exists() and reader.path.stat().st_size > reader.offset for reader in followed)


def _take_in(writer: Writer, followed: _Followed) -> int | None:
    rows, reader = followed.rows, followed.reader
    count = _transaction(writer, rows, reader)
    if count is not None and RunLock.holder(rows.run_id) is not None:
        rows.written()
        _followed[writer.database, rows.run_id] = followed
        while len(_followed) > _MOST_FOLLOWED:
            del _followed[next(iter(_followed))]
    return count


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No garbage collection for the length of the block: it would look through millions of records that stay, and finds none
    that does not."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _transaction(writer: Writer, rows: RunRows, reader: JournalReader) -> int | None:
    """The number of new events; None, and nothing written, when the journal has fewer than `rows.since`."""
    run_id, since = rows.run_id, rows.since
    # Any other failure ends the connection, and the transaction with it.
    writer.connection.execute("begin")
    try:
        if since == 0:
            _delete_run(writer.connection, run_id)
        _write_pieces(writer, rows, reader)
        if reader.seq < since:
            writer.connection.execute("rollback")
            return None
        _write_changes(writer, rows)
        mark = {"run_id": run_id, "seq": reader.seq, "journal_bytes": reader.offset}
        writer.load(INGESTED, [mark], replace=True)
        writer.connection.execute("commit")
    except KeyError as error:
        writer.connection.execute("rollback")
        raise RefusedRunError(f"{reader.path}: an event speaks of candidate {error}, which no event made") from error
    except JournalError as error:
        writer.connection.execute("rollback")
        raise RefusedRunError(str(error)) from error
    except _data_errors() as error:
        # DuckDB refuses a value of this run, which must not keep the other runs out.
        writer.connection.execute("rollback")
        raise RefusedRunError(f"{reader.path}: {explained(error)}") from error
    return reader.seq - since


def _write_pieces(writer: Writer, rows: RunRows, reader: JournalReader) -> None:
    """Fold the journal and write the rows of what is new. Two pieces are in memory: the one that is decoded, and the lines of the
    one before, which DuckDB takes in meanwhile."""
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1, "kbtui-history") as pool:
        while True:
            lines = _lines(writer, rows.take(reader.read(_PIECE)))
            if writing is not None:
                writing.result()
            if not reader.behind:
                break
            writing = pool.submit(writer.write, lines)
    writer.write(lines)


def _lines(writer: Writer, rows: Rows) -> list[Lines]:
    return [lines for name, found in rows.items() for lines in writer.lines(_BY_NAME[name], found)]


def _write_changes(writer: Writer, rows: RunRows) -> None:
    """Set right what later events made of rows that are written, and what follows from the events as a whole."""
    connection, run_id = writer.connection, rows.run_id
    changed = rows.changed()
    for table, column, numbers in (
        (CASE_TIMES, "candidate_id", rows.changed_candidates),
        (KERNELS, "candidate_id", rows.changed_candidates),
        (PULLS, "pull", rows.changed_pulls),
    ):
        if numbers:
            connection.execute(
                f"delete from {table.name} where run_id = $1 and list_contains($2, {column})", [run_id, numbers]
            )
            writer.load(table, changed[table.name])
    key = CANDIDATES.key
    columns = [column.name for column in CANDIDATES.columns if column.name not in (*key, "source")]
    writer.update(CANDIDATES, changed["candidates"], columns, key)
    writer.update(CANDIDATES, rows.moved(), ["cluster"], key)
    for name, whole in rows.whole().items():
        connection.execute(f"delete from {name} where run_id = $1", [run_id])
        writer.load(_BY_NAME[name], whole)


def _delete_run(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    for table in DERIVED:
        connection.execute(f"delete from {table.name} where run_id = $1", [run_id])


def _data_errors() -> tuple[type[Exception], ...]:
    """What DuckDB raises when a value is at fault."""
    import duckdb

    return (duckdb.DataError, duckdb.IntegrityError, duckdb.InvalidInputException)
