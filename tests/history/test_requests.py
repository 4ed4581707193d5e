"""Requests to models in the history database: what was asked, how it ended, what it cost, by model and by arm."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import duckdb
import pytest

from kbtui.history.database import History
from kbtui.paths import history_file
from kbtui.state import events as e
from kbtui.state.records import Message

MakeRun = Callable[..., list[e.Event]]
Write = Callable[[str, Iterable[e.Event]], None]


def asked(pull: int, call: int) -> e.Asked:
    return e.Asked(
        pull=pull, call=call, model="openai/x", asking="write", strategy="tiling", messages=(Message("user", "go"),),
        prompt_digest="d", most_tokens=100, reserved_usd=0.5,
    )  # fmt: skip


def replied(pull: int, call: int, cost: float | None) -> e.Replied:
    return e.Replied(
        pull=pull, call=call, model="openai/x", asking="write", strategy="tiling", prompt_digest="d", text="t", finish="stop",
        prompt_tokens=30, completion_tokens=20, cost_usd=cost, seconds=2.0, first_token_s=0.5,
    )  # fmt: skip


EVENTS = [
    asked(1, 1),
    replied(1, 1, 0.25),
    e.ReplyRead(pull=1, call=1, refused="diff", reason="the reply is a diff"),
    asked(2, 1),
    e.AskFailed(pull=2, call=1, model="openai/x", kind="dropped", reason="cut", cost_usd=0.125, tokens=7, seconds=1.0),
    asked(2, 2),
    replied(2, 2, None),
]


@pytest.fixture
def history(make_run: MakeRun, write_journal: Write) -> History:
    write_journal("softmax-1", [*make_run(), *EVENTS])
    found = History(wait_s=0.2)
    found.ingest()
    return found


def test_every_request_has_a_row_when_its_end_is_known(history: History) -> None:
    found = history.sql("select pull, call, outcome, tokens, cost_usd, finish from requests order by seq").rows
    assert found == [
        (1, 1, "reply", 50, 0.25, "stop"),
        (2, 1, "dropped", 7, 0.125, None),
        (2, 2, "reply", 50, None, "stop"),
    ]


def test_the_cost_by_model_and_arm(history: History) -> None:
    query = "select model, sum(requests), sum(failed), sum(tokens), sum(cost_usd) from model_cost group by 1"
    assert history.sql(query).rows == [("openai/x", 3, 1, 107, 0.375)]
    by_arm = history.sql("select strategy, pulls, cost_usd from model_cost order by 1").rows
    assert [row[2] for row in by_arm] == [0.25, 0.125] or [row[2] for row in by_arm] == [0.125, 0.25]


def test_a_refused_reply_is_a_note(history: History) -> None:
    found = history.sql("select level, text from notes where source = 'reply'").rows
    assert found == [("warning", "pull 1, reply 1: diff: the reply is a diff")]


def test_a_database_of_the_version_before_gets_the_table(history: History) -> None:
    with duckdb.connect(str(history_file())) as connection:
        connection.execute("drop view model_cost")
        connection.execute("drop table requests")
        connection.execute("update schema_version set version = 1")
    history.ingest()
    columns = "select column_name, data_type from duckdb_columns() where table_name = 'requests' order by 1"
    migrated = history.sql(columns).rows
    history_file().unlink()
    history.ingest()
    assert migrated == history.sql(columns).rows
    assert history.sql("select count(*) from requests").rows == [(3,)]
