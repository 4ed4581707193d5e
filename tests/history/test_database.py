"""The history database: what the journals say, once, in the right columns; locked, lost and broken files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kbtui.errors import HistoryError
from kbtui.history import schema
from kbtui.history.database import GpuRollup, History
from kbtui.history.tables import TABLES
from kbtui.history.views import VIEWS
from kbtui.paths import history_file, journal_file, run_dir
from kbtui.state import events as e

MakeRun = Callable[..., list[e.Event]]
Write = Callable[[str, Iterable[e.Event]], None]


@pytest.fixture
def history(make_run: MakeRun, write_journal: Write) -> History:
    """A history with one measured run taken in."""
    write_journal("softmax-1", make_run())
    found = History(wait_s=0.2)
    assert found.ingest() == len(make_run())
    return found


def rows(history: History, query: str) -> list[tuple[Any, ...]]:
    return history.sql(query).rows


def everything(history: History) -> dict[str, list[tuple[Any, ...]]]:
    return {table.name: sorted(rows(history, f"select * from {table.name}"), key=repr) for table in TABLES}


def test_the_query_of_the_readme(history: History) -> None:
    found = history.sql("select strategy, count(*), avg(reward) from pulls group by 1 order by 1")
    assert found.columns[0] == "strategy"
    assert found.types[1:] == ["BIGINT", "DOUBLE"]
    assert found.rows == [("fusion", 1, 0.0), ("tiling", 2, pytest.approx(1 / 3))]


def test_every_derived_table_has_rows(history: History) -> None:
    counts = {name: len(found) for name, found in everything(history).items()}
    assert counts == {
        "runs": 1, "cases": 2, "candidates": 3, "case_times": 4, "kernels": 3, "pulls": 3, "selections": 18, "partitions": 2,
        "interventions": 4, "notes": 2, "requests": 0, "gpu": 0, "benchmarks": 0, "ingested": 1,
    }  # fmt: skip


def test_a_run_row(history: History) -> None:
    found = rows(
        history,
        "select problem, device, timing, policy_parameters->>'c', seed, iterations, status, pulls, candidates, correct, "
        "best_id, best_ratio, best_estimate, cost_usd, tokens, arguments, epoch(started_at), elapsed_s from runs",
    )
    assert found == [
        ("softmax", "NVIDIA H200", "measured", "2.0", 7, 4, "paused", 2, 3, 2, 1, 1.5, None, 0.75, 300, ["run", "softmax"],
         1_800_000_000.0, 26.0),
    ]  # fmt: skip


def test_pulls_say_how_they_ended(history: History) -> None:
    found = rows(
        history,
        "select pull, forced, candidate_id, candidates, ended, seen, outcome, dropped_owner, dropped_reason, arm_pulls, "
        "epoch(ended_at) - epoch(started_at) from pulls order by pull",
    )
    assert found == [
        (1, False, 1, 1, True, True, "faster", None, None, 2.0, 5.0),
        (2, True, 2, 1, True, True, "wrong", None, None, 2.0, 4.0),
        (3, False, None, 0, True, False, "dropped", "provider", "429", None, 1.0),
    ]


def test_foreign_text_is_kept_as_it_is(history: History) -> None:
    assert rows(history, "select source from candidates where candidate_id = 2") == [
        ("def softmax(x): ...  # 2 \0 \x1b[31m é",)
    ]


def test_people_and_the_program_are_told_apart(history: History) -> None:
    found = rows(
        history, "select kind, by_whom, strategy, cluster, candidate_id, detail from interventions order by seq"
    )
    assert found == [
        ("force", "ann@tty1", "fusion", 0, 1, ""),
        ("ban", "ann@tty1", "pipeline", None, None, ""),
        ("tag", "ann@tty1", None, None, 1, "good: ship it"),
        ("pause", "ann@tty1", None, None, None, "lunch"),
    ]
    assert rows(history, "select level, text from notes order by seq") == [
        ("warning", "paused: provider refuses"),
        ("warning", "careful"),
    ]


MEASURED = "ratio, low, high, total_ms, sm_percent, dram_percent"
MODELLED = "estimate, total_estimate_ms, sm_estimate_percent, dram_estimate_percent"


@pytest.mark.parametrize(
    ("timing", "empty", "full"), [("measured", MODELLED, MEASURED), ("modelled", MEASURED, MODELLED)]
)
def test_measured_and_modelled_numbers_never_share_a_column(
    make_run: MakeRun, write_journal: Write, timing: str, empty: str, full: str
) -> None:
    write_journal("r", make_run("r", timing))
    history = History()
    history.ingest()
    [absent] = rows(history, f"select {empty} from candidates where candidate_id = 1")
    [present] = rows(history, f"select {full} from candidates where candidate_id = 1")
    assert set(absent) == {None}
    assert None not in present
    case = {
        "measured": ("estimate_ms, estimate_ratio", "ms, ratio"),
        "modelled": ("ms, ratio", "estimate_ms, estimate_ratio"),
    }
    absent_case, present_case = case[timing]
    assert set(rows(history, f"select {absent_case} from case_times")) == {(None, None)}
    assert all(None not in row for row in rows(history, f"select {present_case} from case_times"))
    best = rows(history, "select best_ratio, best_estimate from runs")
    assert best == ([(1.5, None)] if timing == "measured" else [(None, 1.5)])
    features = rows(history, "select log_latency, log_latency_estimate from partitions where candidate_id = 0")
    assert features == ([(0.7, None)] if timing == "measured" else [(None, 0.7)])


# ---------------------------------------------------------------- taking in


def test_taking_in_twice_changes_nothing(history: History) -> None:
    before = everything(history)
    assert history.ingest() == 0
    assert everything(history) == before


@pytest.mark.parametrize("step", [1, 2, 5, 11])
def test_bit_by_bit_equals_at_once(make_run: MakeRun, write_journal: Write, tmp_path: Path, step: int) -> None:
    events = make_run("r")
    growing = History(tmp_path / "growing.duckdb")
    for start in range(0, len(events), step):
        write_journal("r", events[start : start + step])
        assert growing.ingest() == len(events[start : start + step])
    at_once = History(tmp_path / "once.duckdb")
    assert at_once.ingest() == len(events)
    assert everything(growing) == everything(at_once)


def test_only_what_grew_is_written(history: History, write_journal: Write) -> None:
    write_journal("softmax-1", [e.Tagged(by="bob", candidate_id=2, tag="bad")])
    assert history.ingest() == 1
    assert rows(history, "select candidate_id, tags from candidates order by 1") == [
        (0, []),
        (1, ["good"]),
        (2, ["bad"]),
    ]
    assert rows(history, "select count(*) from selections") == [(18,)]


def test_a_torn_line_is_not_taken_in(history: History) -> None:
    with open(journal_file("softmax-1"), "ab") as file:
        file.write(b'{"type":"noted","se')
    assert history.ingest() == 0
    assert history.unreadable == {}


def test_a_run_whose_journal_is_gone_keeps_its_rows(history: History) -> None:
    journal_file("softmax-1").unlink()
    assert history.ingest() == 0
    assert rows(history, "select run_id from runs") == [("softmax-1",)]


def test_another_journal_in_the_place_of_one_taken_in_replaces_its_rows(
    history: History, make_run: MakeRun, write_journal: Write
) -> None:
    journal_file("softmax-1").unlink()
    write_journal("softmax-1", make_run("softmax-1", "measured", "matmul")[:8])
    assert history.ingest() == 8
    assert rows(history, "select problem, candidates, pulls from runs") == [("matmul", 2, 0)]
    assert rows(history, "select count(*) from interventions") == [(0,)]


def test_a_damaged_journal_is_named_and_keeps_no_other_run_out(
    history: History, make_run: MakeRun, write_journal: Write
) -> None:
    run_dir("broken").mkdir()
    journal_file("broken").write_text("{}\n")
    write_journal("orphan", make_run("orphan")[2:])
    write_journal("softmax-2", make_run("softmax-2"))
    assert history.ingest() == len(make_run())
    assert set(history.unreadable) == {"broken", "orphan"}
    assert "line 1" in history.unreadable["broken"]
    assert "candidate 0" in history.unreadable["orphan"]
    assert rows(history, "select run_id from runs order by 1") == [("softmax-1",), ("softmax-2",)]


def test_a_value_that_a_column_cannot_hold_keeps_only_its_run_out(
    history: History, make_run: MakeRun, write_journal: Write
) -> None:
    big = e.Generated(
        candidate_id=9, parent_id=0, pull=0, strategy=None, generator="llm", move="", source="", source_digest="",
        syntax_digest="x", tokens=2**70,
    )  # fmt: skip
    write_journal("big", [*make_run("big"), big])
    write_journal("softmax-2", make_run("softmax-2"))
    history.ingest()
    assert set(history.unreadable) == {"big"}
    assert rows(history, "select run_id from runs order by 1") == [("softmax-1",), ("softmax-2",)]


# ---------------------------------------------------------------- asking


def test_a_query_can_change_nothing_and_touch_no_other_file(history: History, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    before = everything(history)
    for query in (
        "delete from pulls",
        "create table t (a int)",
        "select 1; drop table runs",
        f"copy (select 1) to '{tmp_path / 'out.csv'}'",
        f"attach '{tmp_path / 'other.duckdb'}'",
        f"select * from read_csv('{secret}')",
        "set enable_external_access = true",
    ):
        with pytest.raises(HistoryError, match="the query fails"):
            history.sql(query)
    assert everything(history) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv"]


def test_a_wrong_name_is_answered_with_the_right_ones(history: History) -> None:
    with pytest.raises(HistoryError, match=r"rewards.*reward") as caught:
        history.sql("select rewards from pulls")
    assert "\n" not in str(caught.value)


def test_a_limit_cuts_the_answer(history: History) -> None:
    assert len(history.sql("select * from selections", limit=5).rows) == 5


def test_an_empty_history_answers(history: History) -> None:
    empty = History(history.path.with_name("empty.duckdb"))
    assert empty.sql("select count(*) from runs").rows == [(0,)]
    assert empty.list_runs().rows == []


def test_listing_runs_by_problem(history: History, make_run: MakeRun, write_journal: Write) -> None:
    write_journal("matmul-1", make_run("matmul-1", "measured", "matmul"))
    history.ingest()
    assert len(history.list_runs().rows) == 2
    found = history.list_runs("matmul")
    assert [row[found.columns.index("run_id")] for row in found.rows] == ["matmul-1"]
    assert len(history.list_runs(limit=1).rows) == 1


def test_views(history: History, make_run: MakeRun, write_journal: Write) -> None:
    write_journal("guess", make_run("guess", "modelled"))
    history.ingest()
    board = "select place, timing, run_id, candidate_id, ratio, estimate from leaderboard order by timing"
    assert rows(history, board) == [(1, "measured", "softmax-1", 1, 1.5, None), (1, "modelled", "guess", 1, None, 1.5)]
    arms = "select strategy, pulls, mean_reward, best_reward, rewarded, dropped, forced from arm_stats where run_id = 'guess'"
    assert sorted(rows(history, arms)) == [
        ("fusion", 1, 0.0, 0.0, 0, 0, 1),
        ("tiling", 1, pytest.approx(1 / 3), pytest.approx(1 / 3), 1, 1, 0),
    ]
    lineage = "select depth, ancestors, moves from lineage where run_id = 'guess' and candidate_id = 2"
    assert rows(history, lineage) == [(2, [0, 1, 2], ["move 1", "move 2"])]
    assert rows(history, "select usd_per_correct, tokens_per_correct from cost where run_id = 'guess'") == [
        (0.75, 300.0)
    ]


def test_every_table_view_and_column_has_a_comment(history: History) -> None:
    tables = rows(history, "select table_name, comment from duckdb_tables() where not internal")
    views = rows(history, "select view_name, comment from duckdb_views() where not internal")
    columns = rows(
        history,
        "select table_name || '.' || column_name, comment from duckdb_columns() where not internal",
    )
    assert len(tables) == len(TABLES) + 1
    assert len(views) == len(VIEWS)
    assert [name for name, comment in tables + views + columns if not comment] == []


def test_plain_duckdb_opens_the_file_and_every_view_answers(history: History) -> None:
    run_id, began = rows(history, "select run_id, epoch(started_at) from runs")[0]
    history.add_gpu(
        run_id,
        [
            GpuRollup(
                uuid="u", device="cuda:0", counter="power_w", t=began + since, seconds=1.0, samples=2, mean=5.0, minimum=4.0,
                maximum=6.0,
            )
            for since in (7.5, 500.0)
        ],
    )  # fmt: skip
    connection = duckdb.connect(str(history.path), read_only=True)
    try:
        for view in VIEWS:
            found = connection.execute(f"select * from {view.name}")
            assert [column[0] for column in found.description] == [name for name, _ in view.columns], view.name
            if view.name != "model_cost":
                assert found.fetchall(), view.name
        trace = connection.execute("select since_start_s, pull from gpu_trace order by 1").fetchall()
        assert trace == [(7.5, 1), (500.0, None)]
    finally:
        connection.close()


def test_the_document_is_the_schema() -> None:
    document = Path(schema.__file__).parents[2] / "docs" / "history.md"
    assert schema.markdown() in document.read_text()


# ---------------------------------------------------------------- files that are held, lost, broken, old or new

_HOLD = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "read")
print("held", flush=True)
sys.stdin.read()
"""


