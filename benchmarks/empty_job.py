"""What one candidate process costs before it does anything: fork, isolation, a reply, the sweep.

`python benchmarks/empty_job.py [--jobs N]` prints a table: median and 95th percentile in milliseconds for each zygote.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from kbtui.evaluate.job import JobOrder
from kbtui.evaluate.zygotes import Zygote


def refuse(*_: object) -> None:
    """An empty job asks nothing."""


def measure(role: str, scratch: Path, jobs: int) -> list[float]:
    """Milliseconds of each of `jobs` empty jobs, one after another."""
    zygote = Zygote(role, sys.executable, scratch / role)
    try:
        zygote.launch()
        zygote.await_ready()
        order = JobOrder(
            kind="empty", source="", entry="f", problem_folder=scratch, parameters={}, memory_bytes=1 << 30
        )
        times = []
        for _ in range(jobs):
            began = time.perf_counter()
            outcome = zygote.run(order, refuse)
            if outcome.kind != "done":
                raise SystemExit(f"a job failed: {outcome.reason} {outcome.output}")
            times.append(1e3 * (time.perf_counter() - began))
        return times
    finally:
        zygote.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=50)
    jobs = parser.parse_args().jobs
    print(f"{'zygote':<12}{'median ms':>12}{'p95 ms':>12}")
    with tempfile.TemporaryDirectory() as scratch:
        for role in ("interpret", "compile"):
            times = sorted(measure(role, Path(scratch), jobs))
            print(f"{role:<12}{statistics.median(times):>12.1f}{times[int(0.95 * (len(times) - 1))]:>12.1f}")


if __name__ == "__main__":
    main()
