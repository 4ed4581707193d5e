"""The schema of the history database: views, comments, versions and migrations over the tables of `tables`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbtui.errors import HistoryError
from kbtui.history.tables import TABLES, Table
from kbtui.history.views import VIEWS

if TYPE_CHECKING:
    import duckdb

SCHEMA_VERSION = 7
"""Raised with every change of a table or view; `MIGRATIONS` then says how to get there from the version before."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "create table requests (run_id varchar, seq bigint, happened_at timestamp, pull integer, call integer, "
        "model varchar, asking varchar, about integer, outcome varchar, finish varchar, prompt_tokens integer, "
        "completion_tokens integer, cached_tokens integer, tokens integer, counted_by varchar, cost_usd double, "
        "seconds double, first_token_s double, recorded varchar, primary key (run_id, seq))",
    ),
    2: ("alter table runs add column if not exists baseline_id integer default 0",),
    3: ("alter table candidates add column if not exists model varchar default ''",),
    4: (
        "create table if not exists benchmarks (benchmark varchar, suite varchar, method varchar, kernel varchar, "
        "status varchar, run_id varchar, device varchar, timing varchar, verdict varchar, ratio double, low double, high double, "
        "estimate double, sum_ratio double, sum_estimate double, baseline_ms double, pulls integer, candidates integer, "
        "correct integer, cost_usd double, tokens bigint, seconds double, reason varchar, owner varchar, "
        "finished_at timestamp, primary key (benchmark, kernel))",
        # Once more: some databases of version 4 were made before the column was.
        "alter table candidates add column if not exists model varchar default ''",
    ),
    5: (
        "alter table runs add column if not exists devices varchar[] default []",
        "alter table candidates add column if not exists device varchar default ''",
    ),
    # Without their primary keys, which DuckDB cannot take off a table.
    6: tuple(
        f"create or replace table {name} as from {name}"
        for name in (
            "runs",
            "cases",
            "candidates",
            "case_times",
            "kernels",
            "pulls",
            "selections",
            "partitions",
            "interventions",
            "notes",
            "requests",
        )
    ),
}
"""Version -> statements that lead from it to the next. Views are made anew after every migration."""

_VERSION_TABLE = "schema_version"


def version(connection: duckdb.DuckDBPyConnection) -> int:
    """The database's schema version; 0 when it is empty."""
    import duckdb

    try:
        row = connection.execute(f"select version from {_VERSION_TABLE}").fetchone()
    except duckdb.CatalogException:
        return 0
    return int(row[0]) if row else 0


def prepare(connection: duckdb.DuckDBPyConnection) -> None:
    """Create the schema, or bring an older one up to date, in one transaction.

    Raises HistoryError when a newer kbtui made the database.
    """
    found = version(connection)
    if found == SCHEMA_VERSION:
        return
    check_not_newer(found)
    connection.execute("begin")
    if found == 0:
        for table in TABLES:
            connection.execute(_create(table))
        connection.execute(f"create table {_VERSION_TABLE} (version integer not null)")
        connection.execute(f"insert into {_VERSION_TABLE} values (0)")
    else:
        for step in range(found, SCHEMA_VERSION):
            for statement in MIGRATIONS[step]:
                connection.execute(statement)
    for view in VIEWS:
        connection.execute(f"create or replace view {view.name} as {view.query}")
    for statement in _comments():
        connection.execute(statement)
    connection.execute(f"update {_VERSION_TABLE} set version = {SCHEMA_VERSION}")
    connection.execute("commit")


def check_not_newer(found: int) -> None:
    """Raises HistoryError when `found` is a version this kbtui does not know."""
    if found > SCHEMA_VERSION:
        raise HistoryError(
            f"the history database has schema version {found} and this kbtui knows up to {SCHEMA_VERSION}: upgrade kbtui"
        )


def markdown() -> str:
    """All tables and views as the reference part of `docs/history.md`."""
    parts = []
    for table in TABLES:
        lines = [f"### `{table.name}`", "", f"{table.comment} Key: {', '.join(f'`{name}`' for name in table.key)}.", ""]
        lines += ["| column | type | meaning |", "| --- | --- | --- |"]
        lines += [f"| `{c.name}` | {c.type} | {c.comment.replace('|', chr(92) + '|')} |" for c in table.columns]
        parts.append("\n".join(lines))
    for view in VIEWS:
        lines = [f"### View `{view.name}`", "", view.comment, "", "| column | meaning |", "| --- | --- |"]
        parts.append("\n".join([*lines, *(f"| `{name}` | {comment} |" for name, comment in view.columns)]))
    return "\n\n".join(parts) + "\n"


def _create(table: Table) -> str:
    columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
    key = f", primary key ({', '.join(table.key)})" if table.is_primary else ""
    return f"create table {table.name} ({columns}{key})"


def _comments() -> Iterator[str]:
    for table in TABLES:
        yield f"comment on table {table.name} is {_literal(table.comment)}"
        for column in table.columns:
            yield f"comment on column {table.name}.{column.name} is {_literal(column.comment)}"
    yield f"comment on table {_VERSION_TABLE} is 'Version of this schema; one row.'"
    yield f"comment on column {_VERSION_TABLE}.version is 'The version'"
    for view in VIEWS:
        yield f"comment on view {view.name} is {_literal(view.comment)}"
        for name, comment in view.columns:
            yield f"comment on column {view.name}.{name} is {_literal(comment)}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