def hold(path: Path, mode: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def let_go(process: subprocess.Popen[str]) -> None:
    process.communicate("")


def test_a_held_file_is_named_with_its_holder_and_nothing_is_lost(
    history: History, make_run: MakeRun, write_journal: Write
) -> None:
    write_journal("softmax-2", make_run("softmax-2"))
    holder = hold(history.path, "write")
    try:
        for use in (history.ingest, history.rebuild, history.list_runs):
            with pytest.raises(HistoryError, match=rf"history\.duckdb is held by process {holder.pid} \(.*python"):
                use()
    finally:
        let_go(holder)
    assert history.ingest() == len(make_run())
    assert [path.name for path in history.path.parent.iterdir() if "new" in path.name] == []


def test_a_reader_elsewhere_keeps_the_writer_out_and_no_reader(
    history: History, make_run: MakeRun, write_journal: Write
) -> None:
    write_journal("softmax-2", make_run("softmax-2"))
    holder = hold(history.path, "read")
    try:
        assert rows(history, "select count(*) from runs") == [(1,)]
        with pytest.raises(HistoryError, match=str(holder.pid)):
            history.ingest()
    finally:
        let_go(holder)


def test_a_call_waits_for_a_short_holder(history: History) -> None:
    patient = History(history.path, wait_s=20.0)
    code = _HOLD.replace("sys.stdin.read()", "import time; time.sleep(0.3)")
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(history.path), "write"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    assert patient.sql("select count(*) from runs").rows == [(1,)]
    holder.communicate()


@pytest.mark.parametrize("damage", ["all", "head", "cut"])
def test_a_broken_file_says_how_to_mend_it_and_rebuild_mends_it(history: History, damage: str) -> None:
    before = everything(history)
    whole = history.path.read_bytes()
    broken = {"all": b"garbage" * 1000, "head": b"\0" * 4096 + whole[4096:], "cut": whole[:100]}[damage]
    history.path.write_bytes(broken)
    for use in (history.ingest, history.list_runs):
        with pytest.raises(HistoryError, match=r"history\.duckdb cannot be used .*`kbtui history rebuild`"):
            use()
    assert history.rebuild() == 27
    assert everything(history) == before
    [aside] = history.path.parent.glob("history.duckdb.damaged-*")
    assert aside.read_bytes() == broken


def test_a_file_whose_pages_rotted_is_mended_too(history: History) -> None:
    before = everything(history)
    whole = bytearray(history.path.read_bytes())
    whole[12288:] = bytes(byte ^ 0x5A for byte in whole[12288:])
    history.path.write_bytes(whole)
    with pytest.raises(HistoryError, match="rebuild"):
        everything(history)
    history.rebuild()
    assert everything(history) == before


def test_a_lost_file_is_made_anew(history: History) -> None:
    before = everything(history)
    history.path.unlink()
    assert history.ingest() == 27
    assert everything(history) == before


def test_rebuilding_keeps_what_no_journal_gives(history: History, make_run: MakeRun, write_journal: Write) -> None:
    write_journal("gone", make_run("gone"))
    rollup = GpuRollup(
        uuid="GPU-1", device="cuda:0", counter="power_w", t=1_800_000_000.0, seconds=10.0, samples=10, mean=400.0,
        minimum=380.0, maximum=410.5,
    )  # fmt: skip
    history.ingest()
    history.add_gpu("gone", [rollup])
    history.add_gpu("gone", [rollup])
    before = everything(history)
    assert len(before["gpu"]) == 1
    journal_file("gone").unlink()
    assert history.rebuild() == 54
    assert everything(history) == before
    assert not list(history.path.parent.glob("history.duckdb.*"))


def test_rebuilding_without_a_file(make_run: MakeRun, write_journal: Write) -> None:
    write_journal("r", make_run("r"))
    history = History()
    assert history.rebuild() == 27
    assert history.path == history_file()
    assert rows(history, "select run_id from runs") == [("r",)]


def test_a_database_of_a_newer_kbtui_asks_for_an_upgrade(history: History) -> None:
    with duckdb.connect(str(history.path)) as connection:
        connection.execute("update schema_version set version = 99")
    for use in (history.list_runs, history.rebuild):
        with pytest.raises(HistoryError, match=r"version 99.*upgrade kbtui"):
            use()


def test_an_older_database_is_migrated_step_by_step(monkeypatch: pytest.MonkeyPatch, history: History) -> None:
    before = rows(history, "select * from pulls order by pull")
    now = schema.SCHEMA_VERSION
    monkeypatch.setattr(schema, "SCHEMA_VERSION", now + 2)
    monkeypatch.setattr(
        schema,
        "MIGRATIONS",
        {
            now: ("alter table pulls add column first_step integer default 1",),
            now + 1: ("alter table pulls add column second_step integer default 2",),
        },
    )
    assert rows(history, "select version from schema_version") == [(now + 2,)]
    assert rows(history, "select * from pulls order by pull") == [(*row, 1, 2) for row in before]


def test_threads_of_one_process_take_turns(history: History, make_run: MakeRun, write_journal: Write) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for number in range(4):
        write_journal(f"more-{number}", make_run(f"more-{number}"))
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda turn: history.ingest() if turn % 2 else len(history.list_runs().rows), range(12)))
    assert sum(taken[1::2]) == 4 * len(make_run())
    assert len(history.list_runs().rows) == 5


