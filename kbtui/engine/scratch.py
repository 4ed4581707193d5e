"""The scratch folder of a run's lanes, on a local disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbtui import paths
from kbtui.evaluate.scratch import SUFFIX, YOUNG_S, owned, sweep

__all__ = ["YOUNG_S", "scratch", "sweep"]


@contextmanager
def scratch(run_id: str) -> Iterator[Path]:
    """A path for the lane of a run, in a folder that is this process's during the block and gone after it. The caller
    holds the run's lock."""
    with owned(paths.socket_file(run_id).with_suffix(SUFFIX)) as folder:
        yield folder / "lane"
