"""What a lane on a GPU costs besides judging: starting, starting again, what hangs, and the memory of its processes.

    python benchmarks/lane_life.py [--output results/x.md]

A lane is started twice (the second time with everything in the page cache and the device's peaks known), loses its zygotes and
its oracle to SIGKILL, and meets a kernel that never ends. What is timed is what comes next: a verification of the
baseline, or of another candidate.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kbtui.evaluate.cuda import CudaLane
from kbtui.evaluate.lane import LaneSpec
from kbtui.problems.folder import find_problem

DEADLINE_S = 8.0
STORE = "    tl.store(out_ptr"
HANGS = f"    while tl.load(out_ptr, volatile=True) != 12345.0:\n        pass\n{STORE}"
"""A loop that reads: one that does nothing is removed by the compiler."""


def quiet(stage: str, text: str) -> None:
    """A report that goes nowhere."""


class Rows:
    """Lines of the table."""

    def __init__(self) -> None:
        self.lines = ["| what | seconds |", "| --- | --- |"]

    def add(self, what: str, value: str) -> None:
        self.lines.append(f"| {what} | {value} |")
        print(f"{what}: {value}", file=sys.stderr, flush=True)

    @contextmanager
    def clocked(self, what: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.add(what, f"{time.perf_counter() - began:.2f}")


def descendants(pid: int) -> list[int]:
    """Processes below `pid`, those that still are."""
    found: list[int] = []
    todo = [pid]
    while todo:
        try:
            children = Path(f"/proc/{todo[0]}/task/{todo[0]}/children").read_text().split()
        except OSError:
            children = []
        todo = [*todo[1:], *map(int, children)]
        found += map(int, children)
    return found


def memory_mib(pid: int) -> float:
    """Proportional memory of the processes below `pid`: what several share counts once over all of them."""
    total = 0
    for one in descendants(pid):
        try:
            text = Path(f"/proc/{one}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


class Watch(threading.Thread):
    """The most memory that the lane's processes took while a block ran."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0
        self._stop_it = threading.Event()

    def run(self) -> None:
        while not self._stop_it.wait(0.1):
            self.most = max(self.most, memory_mib(os.getpid()))

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_it.set()
        self.join()


def checked(lane: CudaLane, source: str) -> str:
    """Compile and verify; the verdict."""
    compiled = lane.compile(source, quiet)
    return lane.verify(source, compiled.kernels, quiet).verdict if compiled.ok else compiled.reason


def stages_of_the_start(rows: Rows, start: Callable[[], object], lane: CudaLane) -> None:
    """Start a lane and say where its seconds go."""
    spent: dict[str, float] = {}

    def clocked(name: str, of: object, method: str) -> None:
        inner = getattr(of, method)

        def timed(*arguments: object, **named: object) -> object:
            began = time.perf_counter()
            try:
                return inner(*arguments, **named)
            finally:
                spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

        setattr(of, method, timed)

    clocked("waiting for the zygote of the device", lane._jobs.zygote, "await_ready")
    clocked("then for the compilers", lane._compilers, "await_ready")
    clocked("a look at the device", lane._jobs, "look")
    clocked("waiting for the oracle, and the problem", lane._oracle, "open")
    clocked("its isolation", lane._jobs, "isolation")
    clocked("from device to device", lane._jobs, "rehearse")
    with rows.clocked("start of a lane, everything in the page cache"):
        start()
    for name, seconds in spent.items():
        rows.add(f"of which {name}", f"{seconds:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    problem = find_problem("softmax")
    rows = Rows()
    with tempfile.TemporaryDirectory(prefix="kbtui-benchmark-") as folder:

        def made(name: str) -> CudaLane:
            scratch = Path(folder) / name
            spec = LaneSpec(
                problem=problem.path, device=given.device, python=sys.executable, scratch=scratch, deadline_s=DEADLINE_S
            )
            return CudaLane(spec)

        lane = made("first")
        with rows.clocked("start of the first lane, peaks of the device measured"):
            lane.start()
        with rows.clocked("its end"):
            lane.close()
        lane = made("second")
        try:
            stages_of_the_start(rows, lane.start, lane)
            life(rows, lane, problem.kernel_source)
        finally:
            lane.close()
    text = "\n".join(rows.lines) + "\n"
    print(text)
    if given.output is not None:
        given.output.write_text(text)


def life(rows: Rows, lane: CudaLane, source: str) -> None:
    """What happens to a lane, and how long the next verification takes then."""
    rows.add("MiB of its processes at rest", f"{memory_mib(os.getpid()):.0f}")
    with Watch() as watch:
        compiled = lane.compile(source, quiet)
        lane.verify(source, compiled.kernels, quiet)
        baseline = lane.time(source, compiled.kernels, None, source, None, quiet).timing
    rows.add("MiB at most while the baseline is judged", f"{watch.most:.0f}")
    candidate = source.replace("num_warps=8", "num_warps=4")
    compiled = lane.compile(candidate, quiet)
    with Watch() as watch:
        lane.verify(candidate, compiled.kernels, quiet)
        lane.time(candidate, compiled.kernels, baseline, source, baseline, quiet)
    rows.add("MiB at most while a candidate is verified and timed", f"{watch.most:.0f}")
    usual = []
    for number in range(3):
        began = time.perf_counter()
        checked(lane, f"{candidate}\n# {number}\n")
        usual.append(time.perf_counter() - began)
    rows.add("compile and verify, as usual", f"{statistics.median(usual):.2f}")
    for name, pid in (
        ("the zygote of the device", lane._jobs.zygote.pid),
        ("the compiler", lane._compilers.pids[0]),
        ("the oracle", lane._oracle.pid),
    ):
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with rows.clocked(f"the same after SIGKILL for {name}"):
            first = checked(lane, f"{candidate}\n# after {name}\n")
        if first != "correct":
            with rows.clocked(f"which was {first}; once more"):
                rows.add("verdict", checked(lane, f"{candidate}\n# after {name}, again\n"))
    began = time.perf_counter()
    found = checked(lane, source.replace(STORE, HANGS))
    rows.add(
        f"a kernel that never ends: {found}, seconds beyond {DEADLINE_S:g}",
        f"{time.perf_counter() - began - DEADLINE_S:.2f}",
    )
    with rows.clocked("compile and verify after it"):
        rows.add("verdict", checked(lane, f"{candidate}\n# after a hang\n"))


if __name__ == "__main__":
    main()
