"""The one clock. Everything that needs the time of day or a duration asks here, so that tests can set it."""

from __future__ import annotations

import time
from collections.abc import Callable

wall: Callable[[], float] = time.time
"""Seconds since the epoch; may jump."""

monotonic: Callable[[], float] = time.monotonic
"""Seconds from an arbitrary start; never jumps back. Use it for every duration and deadline."""
