"""What a pull costs beyond generating and evaluating, and how busy several pulls in flight keep a lane.

`python benchmarks/engine.py [--pulls N] [--write FILE]` prints two tables:

- overhead: real engine, journal (with its fsyncs), fold, policy, clustering and socket; a lane and a generator that answer
  at once. Milliseconds per pull by the wall clock and of processor time, and the processor time of the first
  and last hundred, since a run must not slow down. On a busy machine the wall clock measures its other tenants, and a
  processor may be half as fast as an hour ago: `--beside CHECKOUT` measures an older kbtui in turn.
- busy share: a lane that sleeps for as long as a real one takes; the share of the wall time, from the first pull to the
  last, in which it verifies or times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kbtui.engine.engine import Engine, Parts
from kbtui.engine.run_process import default_parts
from kbtui.engine.spec import RunSpec
from kbtui.evaluate.lane import Evaluated, Lane, LaneFacts, LaneSpec, Report
from kbtui.evaluate.selftest import SelfTest
from kbtui.generate.generator import Generator, Request, Written
from kbtui.problems.folder import find_problem
from kbtui.search.registry import make_policy
from kbtui.state import events as e
from kbtui.state.records import (
    CaseInfo,
    CaseTiming,
    Compilation,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Reading,
    Signature,
    Timing,
    Verification,
)

CASES = tuple(f"rows={rows}" for rows in (1024, 4096, 16384))
TARGET_MS = 5.0
TARGET_SHARE = 0.9


@dataclass
class Pace:
    """How long each step takes, in seconds; and what the lane did."""

    write: float = 0.0
    compile: float = 0.0
    verify: float = 0.0
    time: float = 0.0
    busy: float = 0.0


class PacedLane(Lane):
    """Sleeps, and finds every candidate correct; its speed follows from its number."""

    def __init__(self, spec: LaneSpec, pace: Pace) -> None:
        self._spec, self._pace = spec, pace

    def start(self) -> LaneFacts:
        problem = find_problem(str(self._spec.problem))
        self.facts = LaneFacts(
            device=DeviceInfo(lane="cpu", kind="cpu", name="paced", target="sm_90"),
            timing="measured",
            versions={},
            isolation={},
            problem=ProblemInfo(
                name=problem.name,
                path=str(problem.path),
                entry=problem.entry,
                digest=problem.digest,
                cases=tuple(CaseInfo(name=name, fields={}) for name in CASES),
            ),
        )
        return self.facts

    def compile(self, source: str, report: Report) -> Compilation:
        _sleep(self._pace.compile)
        report("compile", "")
        number = _number(source)
        kernel = KernelFacts(
            name="k",
            target="sm_90",
            registers=32 + number % 64,
            spill_bytes=0,
            shared_bytes=1024 * (number % 16),
            num_warps=4,
            num_stages=3,
            threads=128,
            occupancy_percent=25.0 + number % 50,
            code_digest=f"{number:064x}",
            constants={"BLOCK": 1024},
            cases=CASES,
        )
        return Compilation(ok=True, kernels=(kernel,))

    def verify(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        del source, kernels
        self._work(self._pace.verify)
        report("verify", "")
        return Verification(verdict="correct", stage="boundary", cases_checked=18, error=1e-7, allowed=1e-5)

    def confirm(self, source: str, kernels: tuple[KernelFacts, ...], report: Report) -> Verification:
        return self.verify(source, kernels, report)

    def selftest(self, report: Report) -> SelfTest:
        del report
        return SelfTest(rejected={}, survivors=(), inapplicable=())

    def time(
        self,
        source: str,
        kernels: tuple[KernelFacts, ...],
        baseline: Timing | None,
        baseline_source: str,
        parent: Timing | None,
        report: Report,
    ) -> Evaluated:
        del kernels, baseline_source, parent
        self._work(self._pace.time)
        report("timing", "")
        number = _number(source)
        ratio = 1.0 if baseline is None else 0.5 + (number * 7919 % 1000) / 1000
        cases = tuple(CaseTiming(case=name, ms=1 / ratio, ratio=ratio, floor_ms=0.1) for name in CASES)
        return Evaluated(
            timing=Timing(
                kind="measured",
                verdict="faster" if ratio > 1 else "slower",
                cases=cases,
                ratio=ratio,
                low=ratio,
                high=ratio,
                parent_ratio=ratio,
                pairs=3,
            ),
            signature=Signature(
                sm=Reading(20.0 + number % 50, "ncu"),
                dram=Reading(10.0 + number % 60, "ncu"),
                l2=Reading(30.0, "ncu"),
            ),
        )

    def _work(self, seconds: float) -> None:
        began = time.perf_counter()
        _sleep(seconds)
        self._pace.busy += time.perf_counter() - began

    def cancel(self, source: str | None = None) -> None:
        del source

    def close(self) -> None:
        pass


class PacedGenerator(Generator):
    """Writes versions of softmax that differ in a name."""

    name = "paced"

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._kernel = find_problem("softmax").kernel_source

    def moves(self, source: str, entry: str) -> dict[str, int]:
        del source, entry
        return {"tiling": 9, "vectorization": 9, "pipeline": 9, "reordering": 9}

    async def write(self, request: Request) -> Written:
        if self._pace.write:
            await asyncio.sleep(self._pace.write)
        body = self._kernel.replace("BLOCK", f"BLOCK_{request.pull}")
        source = f"# {request.pull}\n{body}"
        return Written(source=source, move=f"number {request.pull}")


@dataclass
class Watch:
    """When each pull began and ended."""

    begun: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """Processor time of the process at each end."""

    def hear(self, event: e.Event) -> None:
        if isinstance(event, e.Selected):
            self.begun.append(time.perf_counter())
        elif isinstance(event, e.Rewarded):
            self.ended.append(time.perf_counter())
            self.cpu.append(time.process_time())

    @property
    def wall_s(self) -> float:
        return self.ended[-1] - self.begun[0]


def play(pace: Pace, pulls: int, parallel: int, policy: str, *, history: bool) -> Watch:
    """One whole run in this process."""
    ingest = default_parts().ingest if history else lambda: 0
    parts = Parts(
        make_lane=lambda spec: PacedLane(spec, pace),
        make_generator=lambda _: PacedGenerator(pace),
        make_policy=lambda spec: make_policy(spec.policy, spec.policy_parameters),
        ingest=ingest,
        harden=lambda: "off: a benchmark",
    )
    watch = Watch()
    spec = RunSpec(problem="softmax", device="cpu", policy=policy, iterations=pulls, parallel=parallel)
    asyncio.run(Engine(spec, parts, attended=False).run(watch.hear, lambda: None))
    assert len(watch.ended) == pulls, "every pull of these runs is rewarded"
    return watch


def row(policy: str, pulls: int, history: bool) -> str:
    """A run of so many pulls, one at a time, since at once would hide what they cost."""
    before = time.process_time()
    watch = play(Pace(), pulls, 1, policy, history=history)
    cpu, wall = 1e3 * (time.process_time() - before) / pulls, 1e3 * watch.wall_s / pulls
    first, last = (10 * (watch.cpu[to] - watch.cpu[since]) for since, to in ((0, 100), (-101, -1)))
    return f"{pulls:>8}{wall:>10.2f}{cpu:>10.2f}{first:>12.2f}{last:>12.2f}"


def overhead(pulls: int, beside: Path | None) -> Iterator[str]:
    """The table of overheads, each row from a process of its own."""
    yield f"{'policy':<12}{'code':<8}{'pulls':>8}{'wall ms':>10}{'cpu ms':>10}{'first 100':>12}{'last 100':>12}   history"
    here = Path(__file__).resolve().parent.parent
    for policy, history in (("paper", False), ("paper", True), ("ucb", False), ("thompson", False)):
        for name, tree in (("here", here), ("beside", beside)):
            if tree is None:
                continue
            asked = [str(Path(__file__).resolve()), "--row", policy, "--pulls", str(pulls), *["--history"] * history]
            found = subprocess.run(
                [sys.executable, *asked], env=os.environ | {"PYTHONPATH": str(tree.resolve())}, stdout=subprocess.PIPE,
                text=True, check=True,
            ).stdout.rstrip()  # fmt: skip
            yield f"{policy:<12}{name:<8}{found}   {'ingested every 10 pulls' if history else 'no'}"


def loop_ms() -> float:
    """How fast the processor is just now: milliseconds that a million additions take."""
    began, total = time.process_time(), 0
    for number in range(1_000_000):
        total += number
    return 1e3 * (time.process_time() - began)


def busy_share(pulls: int) -> list[str]:
    """The table of busy shares, for a generator that is fast and one that is slower than the lane."""
    lines = [f"{'generator s':>12}{'compile s':>11}{'lane s':>8}{'parallel':>10}{'busy %':>9}{'pulls/s':>9}"]
    for write in (0.02, 0.6):
        for parallel in (1, 2, 4, 8):
            pace = Pace(write=write, compile=0.1, verify=0.1, time=0.15)
            watch = play(pace, pulls, parallel, "paper", history=False)
            baseline = pace.verify + pace.time
            share = (pace.busy - baseline) / watch.wall_s
            lines.append(
                f"{write:>12.2f}{pace.compile:>11.2f}{pace.verify + pace.time:>8.2f}{parallel:>10}{100 * share:>9.1f}"
                f"{pulls / watch.wall_s:>9.2f}"
            )
    return lines


def sync_ms(folder: Path) -> float:
    """Median milliseconds of one small write and fsync, of which a pull has one."""
    times = []
    with (folder / "probe").open("wb") as file:
        for _ in range(50):
            began = time.perf_counter()
            file.write(b"0" * 500)
            file.flush()
            os.fsync(file.fileno())
            times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def _sleep(seconds: float) -> None:
    if seconds:
        time.sleep(seconds)


def _number(source: str) -> int:
    first = source.partition("\n")[0].removeprefix("# ")
    return int(first) if first.isdigit() else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pulls", type=int, default=1000)
    parser.add_argument("--busy-pulls", type=int, default=40)
    parser.add_argument("--beside", type=Path, help="another checkout of kbtui to measure in turn")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--history", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help="also put the tables into this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["KBTUI_HOME"] = home
        import sklearn.cluster  # noqa: F401  (its import is the process's, not a pull's)

        if arguments.row:
            print(row(arguments.row, arguments.pulls, arguments.history))
            return
        lines = [
            f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} cores, load average "
            f"{os.getloadavg()[0]:.1f}, an fsync takes {sync_ms(Path(home)):.1f} ms, a million additions {loop_ms():.0f} ms",
            "",
            f"Overhead of a pull, one at a time (target: under {TARGET_MS:g} ms)",
            *overhead(arguments.pulls, arguments.beside),
            "",
            f"Busy share of the lane (target: {100 * TARGET_SHARE:g} % where the generator is not the bottleneck)",
            *busy_share(arguments.busy_pulls),
        ]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.write is not None:
        arguments.write.parent.mkdir(parents=True, exist_ok=True)
        arguments.write.write_text(text)


if __name__ == "__main__":
    main()
