"""Keys one after another: each is wholly done before the next one is looked at.

Textual hands every key at once to whatever has the focus, and a key that the focus does not take bubbles up to find its
binding. So over a link that brings keys in bunches, what is typed after the key that opens a form goes to the screen below,
where letters are actions, and a backspace comes after the letters that were typed after it. Here the next key waits for a
message that follows the one before on its way up.
"""

from __future__ import annotations

import asyncio
from collections import deque

from textual.app import App
from textual.events import Event, Key, Paste
from textual.message import Message

STUCK_S = 1.0
"""A key whose end nobody tells (its widget is gone) holds the others no longer."""
LOOK_S = 0.01
"""How often a screen that is being made is looked at."""


class KeyDone(Message):
    """Follows a key through the same queues: when it is back at the app, the key has been dealt with."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeysInTurn(App[int]):
    """Deals with keys, and with what is pasted, in their order."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # Textual's own options, passed on
        self._keys: deque[Key | Paste] = deque()
        self._key_number = 0
        self._key_end: asyncio.TimerHandle | None = None
        """The end of the wait for the key that is being dealt with; None when none is."""

    @property
    def takes_keys(self) -> bool:
        """Whether the top screen is made, so that a key finds its focus."""
        return True

    async def on_event(self, event: Event) -> None:
        if isinstance(event, Key | Paste) and not event.is_forwarded:
            self._keys.append(event)
            await self._go_on_with_keys()
        else:
            await super().on_event(event)

    async def _go_on_with_keys(self) -> None:
        while self._keys and self._key_end is None:
            self._key_number += 1
            if not self.takes_keys:
                self._wait(LOOK_S)
                return
            event = self._keys.popleft()
            await super().on_event(event)
            if event.is_forwarded:
                self._wait(STUCK_S)
                (self.focused or self.screen).post_message(KeyDone(self._key_number))

    def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._key_end = loop.call_later(seconds, self.post_message, KeyDone(self._key_number))

    async def on_key_done(self, message: KeyDone) -> None:
        """Go on with the next key; a message that comes after its time was up says nothing new."""
        message.stop()
        if message.number == self._key_number and self._key_end is not None:
            self._key_end.cancel()
            self._key_end = None
            await self._go_on_with_keys()
