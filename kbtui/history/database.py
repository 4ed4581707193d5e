"""The history database: every run and pull in DuckDB, derived from the journals and never the only copy of a run that
has one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kbtui import clock
from kbtui.history import schema
from kbtui.history.asking import Stopper, ask, write_parquet
from kbtui.history.asking import Table as Table
from kbtui.history.connection import WAIT_S, DamagedHistoryError, connect, damaged
from kbtui.history.event_rows import Row, timestamp
from kbtui.history.intake import RefusedRunError, grew_since, take_in
from kbtui.history.loading import Writer, writing
from kbtui.history.runs import run_ids
from kbtui.history.tables import BENCHMARKS, GPU, TABLES
from kbtui.paths import history_file, journal_file

if TYPE_CHECKING:
    import duckdb


class GpuRollup(msgspec.Struct, frozen=True, kw_only=True):
    """One counter of one GPU over a window of `seconds` from `t` (seconds since the epoch)."""

    uuid: str
    device: str
    counter: str
    t: float
    seconds: float
    samples: int
    mean: float
    minimum: float
    maximum: float


class History:
    """The history database of this user. Every method opens the file, uses it and closes it.

    All methods raise HistoryError when another process holds the file for longer than `wait_s` seconds (the sentence
    names it), or when the file is damaged (the sentence names the remedy).
    """

    def __init__(self, path: Path | None = None, *, wait_s: float = WAIT_S) -> None:
        self.path = path if path is not None else history_file()
        self.wait_s = wait_s
        self.unreadable: dict[str, str] = {}
        """Runs whose journal the last `ingest` could not take in, with the reason. Their old rows stay."""

    def ingest(self) -> int:
        """Take in what the journals have and the database lacks; returns how many events that were.

        Each run is one transaction, so a crash leaves whole runs. Calling it twice changes nothing. A run whose
        journal is gone keeps its rows; one whose journal is damaged is named in `unreadable` and skipped.
        """
        self.unreadable = {}
        # A look beforehand keeps nobody out where there is nothing to do; but opening the file is most of a small ingestion.
        if not grew_since(self.path) and not self._waiting():
            return 0
        taken = 0
        with writing(self.path, self.wait_s) as writer:
            try:
                schema.prepare(writer.connection)
                for run_id in _waiting(writer.connection):
                    try:
                        taken += take_in(writer, run_id)
                    except RefusedRunError as error:
                        self.unreadable[run_id] = str(error)
            except _duckdb_error() as error:
                # No query of a person's: whatever fails here, the file is not what it was made to be.
                raise damaged(self.path, error) from error
        return taken

    def sql(self, query: str, *, limit: int | None = None, stopper: Stopper | None = None) -> Table:
        """The answer to `query`, its first `limit` rows. The query cannot change the database or touch other files.

        `stopper` ends it from another thread, which raises QueryStoppedError here.
        """
        return self._ask(query, [], limit, stopper)

    def write_parquet(self, query: str, file: Path) -> int:
        """Write the answer to `query` to `file` as Parquet; returns the number of rows."""
        self._bring_up_to_date()
        return write_parquet(self.path, query, file.absolute(), wait_s=self.wait_s)

    def forget(self, run_ids: Sequence[str]) -> None:
        """Delete all rows of these runs, GPU roll-ups included. A run that still has its journal comes back."""
        if not self.path.exists():
            return
        with connect(self.path, "write", self.wait_s) as connection:
            try:
                schema.prepare(connection)
                connection.execute("begin")
                for table in TABLES:
                    connection.execute(f"delete from {table.name} where list_contains($1, run_id)", [list(run_ids)])
                connection.execute("commit")
            except _duckdb_error() as error:
                raise damaged(self.path, error) from error

    def list_runs(self, problem: str | None = None, *, limit: int | None = None) -> Table:
        """The rows of `runs`, newest first, of one problem or of all."""
        where = "where problem = $1" if problem is not None else ""
        return self._ask(
            f"select * from runs {where} order by started_at desc, run_id",
            [problem] if problem is not None else [],
            limit,
        )

    def add_gpu(self, run_id: str, rollups: Sequence[GpuRollup]) -> None:
        """Keep roll-ups of GPU counters; the same counter and window again replaces the old row."""
        rows = [
            {
                "run_id": run_id,
                "started_at": timestamp(rollup.t),
                **{name: getattr(rollup, name) for name in rollup.__struct_fields__ if name != "t"},
            }
            for rollup in rollups
        ]
        with writing(self.path, self.wait_s) as writer:
            try:
                schema.prepare(writer.connection)
                writer.load(GPU, rows, replace=True)
            except _duckdb_error() as error:
                raise damaged(self.path, error) from error

    def add_benchmarks(self, rows: Sequence[Row]) -> None:
        """Keep results of benchmarks, each with the columns of `benchmarks` (`finished_at` in seconds since the epoch); a newer
        one of the same kernel replaces the old row."""
        dated = [{**row, "finished_at": timestamp(row["finished_at"])} for row in rows]
        with writing(self.path, self.wait_s) as writer:
            try:
                schema.prepare(writer.connection)
                writer.load(BENCHMARKS, dated, replace=True)
            except _duckdb_error() as error:
                raise damaged(self.path, error) from error

    def rebuild(self) -> int:
        """Make the database anew from the journals; returns how many events it holds.

        Rows that no journal can give (runs whose journal is gone or damaged, GPU roll-ups) are carried over. A file
        that cannot be read is kept beside the new one, as `history.duckdb.damaged-<time>`.
        """
        fresh = History(self.path.with_name(f"{self.path.name}.new-{os.getpid()}"), wait_s=self.wait_s)
        try:
            with connect(fresh.path, "write", self.wait_s) as connection:
                schema.prepare(connection)
            fresh.ingest()
            self.unreadable = fresh.unreadable
            self._take_place_of(fresh)
        finally:
            fresh.path.unlink(missing_ok=True)
        return int(self.sql("select coalesce(sum(seq), 0) from ingested").rows[0][0])

    # ------------------------------------------------------------ taking in

    def _waiting(self) -> list[str]:
        """The runs whose journal has events that the database lacks."""
        if not self.path.exists():
            return run_ids()
        with connect(self.path, "read", self.wait_s) as connection:
            try:
                return _waiting(connection) if schema.version(connection) else run_ids()
            except _duckdb_error() as error:
                raise damaged(self.path, error) from error

    # ------------------------------------------------------------ asking

    def _ask(self, query: str, values: Sequence[object], limit: int | None, stopper: Stopper | None = None) -> Table:
        self._bring_up_to_date()
        return ask(self.path, query, values, limit=limit, wait_s=self.wait_s, stopper=stopper)

    def _bring_up_to_date(self) -> None:
        """Make the file, or migrate it, if the schema is not the present one."""
        if self.path.exists():
            with connect(self.path, "read", self.wait_s) as connection:
                found = schema.version(connection)
            if found == schema.SCHEMA_VERSION:
                return
        with connect(self.path, "write", self.wait_s) as connection:
            schema.prepare(connection)

    # ------------------------------------------------------------ rebuilding

    def _take_place_of(self, fresh: History) -> None:
        """Carry over to `fresh` what no journal gives, and put it in this database's place."""
        if not self.path.exists():
            os.replace(fresh.path, self.path)
            return
        try:
            # Held open until the new file is in place, so that nobody writes into the old one in between.
            with connect(self.path, "write", self.wait_s) as old:
                schema.prepare(old)
                with writing(fresh.path, self.wait_s) as new:
                    _carry_over(old, new)
                os.replace(fresh.path, self.path)
        except DamagedHistoryError:
            self._set_aside()
            os.replace(fresh.path, self.path)
        except _duckdb_error():
            self._set_aside()
            os.replace(fresh.path, self.path)

    def _set_aside(self) -> None:
        """Keep the damaged file under another name, its write-ahead log too: that would be replayed into a new file."""
        aside = self.path.with_name(f"{self.path.name}.damaged-{int(clock.wall())}")
        os.replace(self.path, aside)
        log = self.path.with_name(f"{self.path.name}.wal")
        if log.exists():
            os.replace(log, aside.with_name(f"{aside.name}.wal"))


