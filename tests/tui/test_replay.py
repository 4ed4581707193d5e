"""Replay: the cockpit as it was after any event, with a slider; nothing can be changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from textual.pilot import Pilot
from tui_drive import COLOURS, SIZES, screen_lines, settle
from tui_sample import sample

from kbtui import clock, paths
from kbtui.history.journal import JournalWriter
from kbtui.state import events as e
from kbtui.tui.app import KbtuiApp
from kbtui.tui.replaying import GAP_S, REFUSAL, ReplaySession
from kbtui.tui.screens.candidate import CandidateScreen
from kbtui.tui.screens.home import HomeScreen
from kbtui.tui.screens.replay import ReplayScreen
from kbtui.tui.widgets.tree_view import TreeView


def keep(run_id: str = "run-a", apart_s: float = 2.0) -> list[e.Event]:
    events = [
        msgspec.structs.replace(event, t=1.8e9 + place * apart_s, elapsed=place * apart_s)
        for place, event in enumerate(sample().events)
    ]
    with JournalWriter(paths.journal_file(run_id)) as writer:
        return [writer.append(event) for event in events]


class Replay:
    def __init__(self, app: KbtuiApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def session(self) -> ReplaySession:
        assert isinstance(self.app.session, ReplaySession)
        return self.app.session

    @property
    def text(self) -> str:
        return "\n".join(screen_lines(self.app))

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        await settle(self.app, self.pilot)


@asynccontextmanager
async def replay(size: tuple[int, int] = (120, 40)) -> AsyncIterator[Replay]:
    app = KbtuiApp("run-a", replay=True, terminal=COLOURS)
    async with app.run_test(size=size, notifications=True) as pilot:
        driven = Replay(app, pilot)
        await driven.settle()
        yield driven


@pytest.mark.parametrize("size", SIZES)
async def test_it_opens_at_the_end_and_says_where_that_is(size: tuple[int, int]) -> None:
    events = keep()
    async with replay(size) as r:
        assert isinstance(r.app.screen, ReplayScreen)
        first, _, slider = r.text.splitlines()[:3]
        assert "replay, 30/40 pulls at " in first
        assert f"event {len(events)} of {len(events)}" in slider
        assert "held" in slider
        assert "live" not in first
        assert r.session.state.seq == len(events)


async def test_steps_by_event_and_by_pull() -> None:
    events = keep()
    async with replay() as r:
        await r.press("N")
        assert r.session.state.seq == len(events) - 1
        await r.press("n", "n")
        assert r.session.state.seq == len(events)
        await r.press("left_square_bracket", "left_square_bracket")
        assert f"{r.session.state.pulls_ended}/40 pulls" in r.text
        timeline = r.session.timeline
        assert timeline is not None
        assert timeline.pulls_before() == 29
        assert isinstance(events[timeline.at - 1], e.Rewarded | e.PullDropped)
        await r.press("right_square_bracket")
        assert timeline.pulls_before() == 30
        await r.press("less_than_sign")
        assert timeline.at == 1
        assert "softmax" in r.text
        await r.press("greater_than_sign")
        assert timeline.at == len(events)


async def test_a_pull_is_gone_to_by_its_number_and_a_wrong_one_is_said() -> None:
    keep()
    async with replay() as r:
        await r.press("number_sign", *"31", "enter")
        assert "a pull is a number from 0 to 30" in r.text
        await r.press("backspace", "backspace", *"7", "enter")
        assert isinstance(r.app.screen, ReplayScreen)
        assert "7/40 pulls at" in r.text
        shown = r.app.screen.query_one(TreeView)
        assert len(r.session.state.candidates) < 12
        assert shown.chosen_id == r.session.state.best_id


async def test_going_back_past_what_the_cursor_is_on_keeps_the_tree_whole() -> None:
    keep()
    async with replay((80, 24)) as r:
        await r.press("end", "less_than_sign")
        assert r.session.timeline is not None
        for place in range(len(r.session.timeline), 0, -7):
            r.session.go(place)
            r.app.screen.query_one(TreeView).show_state(r.session.state)
        await r.press("1", "end", "less_than_sign", "greater_than_sign", "end")
        assert "30/40" in r.text


async def test_playing_follows_the_clock_and_cuts_gaps_short(monkeypatch: pytest.MonkeyPatch) -> None:
    events = keep(apart_s=1000.0)
    now = [50.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    async with replay() as r:
        r.session.speed = 10
        await r.press("space")
        assert r.session.playing
        assert "playing 10x" in r.text
        assert "space hold" in r.text
        begin = r.session.state.seq
        assert begin <= 1
        now[0] += GAP_S / 2
        await r.settle()
        assert r.session.state.seq <= begin + 1
        for _ in range(5):
            now[0] += GAP_S + 0.01
            await r.settle()
        assert begin + 4 <= r.session.state.seq <= begin + 7, (
            "one event per gap, though each lies 1,000 s from the next"
        )
        await r.press("space")
        held = r.session.state.seq
        now[0] += 1e6
        await r.settle()
        assert r.session.state.seq == held
        await r.press("plus")
        assert r.session.speed == 30
        await r.press("minus", "minus")
        assert r.session.speed == 5
        await r.press("space")
        for _ in range(len(events)):
            now[0] += 1000.0
            await r.session.advance()
        assert not r.session.playing
        assert r.session.state.seq == len(events)


async def test_nothing_can_be_changed() -> None:
    before = keep()
    async with replay() as r:
        for key in ("f", "b", "p", "s", "Q"):
            await r.press(key)
            assert isinstance(r.app.screen, ReplayScreen)
        assert REFUSAL[:30] in r.text
        assert r.session.state.seq == len(before)
    with JournalWriter(paths.journal_file("run-a")) as writer:
        assert writer.seq == len(before)
    assert not (paths.run_dir("run-a") / "lock").exists()


async def test_a_candidate_opens_and_escape_leads_home() -> None:
    keep()
    async with replay() as r:
        await r.press("enter")
        assert isinstance(r.app.screen, CandidateScreen)
        await r.press("escape", "escape")
        assert isinstance(r.app.screen, HomeScreen)
        assert r.app.session is None
        await r.press("r")
        assert isinstance(r.app.screen, ReplayScreen)


async def test_a_damaged_journal_is_said() -> None:
    paths.run_dir("run-a").mkdir(parents=True)
    paths.journal_file("run-a").write_text("nonsense\n")
    async with replay() as r:
        assert "line 1" in r.text
        await r.press("space", "n", "left_square_bracket", "number_sign", "greater_than_sign")
        assert isinstance(r.app.screen, ReplayScreen)
