"""Taking journals in: by pieces, bit by bit, by one that follows a live run and from the start, the rows are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from kbtui.history import intake, light, schema
from kbtui.history.database import History
from kbtui.history.journal import JournalReader, RunLock, read_journal
from kbtui.history.loading import writing
from kbtui.history.rows import RunRows
from kbtui.history.tables import DERIVED, TABLES
from kbtui.history.views import VIEWS
from kbtui.paths import journal_file
from kbtui.state import events as e
from kbtui.state import records as r

MakeRun = Callable[..., list[e.Event]]
Write = Callable[[str, Iterable[e.Event]], None]
Everything = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(autouse=True)
def nothing_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_followed", {})


@pytest.fixture
def restless(make_run: MakeRun) -> list[e.Event]:
    """The small run, and after it much that changes what it made: tags that are taken back, another partition, a verdict of the
    hidden stage, a kill, a reply, a second timing, a pull in which all that happens twice."""
    events = make_run("r")
    timed = next(event for event in events if isinstance(event, e.Timed) and event.candidate_id == 1)
    begun = next(event for event in events if isinstance(event, e.Selected) and event.pull == 1)
    made = next(event for event in events if isinstance(event, e.Generated) and event.candidate_id == 2)
    compiled = next(event for event in events if isinstance(event, e.Compiled) and event.candidate_id == 2)
    tag = next(number for number, event in enumerate(events, 1) if isinstance(event, e.Tagged))
    slower = msgspec.structs.replace(timed.timing, cases=timed.timing.cases[:1], verdict="slower", ratio=0.5)
    replied = e.Replied(
        pull=4, call=1, model="m", asking="write", strategy="tiling", prompt_digest="p", text="a version", finish="stop",
        prompt_tokens=5, completion_tokens=7, cost_usd=0.5,
    )  # fmt: skip
    return [
        *events,
        e.Undone(by="ann@tty1", act=tag, text="ann@tty1 tagged #1 good: ship it"),
        e.Clustered(pull=4, labels={0: 1, 1: 1}, representatives={1: 0}, features={}, arms=()),
        e.Confirmed(candidate_id=1, verification=r.Verification(verdict="wrong", stage="hidden", reason="off")),
        msgspec.structs.replace(timed, timing=slower),
        msgspec.structs.replace(begun, pull=4),
        replied,
        msgspec.structs.replace(made, candidate_id=3, pull=4, syntax_digest="t3"),
        msgspec.structs.replace(compiled, candidate_id=3),
        e.Killed(by="bob", candidate_id=3),
        e.Tagged(by="bob", candidate_id=2, tag="bad"),
        e.PullDropped(pull=4, owner=None, reason="killed"),
        e.Clustered(pull=5, labels={0: 1, 1: 0, 3: 2}, representatives={1: 0}, features={}, arms=()),
    ]


def everything(history: History) -> Everything:
    return {table.name: sorted(history.sql(f"select * from {table.name}").rows, key=repr) for table in TABLES}


def plainly(events: list[e.Event], path: Path) -> Everything:
    """What the events make when they are all records, folded in one go, with each row made once, of the last state."""
    rows = RunRows("r")
    with writing(path) as writer:
        schema.prepare(writer.connection)
        for name, found in {**rows.take(events), **rows.whole()}.items():
            writer.load(next(table for table in DERIVED if table.name == name), found)
    assert not rows.changed_candidates
    assert not rows.moved()
    return everything(History(path))


@pytest.fixture
def plain(restless: list[e.Event], write_journal: Write, tmp_path: Path) -> Everything:
    write_journal("r", restless)
    found = plainly(read_journal(journal_file("r")), tmp_path / "plain.duckdb")
    assert [row[3:6] for row in found["pulls"] if row[1] == 4] == [("tiling", 0, False)]
    return found


def without_mark(found: Everything) -> Everything:
    return {name: rows for name, rows in found.items() if name != "ingested"}


@pytest.mark.parametrize("piece", [1, 700, 2000, 1 << 24])
def test_pieces_of_any_size_give_the_rows_of_the_plain_fold(
    monkeypatch: pytest.MonkeyPatch, plain: Everything, restless: list[e.Event], piece: int
) -> None:
    monkeypatch.setattr(intake, "_PIECE", piece)
    history = History()
    assert history.ingest() == len(restless)
    assert without_mark(everything(history)) == without_mark(plain)


@pytest.mark.parametrize("step", [3, 10])
@pytest.mark.parametrize("live", [False, True])
def test_bit_by_bit_gives_the_rows_of_the_plain_fold(
    monkeypatch: pytest.MonkeyPatch,
    plain: Everything,
    restless: list[e.Event],
    write_journal: Write,
    step: int,
    live: bool,
) -> None:
    readers: list[Path] = []

    class Counted(JournalReader):
        def __init__(self, path: Path, *more: Any) -> None:
            readers.append(path)
            super().__init__(path, *more)

    monkeypatch.setattr(intake, "JournalReader", Counted)
    monkeypatch.setattr(intake, "_PIECE", 900)
    journal_file("r").unlink()
    history, lock = History(), RunLock("r")
    if live:
        lock.acquire()
    try:
        for start in range(0, len(restless), step):
            write_journal("r", restless[start : start + step])
            assert history.ingest() == len(restless[start : start + step])
    finally:
        lock.release()
    assert without_mark(everything(history)) == without_mark(plain)
    assert len(readers) == (1 if live else -(-len(restless) // step))


def test_what_is_taken_back_later_is_taken_back_in_the_database(
    make_run: MakeRun, restless: list[e.Event], write_journal: Write
) -> None:
    history, count = History(), len(make_run("r"))
    tags = "select tags, note from candidates where candidate_id = 1"
    write_journal("r", restless[:count])
    history.ingest()
    assert history.sql(tags).rows == [(["good"], "ship it")]
    write_journal("r", restless[count : count + 1])
    history.ingest()
    assert history.sql(tags).rows == [([], "")]


def test_another_journal_in_the_place_of_a_live_one_is_read_from_its_start(
    make_run: MakeRun, write_journal: Write
) -> None:
    history = History()
    with RunLock("r"):
        write_journal("r", make_run("r"))
        history.ingest()
        journal_file("r").unlink()
        longer = [*make_run("r", "measured", "matmul"), e.Noted(level="info", text="x")]
        write_journal("r", longer)
        history.ingest()
    assert history.sql("select problem, seq from runs join ingested using (run_id)").rows == [("matmul", len(longer))]


def test_only_the_newest_live_runs_are_followed(make_run: MakeRun, write_journal: Write) -> None:
    history, locks = History(), [RunLock(f"r{number}") for number in range(6)]
    for lock in locks:
        lock.acquire()
        write_journal(lock.run_id, make_run(lock.run_id))
    write_journal("dead", make_run("dead"))
    history.ingest()
    for lock in locks:
        lock.release()
    assert [run_id for _, run_id in intake._followed] == ["r2", "r3", "r4", "r5"]


def test_keys_tell_the_rows_apart(plain: Everything, tmp_path: Path) -> None:
    history = History()
    history.ingest()
    for table in TABLES:
        key = ", ".join(table.key)
        assert history.sql(f"select {key} from {table.name} group by all having count(*) > 1").rows == [], table.name


def test_a_choice_is_read_with_all_its_fields(make_run: MakeRun) -> None:
    event = next(event for event in make_run("r") if isinstance(event, e.Selected))
    [choice] = light.decode_lines(e.encode(event) + b"\n")
    assert msgspec.json.decode(choice.scores, type=tuple[r.ArmScore, ...]) == event.scores
    assert light.whole([choice]) == [msgspec.structs.replace(event, scores=())]


def test_version_6_loses_its_primary_keys_and_nothing_else(plain: Everything) -> None:
    history = History()
    history.ingest()
    before = everything(history)
    with duckdb.connect(str(history.path)) as connection:
        for view in VIEWS:
            connection.execute(f"drop view {view.name}")
        for table in DERIVED:
            columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
            connection.execute(f"alter table {table.name} rename to old")
            connection.execute(f"create table {table.name} ({columns}, primary key ({', '.join(table.key)}))")
            connection.execute(f"insert into {table.name} from old")
            connection.execute("drop table old")
        connection.execute("update schema_version set version = 6")
    assert everything(history) == before
    keys = history.sql(
        "select table_name from duckdb_constraints() where constraint_type = 'PRIMARY KEY' order by 1"
    ).rows
    assert keys == [("benchmarks",), ("gpu",), ("ingested",)]