BARS = """
import sys
from pathlib import Path

import duckdb

from kbtui.history.connection import connect

setting = "select current_setting('enable_progress_bar')"
file = Path(sys.argv[1])
said = [duckdb.execute(setting).fetchone()[0]]
for mode, target in (("write", None), ("read", None), ("export", file.with_suffix(".csv")), ("write", file)):
    with connect(file, mode, target=target) as connection:
        said += [connection.execute(setting).fetchone()[0], connection.cursor().execute(setting).fetchone()[0]]
print(*said)
"""


def test_no_connection_draws_a_progress_bar(tmp_path: Path) -> None:
    # without a script file, DuckDB takes the interpreter for an interactive one and would draw: that is the first answer
    done = subprocess.run(
        [sys.executable, "-c", BARS, str(tmp_path / "x.duckdb")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", *["False"] * 8]


def test_version_5_gets_the_devices(history: History) -> None:
    history.ingest()
    with duckdb.connect(str(history.path)) as connection:
        for view in VIEWS:
            connection.execute(f"drop view {view.name}")
        connection.execute("alter table runs drop column devices")
        connection.execute("alter table candidates drop column device")
        connection.execute("update schema_version set version = 5")
    assert rows(history, "select distinct devices from runs") == [([],)]
    assert rows(history, "select distinct device from candidates") == [("",)]


def test_a_run_on_several_devices_says_where(history: History, make_run: MakeRun, write_journal: Write) -> None:
    import msgspec

    first, *rest = make_run("two")
    assert isinstance(first, e.RunStarted)
    started = msgspec.structs.replace(first, lanes=("cuda:0", "cuda:1"))
    events = [
        msgspec.structs.replace(x, device=f"cuda:{x.candidate_id % 2}") if isinstance(x, e.Timed) else x for x in rest
    ]
    write_journal("two", [started, *events])
    history.ingest()
    assert rows(history, "select devices from runs where run_id = 'two'") == [(["cuda:0", "cuda:1"],)]
    where = dict(rows(history, "select candidate_id, device from candidates where run_id = 'two'"))
    timed = {x.candidate_id for x in events if isinstance(x, e.Timed)}
    assert where == {number: f"cuda:{number % 2}" if number in timed else "" for number in where}
