"""How much a cockpit sends by itself: a budget of bytes, so that a busy run costs no more of a link than a calm one.

Each tick may spend what the rate has let in since; a burst is free up to what was saved. When more was sent, panes wait
for a tick or a few, never longer than `LONGEST_S`, and then show the newest state. What a person's key paints is counted
and never held back.
"""

from __future__ import annotations

BASE_RATE = 2150.0
CELL_RATE = 0.71
"""Bytes per second, and per second and cell of the screen: 3.5 KB/s at 80x24 and 9.3 KB/s at 200x50. A tenth less than a run
may cost, since the header and what a person asks for come on top."""
SAVED_S = 4.0
"""Seconds of the rate that can be saved up."""
LONGEST_S = 2.5
"""Debt is forgiven beyond so many seconds of the rate; and nobody waits longer, whoever else keeps sending."""


class Pace:
    """The budget of one terminal. `share` scales the rate."""

    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self._left: float | None = None
        self._sent = 0
        self._at = 0.0
        self._painted = 0.0

    def may_paint(self, now: float, sent: int, cells: int) -> bool:
        """Whether panes may be painted at this tick. `now` is monotonic, `sent` all bytes sent so far."""
        rate = (BASE_RATE + CELL_RATE * cells) * self._share
        if self._left is None:
            self._left = SAVED_S * rate  # the first screen is not held against the run
        else:
            self._left += rate * (now - self._at) - (sent - self._sent)
            self._left = max(-LONGEST_S * rate, min(self._left, SAVED_S * rate))
        self._at, self._sent = now, sent
        if self._left < 0 and now - self._painted < LONGEST_S:
            return False
        self._painted = now
        return True
