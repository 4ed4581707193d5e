"""How fast a provider is asked."""

from __future__ import annotations

import asyncio

import pytest

from kbtui import clock
from kbtui.generate.llm.pace import Pace


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only sleeping moves, to the end of the sleep."""
    at = [100.0]

    async def sleep(seconds: float) -> None:
        at[0] = max(at[0], at[0] + seconds)

    monkeypatch.setattr(clock, "monotonic", lambda: at[0])
    monkeypatch.setattr("kbtui.generate.llm.pace.asyncio.sleep", sleep)
    return at


async def begins(pace: Pace, count: int, waits: list[str] | None = None) -> list[float]:
    found = []
    for _ in range(count):
        async with pace.turn(lambda seconds, why: waits.append(why) if waits is not None else None):
            found.append(clock.monotonic())
    return found


async def test_so_many_requests_a_minute(now: list[float]) -> None:
    waits: list[str] = []
    assert await begins(Pace(4, 30), 4, waits) == [100.0, 102.0, 104.0, 106.0]
    assert waits == ["the limit of requests a minute"] * 3


async def test_without_a_limit_nothing_waits(now: list[float]) -> None:
    assert await begins(Pace(4, 0), 5) == [100.0] * 5


async def test_what_one_request_was_told_holds_for_all(now: list[float]) -> None:
    pace = Pace(4, 0)
    pace.hold(7.0)
    waits: list[str] = []
    assert await begins(pace, 2, waits) == [107.0, 107.0]
    assert waits == ["the provider asked to wait"]
    pace.hold(-5.0)
    assert await begins(pace, 1) == [107.0]


async def test_no_more_at_a_time_than_there_are_places() -> None:
    pace = Pace(3, 0)
    most = 0

    async def one() -> None:
        nonlocal most
        async with pace.turn(lambda *_: None):
            most = max(most, pace.in_flight)
            await asyncio.sleep(0)

    await asyncio.gather(*(one() for _ in range(12)))
    assert (most, pace.in_flight) == (3, 0)


async def test_a_turn_that_is_cancelled_is_given_back() -> None:
    pace = Pace(1, 0)
    async with pace.turn(lambda *_: None):
        waiting = asyncio.create_task(begins(pace, 1))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    assert len(await begins(pace, 1)) == 1
