"""A run's journal into the database: read piece by piece, one transaction. While DuckDB takes in one piece, the next is
decoded and folded."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kbtui.errors import JournalError
from kbtui.history.asking import explained
from kbtui.history.event_rows import Row
from kbtui.history.journal import JournalReader
from kbtui.history.loading import Writer
from kbtui.history.rows import RunRows
from kbtui.history.tables import DERIVED, INGESTED
from kbtui.paths import journal_file

if TYPE_CHECKING:
    import duckdb

_PIECE = 8 << 20
"""Bytes of a journal that are decoded at a time."""
_BY_NAME = {table.name: table for table in DERIVED}
_CANDIDATE_TABLES = ("candidates", "case_times", "kernels")


class RefusedRunError(JournalError):
    """A run whose journal cannot be taken in; its old rows stay."""


def take_in(writer: Writer, run_id: str) -> int:
    """Take in what the run's journal has and the database lacks, in one transaction; returns how many events that were.

    Raises RefusedRunError; duckdb.Error when the database itself fails.
    """
    path = journal_file(run_id)
    row = writer.connection.execute("select seq, journal_bytes from ingested where run_id = $1", [run_id]).fetchone()
    since, taken = row if row is not None else (0, 0)
    try:
        if path.stat().st_size < taken:
            since = 0  # another journal took the place of that one
    except FileNotFoundError:
        return 0  # deleted just now: its rows stay
    with collector_at_rest():
        found = _transaction(writer, run_id, since)
        # Fewer events than were taken in: another journal again, so the rows of the old one all go.
        return found if found is not None else _transaction(writer, run_id, 0) or 0


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


def _transaction(writer: Writer, run_id: str, since: int) -> int | None:
    """The number of new events; None, and nothing written, when the journal has fewer than `since`."""
    rows, reader = RunRows(run_id, since), JournalReader(journal_file(run_id))
    # Any other failure ends the connection, and the transaction with it.
    writer.connection.execute("begin")
    try:
        if since == 0:
            _delete_run(writer.connection, run_id)
        _write_pieces(writer, rows, reader)
        if reader.seq < since:
            writer.connection.execute("rollback")
            return None
        _write_whole(writer, rows)
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
    """Fold the journal and write the rows of single events."""
    writing: Future[None] | None = None
    with ThreadPoolExecutor(1, "kbtui-history") as pool:
        while True:
            found = rows.take(reader.read(_PIECE))
            if writing is not None:
                writing.result()
            if not reader.behind:
                break
            writing = pool.submit(_load, writer, found)
    _load(writer, found)


def _load(writer: Writer, rows: Mapping[str, Iterable[Row]]) -> None:
    for name, found in rows.items():
        writer.load(_BY_NAME[name], found)


def _write_whole(writer: Writer, rows: RunRows) -> None:
    """Replace the rows that follow from the events as a whole."""
    connection, run_id = writer.connection, rows.run_id
    if rows.since:
        connection.execute("delete from runs where run_id = $1", [run_id])
        connection.execute("delete from cases where run_id = $1", [run_id])
        for name in _CANDIDATE_TABLES:
            _delete_numbered(connection, run_id, name, "candidate_id", rows.candidates)
        _delete_numbered(connection, run_id, "pulls", "pull", rows.pulls)
    _load(writer, rows.rows())


def _delete_run(connection: duckdb.DuckDBPyConnection, run_id: str) -> None:
    for table in DERIVED:
        connection.execute(f"delete from {table.name} where run_id = $1", [run_id])


def _delete_numbered(
    connection: duckdb.DuckDBPyConnection, run_id: str, table: str, column: str, numbers: Sequence[int]
) -> None:
    if numbers:
        connection.execute(
            f"delete from {table} where run_id = $1 and list_contains($2, {column})", [run_id, list(numbers)]
        )


def _data_errors() -> tuple[type[Exception], ...]:
    """What DuckDB raises when a value is at fault."""
    import duckdb

    return (duckdb.DataError, duckdb.IntegrityError, duckdb.InvalidInputException)
