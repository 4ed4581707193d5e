"""The schema of the history database: views, comments, versions and migrations over the tables of `tables`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from kbtui.errors import HistoryError
from kbtui.history.tables import TABLES, Table

if TYPE_CHECKING:
    import duckdb

SCHEMA_VERSION = 3
"""Raised with every change of a table or view; `MIGRATIONS` then says how to get there from the version before."""

MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: (
        "create table requests (run_id varchar, seq bigint, happened_at timestamp, pull integer, call integer, "
        "model varchar, asking varchar, about integer, outcome varchar, finish varchar, prompt_tokens integer, "
        "completion_tokens integer, cached_tokens integer, tokens integer, counted_by varchar, cost_usd double, "
        "seconds double, first_token_s double, recorded varchar, primary key (run_id, seq))",
    ),
    2: ("alter table runs add column baseline_id integer default 0",),
}
"""Version -> statements that lead from it to the next. Views are made anew after every migration."""

_VERSION_TABLE = "schema_version"


class View(msgspec.Struct, frozen=True):
    """A view: its query and what it answers."""

    name: str
    comment: str
    query: str


VIEWS = (
    View(
        "leaderboard",
        "The best candidate of every run, ranked within problem, device and kind of timing.",
        """
        select
            rank() over (
                partition by r.problem_digest, r.device, r.target, r.timing
                order by c.ratio desc nulls last, c.estimate desc nulls last
            ) as place,
            r.problem, r.device, r.target, r.timing, r.run_id, c.candidate_id, c.move, c.strategy, r.generator, r.model,
            c.speed_verdict, c.ratio, c.low, c.high, c.estimate, r.pulls, r.cost_usd, r.started_at
        from runs r join candidates c on c.run_id = r.run_id and c.candidate_id = r.best_id
        """,
    ),
    View(
        "arm_stats",
        "Pulls of every arm of every run, under the clusters at the time of each choice.",
        """
        select
            p.run_id, r.problem, r.policy, p.cluster, p.strategy,
            count(*) filter (p.seen) as pulls,
            avg(p.reward) filter (p.seen) as mean_reward,
            max(p.reward) filter (p.seen) as best_reward,
            count(*) filter (p.seen and p.reward > 0) as rewarded,
            count(*) filter (p.ended and not p.seen) as dropped,
            count(*) filter (p.forced) as forced
        from pulls p join runs r on r.run_id = p.run_id
        group by all
        """,
    ),
    View(
        "lineage",
        "How every candidate came about: its ancestors from the baseline, and the moves between them.",
        """
        with recursive walk as (
            select run_id, candidate_id, 0 as depth, [candidate_id] as ancestors, []::varchar[] as moves
            from candidates where parent_id is null
            union all
            select c.run_id, c.candidate_id, w.depth + 1, list_append(w.ancestors, c.candidate_id),
                list_append(w.moves, c.move)
            from candidates c join walk w on w.run_id = c.run_id and w.candidate_id = c.parent_id
        )
        select w.run_id, w.candidate_id, w.depth, w.ancestors, w.moves, c.status, c.ratio, c.estimate
        from walk w join candidates c on c.run_id = w.run_id and c.candidate_id = w.candidate_id
        """,
    ),
    View(
        "model_cost",
        "What every model was asked in every run and under every arm, what that cost, and the rewards of the pulls.",
        """
        select
            q.run_id, q.model, p.cluster, p.strategy,
            count(*) as requests,
            count(*) filter (q.outcome <> 'reply') as failed,
            count(distinct q.pull) as pulls,
            sum(q.tokens) as tokens,
            sum(q.cost_usd) as cost_usd,
            sum(p.reward) filter (q.call = 1) as reward
        from requests q left join pulls p on p.run_id = q.run_id and p.pull = q.pull
        group by all
        """,
    ),
    View(
        "cost",
        "What every run cost and what it got for it.",
        """
        select
            run_id, problem, generator, model, pulls, candidates, correct, cost_usd, tokens,
            cost_usd / nullif(correct - 1, 0) as usd_per_correct,
            tokens / nullif(correct - 1, 0) as tokens_per_correct,
            elapsed_s / nullif(pulls, 0) as seconds_per_pull,
            best_ratio, best_estimate
        from runs
        """,
    ),
)


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
    views = ["### Views", "", "| view | answers |", "| --- | --- |"]
    views += [f"| `{view.name}` | {view.comment} |" for view in VIEWS]
    return "\n\n".join([*parts, "\n".join(views)]) + "\n"


def _create(table: Table) -> str:
    columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
    return f"create table {table.name} ({columns}, primary key ({', '.join(table.key)}))"


def _comments() -> Iterator[str]:
    for table in TABLES:
        yield f"comment on table {table.name} is {_literal(table.comment)}"
        for column in table.columns:
            yield f"comment on column {table.name}.{column.name} is {_literal(column.comment)}"
    yield f"comment on table {_VERSION_TABLE} is 'Version of this schema; one row.'"
    yield f"comment on column {_VERSION_TABLE}.version is 'The version'"
    for view in VIEWS:
        yield f"comment on view {view.name} is {_literal(view.comment)}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
