"""Where the reference is a kernel itself: how it is run in the oracle's process, and how far it agrees with itself.

Without a GPU it runs under Triton's interpreter, which is bound when triton is imported: `prepare` comes before the
problem is loaded.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kbtui.evaluate.inlane.compare import compare
from kbtui.problems.suites.setting import SETTING

RUNS = 3
"""Runs of such a reference on a GPU, where atomics and races may make each another one. The interpreter has no chance in it."""


def prepare(device: str, pretend: dict[str, Any] | None) -> None:
    """Make this process fit to run a reference that is a kernel. `pretend` is {"properties", "capability"} of the device that
    a CPU plays."""
    if device != "cpu":
        SETTING.loaded = lambda: torch.cuda.set_device(device)  # Triton launches on the current one
        return
    os.environ["TRITON_INTERPRET"] = "1"
    if pretend:
        from kbtui.evaluate.inlane.pretend import pretending

        capability = (int(pretend["capability"][0]), int(pretend["capability"][1]))
        SETTING.pretend = lambda: pretending(pretend["properties"], capability)
    SETTING.loaded = _guard


@functools.cache
def _guard() -> None:
    """Check addresses from now on: a kernel that is wrong on a case must not end the oracle. Once for the process."""
    from kbtui.evaluate.inlane import interpret

    interpret.install()


def spread(first: Sequence[torch.Tensor], run: Callable[[], Sequence[torch.Tensor]], device: str) -> list[float]:
    """By output, the largest error of further runs against the first one; infinite where a run gives other shapes."""
    worst = [0.0] * len(first)
    for _ in range(0 if device == "cpu" else RUNS - 1):
        again = run()
        if [one.shape for one in again] != [one.shape for one in first]:
            return [float("inf")] * len(first)
        pairs = zip(again, first, strict=True)
        worst = [max(old, compare(new, right, 0.0).error) for old, (new, right) in zip(worst, pairs, strict=True)]
    return worst
