"""Seconds that one candidate costs, by stage, for every bundled problem; beside a plain pipeline of three fresh processes.

    python benchmarks/evaluate.py                          the cpu lane: values by the interpreter, times modelled
    python benchmarks/evaluate.py --device cuda:0          the same on a GPU, and the sweeps of sizes
    python benchmarks/evaluate.py --output results/x.md    also written as a table

A candidate is what the rewrite generator's first tiling move makes of the baseline; of a problem that ends with "a gain" it is
one that is known to be faster. The plain pipeline is what evaluating by
hand comes to: one process that imports, one that compares with the reference by allclose, one that times; each imports
torch and triton anew. It checks much less: one shape, one draw of values, no isolation.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kbtui.evaluate.lane import Lane, LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.problems.folder import ProblemFolder, bundled, find_problem
from kbtui.state.records import Timing

T = TypeVar("T")
SWEEPS = {
    "vector_add": [f'Case(n=1 << {power}, dtype="float32")' for power in range(12, 28)],
    "softmax": [f'Case(rows=4096, cols={cols}, dtype="float32")' for cols in (256, 512, 1024, 2048, 4096, 8192, 12288)],
}
"""Sizes of the published pipeline's own runs, for a GPU."""
GAINS = {"softmax": ("num_warps=8", "num_warps=4")}
"""Changes of a baseline that are faster on an H200, for what a winner costs."""
PLAIN = """
import sys, time
sys.path.insert(0, {folder!r})
import torch, triton
import kernel
if {stage!r} == "import":
    sys.exit(0)
import problem
case = problem.cases[0]
small = case.replace(**{{name: min(value, 64) for name, value in case.fields.items() if type(value) is int}})
given = problem.make_inputs(small if {device!r} == "cpu" else case, torch.Generator({device!r}).manual_seed(0), {device!r})
entry = getattr(kernel, problem.entry)
if {stage!r} == "compare":
    right = problem.reference(*given)
    sys.exit(0 if torch.allclose(entry(*given).double(), right.double(), rtol=2e-2, atol=2e-2) else 1)
for _ in range(3):
    entry(*given)
"""


@dataclass
class Row:
    """Seconds of one candidate, the median of the rounds."""

    problem: str
    stages: dict[str, list[float]] = field(default_factory=dict)
    plain: float | None = None
    verdict: str = ""

    def add(self, stage: str, seconds: float) -> None:
        self.stages.setdefault(stage, []).append(seconds)

    def median(self, stage: str) -> float:
        return statistics.median(self.stages[stage])

    @property
    def total(self) -> float:
        return sum(self.median(stage) for stage in ("compile", "verify", "time"))


def quiet(stage: str, text: str) -> None:
    """A report that goes nowhere."""


def clocked(row: Row, stage: str, job: Callable[[], T]) -> T:
    began = time.perf_counter()
    result = job()
    row.add(stage, time.perf_counter() - began)
    return result


def a_candidate(problem: ProblemFolder) -> str:
    """The baseline after the first tiling move, or as it is under a comment where there is none; or a known gain."""
    name, _, kind = problem.name.partition("_a_")
    if kind == "gain":
        return problem.kernel_source.replace(*GAINS[name])
    module = KernelModule(problem.kernel_source, problem.entry)
    options = RewriteGenerator().options(module, "tiling")
    return options[0].move.apply(module, options[0].site) if options else problem.kernel_source + "\n# again\n"


@contextmanager
def started(problem: ProblemFolder, device: str, row: Row) -> Iterator[tuple[Lane, Timing]]:
    """A lane whose baseline is judged, and the baseline's timing; "start" counts both."""
    with tempfile.TemporaryDirectory(prefix="kbtui-benchmark-") as scratch:
        began = time.perf_counter()
        place = Path(scratch) / "lane"
        lane = open_lane(LaneSpec(problem=problem.path, device=device, python=sys.executable, scratch=place))
        try:
            lane.start()
            source = problem.kernel_source
            compiled = lane.compile(source, quiet)
            found = lane.verify(source, compiled.kernels, quiet)
            if not compiled.ok or found.verdict != "correct":
                sys.exit(f"{problem.name}: the baseline is {found.verdict} ({compiled.reason or found.reason})")
            baseline = lane.time(source, compiled.kernels, None, source, None, quiet).timing
            row.add("start", time.perf_counter() - began)
            yield lane, baseline
        finally:
            lane.close()