def _carry_over(old: duckdb.DuckDBPyConnection, new: Writer) -> None:
    """Copy the GPU roll-ups, and the rows of runs that `new` could not take from a journal."""
    known = [row[0] for row in new.connection.execute("select run_id from ingested").fetchall()]
    new.connection.execute("begin")
    for table in TABLES:
        unknown, values = ("", []) if table in (GPU, BENCHMARKS) else ("where not list_contains($1, run_id)", [known])
        names = [column.name for column in table.columns]
        found = old.execute(f"select {', '.join(names)} from {table.name} {unknown}", values).fetchall()
        nested = {column.name for column in table.columns if column.type == "JSON"}
        rows = [
            {
                name: msgspec.Raw(value.encode()) if name in nested and value is not None else value
                for name, value in zip(names, row, strict=True)
            }
            for row in found
        ]
        new.load_columns(table, rows)
    new.connection.execute("commit")


def _waiting(connection: duckdb.DuckDBPyConnection) -> list[str]:
    taken = dict(connection.execute("select run_id, journal_bytes from ingested").fetchall())
    return sorted(run_id for run_id in run_ids() if _grew(journal_file(run_id), taken.get(run_id, 0)))


def _grew(path: Path, taken: int) -> bool:
    """Whether the journal has a complete line behind its first `taken` bytes, or is shorter (another journal)."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < taken:
                return True
            file.seek(taken)
            return any(b"\n" in block for block in iter(lambda: file.read(65536), b""))
    except FileNotFoundError:
        return False


def _duckdb_error() -> type[Exception]:
    import duckdb

    error: type[Exception] = duckdb.Error
    return error
