"""Rows into tables, many at a time: as JSON lines in a file without a name, in memory, which DuckDB reads itself.

A statement per row takes 500 µs and one JSON text as a parameter 15 µs a row; this takes about 3. Records that an event
holds by the dozen (the scores of all arms, the times by case) go into the file as they are and become rows in DuckDB.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kbtui.history.connection import WAIT_S, connect
from kbtui.history.tables import CASE_TIMES, KERNELS, SELECTIONS, Table

if TYPE_CHECKING:
    import duckdb

_CHUNK = 4096
"""Lines per statement."""
_LONGEST_LINE = 16 << 20
"""Bytes of a line that DuckDB takes without being told."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How the rows of a table lie in the file: a line's fields with their DuckDB types, and the query over `lines` that makes
    rows of them."""

    fields: Mapping[str, str]
    query: str


class Lines(msgspec.Struct, frozen=True):
    """Rows as JSON lines, and the statement that takes them from a file of that name."""

    text: bytes
    statement: str


class Writer:
    """The database, open for writing, with its file of lines. `writing` makes it."""

    def __init__(self, database: Path, connection: duckdb.DuckDBPyConnection, descriptor: int, file: Path) -> None:
        self.database = database
        self.connection = connection
        self._descriptor = descriptor
        self._file = file
        self._encoder = msgspec.json.Encoder()

    def load(self, table: Table, rows: Iterable[Mapping[str, Any]], *, replace: bool = False) -> None:
        """Insert `rows`, each with the fields that `shape(table)` names; `replace` those with the same key.

        Raises duckdb.Error when a value does not fit its column.
        """
        self.write(self.lines(table, rows, replace=replace))

    def load_columns(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert `rows` as another database had them: a field per column in every table."""
        self.write(self._lines(rows, _plain(table), f"insert into {table.name} by name {{}}"))

    def update(
        self, table: Table, rows: Iterable[Mapping[str, Any]], columns: Sequence[str], key: Sequence[str]
    ) -> None:
        """Set `columns` of the rows with the same `key`. Raises as `load`."""
        kept = {*columns, *key}
        found = _plain(msgspec.structs.replace(table, columns=tuple(one for one in table.columns if one.name in kept)))
        settings = ", ".join(f"{name} = given.{name}" for name in columns)
        same = " and ".join(f"{table.name}.{name} = given.{name}" for name in key)
        self.write(
            self._lines(rows, _dated(found), f"update {table.name} set {settings} from ({{}}) given where {same}")
        )

    def lines(self, table: Table, rows: Iterable[Mapping[str, Any]], *, replace: bool = False) -> Iterator[Lines]:
        """What `write` inserts as `load` does; not yet written, so that another thread can."""
        statement = f"insert {'or replace ' if replace else ''}into {table.name} by name {{}}"
        return self._lines(rows, shape(table), statement)

    def write(self, lines: Iterable[Lines]) -> None:
        """Carry the statements out. One thread at a time. Raises duckdb.Error."""
        for one in lines:
            os.ftruncate(self._descriptor, 0)
            _write_all(self._descriptor, one.text)
            self.connection.execute(one.statement)

    def _lines(self, rows: Iterable[Mapping[str, Any]], found: Shape, statement: str) -> Iterator[Lines]:
        left = iter(rows)
        while chunk := list(itertools.islice(left, _CHUNK)):
            missing = found.fields.keys() - chunk[0].keys()
            if missing:  # DuckDB would make NULL of it without a word
                raise TypeError(f"a row lacks {', '.join(sorted(missing))}: {statement.format('...')}")
            text = self._encoder.encode_lines(chunk)
            yield Lines(text, statement.format(self._query(found, len(text))))

    def _query(self, found: Shape, size: int) -> str:
        fields = ", ".join(f"{name}: '{kind}'" for name, kind in found.fields.items())
        return (
            f"with lines as (select * from read_json('{self._file}', format = 'newline_delimited', "
            f"columns = {{{fields}}}, maximum_object_size = {max(size, _LONGEST_LINE)})) {found.query}"
        )


@contextmanager
def writing(path: Path, wait_s: float = WAIT_S) -> Iterator[Writer]:
    """The database at `path` for the length of a `with` block, to write into it. Raises as `connect`.

    Its one other file is that of lines, which is gone with the block or the process.
    """
    descriptor = os.memfd_create("kbtui-rows")
    try:
        lines = Path(f"/proc/self/fd/{descriptor}")
        with connect(path, "write", wait_s, target=lines) as connection:
            yield Writer(path, connection, descriptor, lines)
    finally:
        os.close(descriptor)


@functools.cache
def shape(table: Table) -> Shape:
    """How rows of `table` are given to `Writer.load`: column by column, but for tables whose rows come as records in a list."""
    if table == SELECTIONS:
        return _from_records(
            table,
            {"run_id": "VARCHAR", "pull": "INTEGER", "chosen_cluster": "INTEGER", "chosen_strategy": "VARCHAR"},
            {"chosen": "record.cluster = chosen_cluster and record.strategy = chosen_strategy"},
        )
    if table == CASE_TIMES:
        outer = {"run_id": "VARCHAR", "candidate_id": "INTEGER"}
        return _from_records(table, outer, {"case_name": 'record."case"'}, {"case": "VARCHAR"})
    if table == KERNELS:
        outer = {"run_id": "VARCHAR", "candidate_id": "INTEGER"}
        return _from_records(table, outer, {"kernel": "place - 1"})
    return _dated(_plain(table))


def _dated(found: Shape) -> Shape:
    """The same with times as whole microseconds since the epoch, which take a third of the time of texts."""
    dates = [name for name, kind in found.fields.items() if kind == "TIMESTAMP"]
    if not dates:
        return found
    fields = {name: "BIGINT" if name in dates else kind for name, kind in found.fields.items()}
    made = ", ".join(f"make_timestamp({name}) as {name}" for name in dates)
    return Shape(fields=fields, query=f"select * replace ({made}) from lines")


def _plain(table: Table) -> Shape:
    return Shape(fields={column.name: column.type for column in table.columns}, query="select * from lines")


def _from_records(
    table: Table, outer: Mapping[str, str], computed: Mapping[str, str], more: Mapping[str, str] | None = None
) -> Shape:
    """Lines with the fields `outer` and a list `records`: one row per record. Columns that are neither in `outer` nor
    `computed` are the record's fields; `more` are fields of it that only `computed` needs."""
    named = [column for column in table.columns if column.name not in outer and column.name not in computed]
    inner = {column.name: column.type for column in named} | dict(more or {})
    record = ", ".join(f'"{name}" {kind}' for name, kind in inner.items())
    columns = [
        *(column.name for column in table.columns if column.name in outer),
        *(f"{expression} as {name}" for name, expression in computed.items()),
        *(f"record.{column.name}" for column in named),
    ]
    return Shape(
        fields={**outer, "records": f"STRUCT({record})[]"},
        query=f"select {', '.join(columns)} from (select *, unnest(records) as record, "
        "generate_subscripts(records, 1) as place from lines)",
    )


def _write_all(descriptor: int, text: bytes) -> None:
    view, at = memoryview(text), 0
    while at < len(view):
        at += os.pwrite(descriptor, view[at:], at)
