"""Asking the history database: a query's answer, how to end one that takes too long, and an answer as a Parquet file."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbtui.errors import HistoryError
from kbtui.history.connection import WAIT_S, connect, damaged

if TYPE_CHECKING:
    import duckdb


class Table(msgspec.Struct, frozen=True):
    """The answer to a query. `types` are DuckDB's names; text in `rows` is foreign and is cleaned where it is shown.

    `more` says that there were more rows than were asked for.
    """

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]
    more: bool = False


class QueryStoppedError(HistoryError):
    """A query that a person stopped."""


class Stopper:
    """Ends a query from another thread: `stop` may be called at any time, before the query began too."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._connection: duckdb.DuckDBPyConnection | None = None
        self.stopped = False

    def stop(self) -> None:
        with self._guard:
            self.stopped = True
            if self._connection is not None:
                self._connection.interrupt()

    def watch(self, connection: duckdb.DuckDBPyConnection | None) -> None:
        """The connection that runs the query from now on; None when it has ended. Raises QueryStoppedError if it must not
        begin."""
        with self._guard:
            if self.stopped and connection is not None:
                raise QueryStoppedError("the query was stopped")
            self._connection = connection


def ask(
    path: Path,
    query: str,
    values: Sequence[object] = (),
    *,
    limit: int | None = None,
    wait_s: float = WAIT_S,
    stopper: Stopper | None = None,
) -> Table:
    """The answer to `query` from the database at `path`, its first `limit` rows.

    The query cannot change the database or touch other files. Raises HistoryError when the query fails or the file is
    held, DamagedHistoryError, and QueryStoppedError.
    """
    import duckdb

    if not query.strip():
        raise HistoryError("the query is empty: give one such as select * from runs")
    stopper = stopper if stopper is not None else Stopper()
    with connect(path, "read", wait_s) as connection:
        try:
            stopper.watch(connection)
            connection.execute(query, list(values))
            described = connection.description or []
            rows = connection.fetchall() if limit is None else connection.fetchmany(limit + 1)
        except duckdb.InterruptException as error:
            raise QueryStoppedError("the query was stopped") from error
        except duckdb.Error as error:
            if is_damage(error):
                raise damaged(path, error) from error
            raise HistoryError(f"the query fails: {explained(error)}") from error
        finally:
            stopper.watch(None)
    more = limit is not None and len(rows) > limit
    return Table([item[0] for item in described], [str(item[1]) for item in described], rows[:limit], more)


def write_parquet(path: Path, query: str, file: Path, *, wait_s: float = WAIT_S) -> int:
    """Write the answer to `query` to `file` as Parquet, with DuckDB's own types; returns the number of rows.

    The query can change nothing and reach no file but that one. Raises HistoryError.
    """
    import duckdb

    with connect(path, "export", wait_s, target=file) as connection:
        try:
            written = connection.execute(
                # the newline ends a comment that the query may end in
                f"copy ({query.strip().rstrip(';')}\n) to {literal(str(file))} (format parquet)"
            ).fetchone()
        except duckdb.Error as error:
            # a damage here is the target that cannot be written, far more often than the database that cannot be read
            what = f"{file} cannot be written" if is_damage(error) else "the query fails"
            raise HistoryError(f"{what}: {explained(error)}") from error
    return int(written[0]) if written else 0


def literal(text: str) -> str:
    """`text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def is_damage(error: Exception) -> bool:
    """Whether the file, and not the query, is at fault. A checksum that does not fit is of no class of its own in DuckDB."""
    import duckdb

    kinds = (duckdb.IOException, duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException)
    return isinstance(error, kinds) or type(error) is duckdb.Error


def explained(error: Exception) -> str:
    """DuckDB's message up to its quotation of the query, in one line: the hints at names that exist are worth keeping."""
    lines = [line.strip() for line in str(error).partition("\nLINE ")[0].splitlines()]
    return " ".join(line for line in lines if line)
