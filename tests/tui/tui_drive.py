"""Driving the app in tests: open it on scripted events, press keys, read what is on the screen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from textual.pilot import Pilot
from tui_sample import ScriptedFeed

from kbtui.state.events import Event
from kbtui.tui.app import KbtuiApp
from kbtui.tui.terminal import Terminal

SIZES = ((80, 24), (120, 40), (200, 50))
COLOURS = Terminal(ascii=False, colours="many")


@dataclass
class Drive:
    """A running app with its scripted feed."""

    app: KbtuiApp
    pilot: Pilot[int]
    feed: ScriptedFeed

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return screen_lines(self.app)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.settle()

    async def settle(self) -> None:
        """Let a tick pass: what the feed holds is folded and painted."""
        await self.pilot.pause()
        await self.app.tick()
        await self.app.workers.wait_for_complete()
        # a toast goes through two messages and a mount before it is on the screen
        for _ in range(3):
            await self.pilot.pause()

    async def play(self, *events: Event) -> None:
        """Let the run go on."""
        self.feed.waiting.extend(events)
        await self.settle()


def screen_lines(app: KbtuiApp) -> list[str]:
    """The visible lines of the app, as the compositor has them."""
    return [strip.text.rstrip() for strip in app.screen._compositor.render_strips()]


@asynccontextmanager
async def drive(
    events: list[Event],
    size: tuple[int, int] = (120, 40),
    *,
    connected: bool = True,
    read_only: bool = False,
    terminal: Terminal = COLOURS,
    theme: str | None = None,
    **options: Any,
) -> AsyncIterator[Drive]:
    """The app in the cockpit of a run that consists of `events`. `options` are more of KbtuiApp's."""
    feed = ScriptedFeed(events, connected=connected)
    app = KbtuiApp(
        feed.run_id, read_only=read_only, terminal=terminal, theme=theme, make_feed=lambda _: feed, **options
    )
    async with app.run_test(size=size, notifications=True) as pilot:
        driven = Drive(app, pilot, feed)
        await driven.settle()
        yield driven
