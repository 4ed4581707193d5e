"""How long one question is asked again: waits with jitter under a total deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kbtui import clock
from kbtui.generate.llm.chat import Failure

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
MOST_EMPTY = 3
"""Empty replies are paid for, so they are not asked for again as long as a rate limit is waited for."""


@dataclass
class Patience:
    """How long to wait between the attempts at one question, and when to stop: `deadline_s` after the first."""

    deadline_s: float
    jitter: Callable[[], float]
    _began: float = field(default_factory=lambda: clock.monotonic())
    _failures: int = 0
    _empty: int = 0

    def wait_s(self, failure: Failure) -> float | None:
        """Seconds to wait after `failure`: what the provider asked for, or an exponential back-off with jitter; None when
        no further attempt helps or would come in time."""
        if not failure.transient:
            return None
        self._failures += 1
        self._empty += failure.kind == "empty"
        if self._empty >= MOST_EMPTY:
            return None
        backoff = min(FIRST_WAIT_S * 2.0 ** (self._failures - 1), LONGEST_WAIT_S)
        wait = backoff * (0.5 + 0.5 * self.jitter())
        if failure.wait_s is not None:
            wait = max(wait, failure.wait_s)
        return wait if wait < self.left_s() else None

    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline_s - (clock.monotonic() - self._began)