def judge(lane: Lane, problem: ProblemFolder, baseline: Timing, source: str, row: Row) -> None:
    """One candidate through all stages, the hidden one included, which only a new best meets."""
    compiled = clocked(row, "compile", lambda: lane.compile(source, quiet))
    verified = clocked(row, "verify", lambda: lane.verify(source, compiled.kernels, quiet))
    row.verdict = verified.verdict
    timed = clocked(
        row, "time", lambda: lane.time(source, compiled.kernels, baseline, problem.kernel_source, baseline, quiet)
    )
    row.verdict += f", {timed.timing.verdict}"
    clocked(row, "hidden", lambda: lane.confirm(source, compiled.kernels, quiet))
    broken = source.replace("tl.store(", "tl.no_such_thing(", 1)
    clocked(row, "not compiling", lambda: lane.compile(broken, quiet))


def plain_pipeline(problem: ProblemFolder, source: str, device: str) -> float | None:
    """Seconds of the three processes; None when one of them fails."""
    with tempfile.TemporaryDirectory(prefix="kbtui-benchmark-") as folder:
        (Path(folder) / "kernel.py").write_text(source)
        (Path(folder) / "problem.py").write_text(problem.problem_file.read_text())
        began = time.perf_counter()
        for stage in ("import", "compare", "time"):
            code = PLAIN.format(folder=folder, stage=stage, device=device.partition(":")[0])
            command = [sys.executable, "-c", code]
            environment = {"TRITON_INTERPRET": "1"} if device == "cpu" and stage != "import" else {}
            done = subprocess.run(command, env={**_environment(), **environment}, capture_output=True, check=False)
            if done.returncode:
                return None
        return time.perf_counter() - began


def _environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}


def sweeps(folder: Path) -> Iterator[ProblemFolder]:
    """The bundled problems with the published pipeline's sizes as cases, and those with known gains, in folders of their own."""
    for name, cases in SWEEPS.items():
        problem = find_problem(name)
        place = folder / f"{name}_{len(cases)}"
        place.mkdir()
        (place / "kernel.py").write_text(problem.kernel_source)
        text = problem.problem_file.read_text()
        (place / "problem.py").write_text(f"{text}\n\ncases = [{', '.join(cases)}]\n")
        yield find_problem(str(place))
    for name in GAINS:
        problem = find_problem(name)
        place = folder / f"{name}_a_gain"
        shutil.copytree(problem.path, place)
        yield find_problem(str(place))


def measure(problem: ProblemFolder, device: str, rounds: int) -> Row:
    row = Row(problem.name)
    source = a_candidate(problem)
    with started(problem, device, row) as (lane, baseline):
        for number in range(rounds):
            judge(lane, problem, baseline, f"{source}\n# round {number}\n", row)
    row.plain = plain_pipeline(problem, source, device)
    return row


def table(rows: list[Row]) -> str:
    stages = ("compile", "verify", "time", "hidden", "not compiling", "start")
    head = ["problem", "candidate", *stages, "plain pipeline", "verdict"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        plain = f"{row.plain:.1f}" if row.plain is not None else "failed"
        cells = [f"{row.total:.2f}", *(f"{row.median(stage):.2f}" for stage in stages)]
        lines.append([row.problem, *cells, plain, row.verdict])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--problems", nargs="*", default=bundled())
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="kbtui-benchmark-") as folder:
        problems = [find_problem(name) for name in given.problems]
        if given.device != "cpu":
            problems += sweeps(Path(folder))
        for problem in problems:
            rows.append(measure(problem, given.device, given.rounds))
            print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    text = f"Seconds per candidate on {given.device}, medians of {given.rounds}.\n\n{table(rows)}"
    print(text)
    if given.output is not None:
        given.output.write_text(text)


if __name__ == "__main__":
    main()
