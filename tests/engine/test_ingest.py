"""When a live run is brought into the history database: after some pulls, one at a time, never for most of the run's time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from kbtui import clock
from kbtui.engine.emit import Emitter
from kbtui.engine.ingest import EVERY_PULLS, REST, HistoryFeed
from kbtui.errors import HistoryError
from kbtui.history.journal import JournalWriter, read_journal
from kbtui.state import events as e
from kbtui.state.run_state import RunState

ENDED = e.PullDropped(pull=1, owner=None, reason="x")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(clock, "monotonic", found)
    return found


@pytest.fixture
def writer(tmp_path: Path) -> JournalWriter:
    return JournalWriter(tmp_path / "journal.jsonl")


async def end(feed: HistoryFeed, pulls: int) -> None:
    """So many pulls end, one after the other."""
    for _ in range(pulls):
        feed.hear(ENDED)
        await feed.settle()


async def test_it_ingests_after_some_pulls_and_rests_in_proportion(now: Clock, writer: JournalWriter) -> None:
    taken: list[float] = []

    def ingest() -> int:
        taken.append(now.now)
        now.now += 2.0
        return 1

    with writer:
        feed = HistoryFeed(ingest, Emitter(RunState(), writer))
        feed.hear(e.Noted(level="info", text="no pull"))
        await end(feed, EVERY_PULLS - 1)
        assert taken == []
        await end(feed, 1)
        assert taken == [100.0]
        now.now = 102.0 + 2.0 * REST - 0.1
        await end(feed, 3 * EVERY_PULLS)
        assert taken == [100.0]
        now.now += 0.2
        await end(feed, 1)
        assert len(taken) == 2
        await feed.finish()
        assert len(taken) == 3, "the ended run is taken in at once"


async def test_one_at_a_time(writer: JournalWriter) -> None:
    release, began = threading.Event(), threading.Event()
    count = 0

    def ingest() -> int:
        nonlocal count
        count += 1
        began.set()
        release.wait(10)
        return 1

    with writer:
        feed = HistoryFeed(ingest, Emitter(RunState(), writer))
        for _ in range(4 * EVERY_PULLS):
            feed.hear(ENDED)
        assert await asyncio.to_thread(began.wait, 10)
        for _ in range(4 * EVERY_PULLS):
            feed.hear(ENDED)
        release.set()
        await feed.settle()
        assert count == 1


async def test_a_failure_is_noted_and_tried_again(now: Clock, writer: JournalWriter) -> None:
    def ingest() -> int:
        raise HistoryError("history.duckdb is held by process 1")

    with writer:
        feed = HistoryFeed(ingest, Emitter(RunState(), writer))
        await end(feed, EVERY_PULLS)
        now.now += 1.0
        await end(feed, EVERY_PULLS)
    notes = read_journal(writer.path)
    assert [note.text for note in notes if isinstance(note, e.Noted)] == [
        "not brought up to date: history.duckdb is held by process 1"
    ] * 2
