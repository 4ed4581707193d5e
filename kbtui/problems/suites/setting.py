"""What surrounds a suite's code in the process that runs it. The oracle sets it before it loads a problem."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Setting:
    """`pretend()` is entered around everything of a suite: where there is no GPU, it makes torch answer as on one.
    `loaded()` is called once a suite's kernel was imported, before any of it is called."""

    pretend: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    loaded: Callable[[], None] = lambda: None


NO_KERNEL = "kernel.py cannot be imported here"
"""How the sentence begins when a suite's kernel needs another machine than this one: on that one it may do."""

SETTING = Setting()
"""Of this process."""
