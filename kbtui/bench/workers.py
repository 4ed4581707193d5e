"""Several kernels at a time: processes that run the same command, each as one worker of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

GRACE_S = 60.0
"""For a worker that was interrupted to end its run in good order."""


def run_workers(count: int, arguments: Sequence[str]) -> int:
    """Run this command line `count` times as workers and wait for them; how many failed. Each has said why on stderr.

    An interrupt is passed on to them, and raised once they have ended.
    """
    command = [sys.executable, "-m", "kbtui", *arguments]
    workers = [
        subprocess.Popen(
            [*command, "--worker", f"{number}/{count}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's Ctrl-C would reach them twice
        )
        for number in range(1, count + 1)
    ]
    try:
        return sum(worker.wait() != 0 for worker in workers)
    except KeyboardInterrupt:
        for worker in workers:
            worker.send_signal(signal.SIGINT)
        raise
    finally:
        for worker in workers:
            try:
                worker.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def in_turn(problems: dict[str, Path], index: int, count: int) -> dict[str, Path]:
    """All problems, those of one worker's own share first: who is done with his own takes over from the others."""
    own = {name: path for at, (name, path) in enumerate(problems.items()) if at % count == index - 1}
    return {**own, **problems}


def of_worker(devices: Sequence[str], number: int) -> str:
    """The device of a worker, numbered from 1: they share the devices evenly. Several lanes on the processors are one device."""
    device = devices[(number - 1) % len(devices)]
    return "cpu" if device.startswith("cpu") else device
