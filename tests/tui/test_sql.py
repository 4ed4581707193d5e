"""The SQL screen: ask, stop, page, save, write to a file; the database stays as it was."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import duckdb
import pytest
from test_home import Home, two_runs
from tui_drive import COLOURS, SIZES

from kbtui import paths
from kbtui.history.asking import Stopper
from kbtui.history.saved import saved_queries
from kbtui.tui.app import KbtuiApp
from kbtui.tui.screens import sql as screen
from kbtui.tui.screens.home import HomeScreen
from kbtui.tui.screens.sql import ListView, SqlScreen
from kbtui.tui.views.sql import AnswerSource
from kbtui.tui.widgets.editor import Editor


@asynccontextmanager
async def sql(query: str | None = None, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Home]:
    app = KbtuiApp(None, terminal=COLOURS)
    app.query_kept = query or ""
    async with app.run_test(size=size, notifications=True) as pilot:
        driven = Home(app, pilot)
        await driven.settle()
        await driven.press("s")
        yield driven


LONG = "select count(*) from range(10000000000) a, range(1000) b where (a.range * b.range) % 7 = 3"


async def begun(h: Home) -> None:
    """Wait until DuckDB has the query that was asked for."""
    for _ in range(100):
        await h.pilot.pause(0.05)
        now = h.app.screen
        assert isinstance(now, SqlScreen)
        if now.stopper is not None and now.stopper._connection is not None:
            return
    raise AssertionError("the query did not begin")


@pytest.mark.parametrize("size", SIZES)
async def test_the_first_query_tells_the_best_and_keeps_modelled_apart(size: tuple[int, int]) -> None:
    two_runs()
    async with sql(size=size) as h:
        assert "f5 runs the query" in h.text
        assert ("run_id" in h.text.partition("Schema")[2]) == (size[0] >= 100)
        await h.press("f5")
        assert "2 rows in " in h.text
        assert "measured" in h.text
        assert "modelled" in h.text
        found = h.app.screen.query_one("#answer", ListView).source
        assert isinstance(found, AnswerSource)
        at = found.found.columns.index
        for row in found.found.rows:
            assert (row[at("ratio")] is None) == (row[at("timing")] == "modelled")


async def test_what_fails_is_said_and_the_query_stays() -> None:
    two_runs()
    async with sql("select nothing_such from runs") as h:
        await h.press("f5")
        assert "no answer" in h.text
        assert "nothing_such" in h.text.partition("Answer")[2]
        assert h.app.screen.query_one(Editor).text == "select nothing_such from runs"
        await h.press(*"x")
        assert h.app.screen.query_one(Editor).text.endswith("runsx")


@pytest.mark.parametrize(
    "query", ["delete from runs", "create table x (i int)", "copy runs to 'x.csv'", "attach 'x.db'"]
)
async def test_nothing_can_be_changed_or_written(query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    two_runs()
    async with sql(query) as h:
        await h.press("f5")
        assert "no answer" in h.text
    assert list(tmp_path.iterdir()) == []
    with duckdb.connect(str(paths.history_file()), read_only=True) as connection:
        assert connection.execute("select count(*) from runs").fetchall() == [(2,)]


async def test_a_long_query_ends_with_the_program_and_the_file_is_free_again() -> None:
    async with sql(LONG) as h:
        await h.pilot.press("f5")
        await begun(h)
        assert "asking; esc stops it" in h.text
        await h.pilot.press("f5")
        await h.pilot.pause()
        assert "a query runs" in h.app.messages[-1].text
    # no thread of the cockpit's has the file open any more: DuckDB refuses one that is open with other rights
    duckdb.connect(str(paths.history_file())).close()


async def test_a_stop_that_duckdb_does_not_hear_is_said_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said = []

    def deaf_at_first(stopper: Stopper) -> None:
        said.append(stopper)
        if len(said) > 3:
            stop(stopper)

    stop = Stopper.stop
    monkeypatch.setattr(Stopper, "stop", deaf_at_first)
    async with sql(LONG) as h:
        await h.pilot.press("f5")
        await begun(h)
        await h.press("escape")
        assert "the query was stopped" in h.text
    assert len(said) == 4


async def test_escape_stops_the_query_first_and_then_leads_home() -> None:
    async with sql(LONG) as h:
        await h.pilot.press("f5")
        await begun(h)
        await h.press("escape")
        assert "the query was stopped" in h.text
        assert isinstance(h.app.screen, SqlScreen)
        await h.press("escape")
        assert isinstance(h.app.screen, HomeScreen)
        await h.press("s")
        assert "range(10000000000)" in h.text, "the query is there when one comes back"


async def test_rows_are_capped_on_the_screen_and_scrolled_without_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "ROWS_MOST", 100)
    async with sql("select range as n, repeat('ab', 500) as long from range(5000)") as h:
        await h.press("f5")
        assert "100+ rows" in h.text
        assert "the first 100; f4 writes all" in h.text
        await h.press("tab", "end")
        assert "99" in h.text
        await h.press("home", "right")
        assert h.app.screen.query_one("#answer", ListView).left > 0 or size_fits(h)


def size_fits(h: Home) -> bool:
    answer = h.app.screen.query_one("#answer", ListView)
    return answer._wide <= answer.size.width


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
async def test_the_whole_answer_goes_to_a_file(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(screen, "ROWS_MOST", 10)
    async with sql("select range as n from range(25) -- all") as h:
        await h.press("f4")
        assert "run a query first" in h.text
        await h.press("f5")
        await h.press("f4", *"out.txt", "enter")
        assert "end it in .csv" in h.text
        await h.press(*["backspace"] * 4, *suffix, "enter")
        assert "wrote 25 rows to" in h.text
        file = tmp_path / f"out{suffix}"
        if suffix == ".csv":
            with file.open(newline="") as rows:
                assert len(list(csv.reader(rows))) == 26
        elif suffix == ".parquet":
            assert duckdb.sql(f"select count(*), sum(n) from '{file}'").fetchall() == [(25, 300)]
        await h.press("f4", *f"out{suffix}", "enter")
        assert "exists" in h.text


async def test_queries_are_saved_used_and_forgotten() -> None:
    async with sql("select 41") as h:
        await h.press("f3", *"mine", "enter")
        assert saved_queries().all() == {"mine": "select 41"}
        await h.press("end", *" + 1", "f2", "down", "enter")
        assert h.app.screen.query_one(Editor).text == "select 41"
        await h.press("f2", "down", "delete")
        assert "Forget the query mine?" in h.text
        await h.press("y")
        assert saved_queries().all() == {}
        await h.press("escape")
        assert isinstance(h.app.screen, SqlScreen)


async def test_a_name_of_the_schema_goes_into_the_query() -> None:
    async with sql("select ") as h:
        await h.press("shift+tab", "down", "down")
        assert "Name of the problem" in h.text
        await h.press("enter")
        assert h.app.screen.query_one(Editor).text == "select problem"
        assert h.app.screen.query_one(Editor).has_focus


async def test_foreign_text_in_answers_and_pastes_is_made_safe() -> None:
    from textual.events import Paste

    async with sql(r"select e'\x1b]52;c;aGk=\x07[bold]' as a, null as b, [1, 2] as c") as h:
        await h.press("f5")
        assert "␛]52" in h.text
        assert "\x1b" not in h.text
        editor = h.app.screen.query_one(Editor)
        editor.put("")
        editor.post_message(Paste("a\x1b]0;x\x07\nb"))
        await h.settle()
        assert "\x1b" not in editor.text
        assert "␛" in editor.text
