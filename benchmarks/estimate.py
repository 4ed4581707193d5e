"""Whether the estimate of the `cpu` lane ranks versions as measurements do: Spearman's rank correlation on measured grids.

    python benchmarks/measure_grids.py softmax matmul ... --device cuda:0      # on a GPU: what the points take
    python benchmarks/estimate.py --points 60 --save estimate-sm_90            # anywhere: what the model says of them

For every measured grid in benchmarks/grids/ the sources of its points are made again, move by move, compiled for the grid's
target and estimated by the `cpu` lane. The correlation is between estimated and measured speed over the points that were
correct on the device; 1 is the same order, 0 none. Its interval is by Fisher's transformation with the error of Bonett and
Wright (2000). A problem under 0.3 is named: its estimate does not rank. `--points` draws some where a grid has many, with a seed.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from offline.grid import Grid, read_grid

from kbtui.errors import KbtuiError
from kbtui.evaluate.lane import LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.generate.moves.registry import all_moves
from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.problems.folder import find_problem
from kbtui.state.records import STRATEGIES, Timing

HERE = Path(__file__).parent
RANKS = 0.3
"""Under this an estimate does not rank."""
AIM = 0.6
"""What the median over the problems should reach."""


@dataclass(frozen=True)
class Found:
    problem: str
    target: str
    points: int
    correlation: float
    low: float
    high: float


def sources(grid: Grid, baseline: str, entry: str) -> list[str | None]:
    """The source of every point, made again from the baseline by the titles of its moves; None where this kbtui offers no
    such move any more."""
    known = {move.name: move for move in all_moves()}
    generator = RewriteGenerator([known[name] for name in grid.moves if name in known])
    modules: dict[int, KernelModule] = {}
    found: list[str | None] = []
    for point in grid.points:
        if point.made is None:
            found.append(baseline)
            continue
        above, title = point.made
        parent = found[above]
        if parent is None:
            found.append(None)
            continue
        module = modules.setdefault(above, KernelModule(parent, entry))
        options = (option for strategy in STRATEGIES for option in generator.options(module, strategy))
        option = next((one for one in options if one.title == title), None)
        found.append(option.move.apply(module, option.site) if option is not None else None)
    return found


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation, equal values at the mean of their ranks; NaN for fewer than two points or where one side does not
    vary."""
    if len(pairs) < 2:
        return math.nan
    one, other = ranks([a for a, _ in pairs]), ranks([b for _, b in pairs])
    mean = (len(pairs) + 1) / 2
    cross = sum((a - mean) * (b - mean) for a, b in zip(one, other, strict=True))
    spread = math.sqrt(sum((a - mean) ** 2 for a in one) * sum((b - mean) ** 2 for b in other))
    return cross / spread if spread else math.nan


def ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            found[index] = (start + end) / 2 + 1
        start = end + 1
    return found


def interval(correlation: float, points: int) -> tuple[float, float]:
    """95 %; (-1, 1) where there are too few points to tell."""
    if points < 4 or not abs(correlation) < 1:
        return (-1.0, 1.0) if points < 4 else (correlation, correlation)
    half = 1.96 * math.sqrt((1 + correlation**2 / 2) / (points - 3))
    return math.tanh(math.atanh(correlation) - half), math.tanh(math.atanh(correlation) + half)


def judged(grid: Grid, arguments: argparse.Namespace) -> Found:
    """Estimates of a grid's points beside what was measured. Raises KbtuiError."""
    problem = find_problem(grid.problem)
    if problem.digest != grid.digest:
        raise SystemExit(f"{grid.problem} has changed since its grid was measured: measure it again")
    made = sources(grid, problem.kernel_source, problem.entry)
    able = [n for n, point in enumerate(grid.points) if point.speed is not None and made[n] is not None and n]
    if len(able) > arguments.points:
        able = sorted(random.Random(arguments.seed).sample(able, arguments.points))
    pairs: list[tuple[float, float]] = []
    baseline: Timing | None = None
    with tempfile.TemporaryDirectory() as scratch:
        spec = LaneSpec(
            problem=problem.path, device="cpu", target=grid.device.target, python=arguments.python,
            scratch=Path(scratch) / "lane",
        )  # fmt: skip
        lane = open_lane(spec)
        try:
            lane.start()
            for done, number in enumerate([0, *able]):
                source = made[number]
                assert source is not None
                compilation = lane.compile(source, _quiet)
                if compilation.ok:
                    timing = lane.time(
                        source, compilation.kernels, baseline, problem.kernel_source, None, _quiet
                    ).timing
                    baseline = baseline or timing
                    estimate = 1.0 if number == 0 else timing.estimate
                    if estimate is not None:
                        pairs.append((estimate, grid.points[number].speed or 0.0))
                print(f"\r{grid.problem}: {done + 1} of {len(able) + 1}", end="", file=sys.stderr, flush=True)
        finally:
            lane.close()
            print(file=sys.stderr)
    correlation = spearman(pairs)
    low, high = interval(correlation, len(pairs))
    return Found(grid.problem, grid.device.target, len(pairs), correlation, low, high)


def _quiet(stage: str, text: str) -> None:
    """Nobody watches."""


def table(found: Sequence[Found]) -> Iterator[str]:
    yield "| problem | target | points | Spearman | 95 % | |"
    yield "| --- | --- | ---: | ---: | --- | --- |"
    for one in found:
        note = "" if one.correlation >= RANKS else "the estimate does not rank"
        yield (
            f"| {one.problem} | {one.target} | {one.points} | {one.correlation:.2f} | {one.low:.2f} to {one.high:.2f} "
            f"| {note} |"
        )
    known = sorted(one.correlation for one in found if not math.isnan(one.correlation))
    if known:
        middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
        yield f"| median | | | {middle:.2f} | | aim {AIM} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grids", type=Path, default=HERE / "grids", help="the folder of the grids")
    parser.add_argument("--points", type=int, default=60, help="most points of a grid")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--save", help="also write the table to benchmarks/results/NAME.md")
    arguments = parser.parse_args()
    grids = [grid for path in sorted(arguments.grids.glob("*.json")) if (grid := read_grid(path)).timing == "measured"]
    if not grids:
        raise SystemExit(
            f"no measured grid in {arguments.grids}: on a machine with a GPU, run python benchmarks/measure_grids.py "
            "PROBLEM --device cuda:0"
        )
    try:
        lines = list(table([judged(grid, arguments) for grid in grids]))
    except KbtuiError as error:
        raise SystemExit(str(error)) from None
    text = "\n".join(lines) + "\n"
    print(text, end="")
    if arguments.save:
        (HERE / "results" / f"{arguments.save}.md").write_text(f"# How the estimate ranks\n\n{text}")


if __name__ == "__main__":
    main()
