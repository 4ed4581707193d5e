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
LOOKS = 20
"""At most so many looks at a screen that does not stand still."""


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
        await settle(self.app, self.pilot)

    async def play(self, *events: Event) -> None:
        """Let the run go on."""
        self.feed.waiting.extend(events)
        await self.settle()


async def settle(app: KbtuiApp, pilot: Pilot[int]) -> None:
    """Wait until a whole tick has passed, no worker works, and three looks at the screen find the same.

    A fixed number of pauses is not enough where others want the processor: a layout, a toast or what is painted after a
    refresh takes one more. A screen that never stands still (a run that plays) is looked at `LOOKS` times.
    """
    await pilot.pause()
    while (
        app.session is not None and app.session.advancing
    ):  # the timer's tick is in the middle: another one would do nothing and return at once
        await pilot.pause(0.001)
    await app.tick()
    await app.workers.wait_for_complete()
    await pilot.pause()
    seen, same = screen_lines(app), 0
    for _ in range(LOOKS):
        await pilot.pause()
        before, seen = seen, screen_lines(app)
        same = same + 1 if seen == before and not app.screen._layout_required else 0
        if same == 2:
            return


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
