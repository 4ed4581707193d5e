"""Judge the full product of a problem's parameter moves, for benchmarks/policies.py to play policies on.

    python benchmarks/measure_grids.py softmax rms_norm --device cuda:0
    python benchmarks/measure_grids.py softmax --device cpu --points 40      # modelled, and marked so

From the baseline every parameter move of the `rewrite` generator is made, and again from what comes of it, until nothing
new comes or `--points` is reached. Each version goes through a lane as a candidate of a run does: compiled, verified, timed
against the baseline. One JSON file per problem goes to benchmarks/grids/ (offline/grid.py says what is in it). About 1.5 s
a point on a `cuda` lane. Times from a `cpu` lane are estimates; no default is chosen by them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from offline.grid import FORMAT, Grid, Point, unconnected, write_grid

from kbtui.evaluate.lane import Lane, LaneFacts, LaneSpec
from kbtui.evaluate.lanes import open_lane
from kbtui.generate.digest import syntax_digest
from kbtui.generate.moves.move import Move
from kbtui.generate.moves.registry import all_moves
from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.problems.folder import ProblemFolder, find_problem
from kbtui.state.records import STRATEGIES, Reading, ReadingSource, Strategy, Timing

MOVES = ("block_size", "fewer_warps", "more_warps", "launch_stages", "loop_stages", "group_size", "looped_row")
"""Parameter moves, which a later one can take back, so that points are reached both ways; and the one that gives a kernel
of whole rows a block size and stages, without which it would have its number of warps alone."""
GRIDS = Path(__file__).parent / "grids"


class Product:
    """The versions that parameter moves make of a baseline, in the order in which they are found, and the moves between them."""

    def __init__(self, source: str, entry: str, moves: list[Move], limit: int) -> None:
        self.sources = [source]
        self.made: list[tuple[int, str] | None] = [None]
        self.edges: list[tuple[int, Strategy, int]] = []
        self.complete = True
        generator = RewriteGenerator(moves)
        numbers = {syntax_digest(source): 0}
        current = 0
        while current < len(self.sources):
            for strategy, title, new in _children(generator, self.sources[current], entry):
                digest = syntax_digest(new)
                if digest not in numbers:
                    if len(self.sources) >= limit:
                        self.complete = False
                        continue
                    numbers[digest] = len(self.sources)
                    self.sources.append(new)
                    self.made.append((current, title))
                if numbers[digest] != current:
                    self.edges.append((current, strategy, numbers[digest]))
            current += 1


def _children(generator: RewriteGenerator, source: str, entry: str) -> Iterator[tuple[Strategy, str, str]]:
    module = KernelModule(source, entry)
    for strategy in STRATEGIES:
        for option in generator.options(module, strategy):
            yield strategy, option.title, option.move.apply(module, option.site)


class Judge:
    """One lane and the baseline's timing on it."""

    def __init__(self, lane: Lane, baseline: str) -> None:
        self._lane, self._source = lane, baseline
        self._baseline: Timing | None = None
        self.readings: ReadingSource = "unknown"
        """Who read the signatures."""

    def point(self, source: str, made: tuple[int, str] | None) -> Point:
        """The judged version; the baseline comes first."""
        compilation = self._lane.compile(source, _quiet)
        if not compilation.ok:
            return Point(made=made, failed=compilation.reason or "does not compile")
        verified = self._lane.verify(source, compilation.kernels, _quiet)
        if verified.verdict != "correct":
            return Point(made=made, failed=f"{verified.verdict}: {verified.reason}")
        evaluated = self._lane.time(source, compilation.kernels, self._baseline, self._source, None, _quiet)
        self._baseline = self._baseline or evaluated.timing
        timing, signature = evaluated.timing, evaluated.signature
        if signature.dram.percent is not None:
            self.readings = signature.dram.source
        kernels = compilation.kernels
        speed = timing.ratio if timing.kind == "measured" else timing.estimate
        ms = tuple(case.ms if timing.kind == "measured" else case.estimate_ms for case in timing.cases)
        if speed is None or not all(ms):
            return Point(made=made, failed="no time")
        return Point(
            made=made, speed=round(speed, 5), low=timing.low, high=timing.high,
            ms=tuple(round(value, 6) for value in ms if value),
            registers=max(kernel.registers for kernel in kernels),
            shared_bytes=max(kernel.shared_bytes for kernel in kernels),
            threads=max(kernel.threads for kernel in kernels),
            occupancy=round(min(kernel.occupancy_percent for kernel in kernels), 1),
            sm=_percent(signature.sm), dram=_percent(signature.dram), l2=_percent(signature.l2),
        )  # fmt: skip


def _percent(reading: Reading) -> float | None:
    return None if reading.percent is None else round(reading.percent, 1)


def _quiet(stage: str, text: str) -> None:
    """Nobody watches."""


def measure(problem: ProblemFolder, lane: Lane, facts: LaneFacts, moves: list[Move], limit: int) -> Grid:
    """Judge every point of the product. Says how far it is on stderr."""
    product = Product(problem.kernel_source, problem.entry, moves, limit)
    judge = Judge(lane, problem.kernel_source)
    points: list[Point] = []
    for number, (text, made) in enumerate(zip(product.sources, product.made, strict=True)):
        points.append(judge.point(text, made))
        if points[0].speed is None:
            raise SystemExit(f"{problem.name}: the baseline failed: {points[0].failed}")
        print(f"\r{problem.name}: {number + 1} of {len(product.sources)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return Grid(
        format=FORMAT, problem=problem.name, digest=problem.digest, timing=facts.timing, device=facts.device,
        cases=facts.problem.cases, moves=tuple(move.name for move in moves), complete=product.complete,
        versions=facts.versions, signatures=judge.readings, points=tuple(points), edges=tuple(product.edges),
    )  # fmt: skip


def chosen_moves(names: str) -> list[Move]:
    known = {move.name: move for move in all_moves()}
    wanted = names.split(",")
    for name in wanted:
        if name not in known:
            raise SystemExit(f"there is no move {name!r}: choose from {', '.join(known)}")
    return [known[name] for name in wanted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", help="bundled names or folders")
    parser.add_argument("--device", required=True, help="cuda:N, or cpu for estimates")
    parser.add_argument("--target", default="sm_90", help="what the cpu lane models")
    parser.add_argument("--points", type=int, default=400, help="most points of a grid")
    parser.add_argument("--moves", default=",".join(MOVES))
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    moves = chosen_moves(arguments.moves)
    GRIDS.mkdir(exist_ok=True)
    for name in arguments.problems:
        problem = find_problem(name)
        with tempfile.TemporaryDirectory() as scratch:
            spec = LaneSpec(
                problem=problem.path, device=arguments.device, target=arguments.target, python=arguments.python,
                scratch=Path(scratch) / "lane",
            )  # fmt: skip
            lane = open_lane(spec)
            try:
                grid = measure(problem, lane, lane.start(), moves, arguments.points)
            finally:
                lane.close()
        path = GRIDS / f"{problem.name}-{grid.device.target}-{grid.timing}.json"
        write_grid(path, grid)
        correct = [point.speed for point in grid.points if point.speed is not None]
        print(
            f"{path.name}: {len(grid.points)} points{'' if grid.complete else ' (limit reached)'}, {len(correct)} correct, "
            f"{unconnected(grid)} of them not connected both ways, best {max(correct):.3f} {grid.timing}, {len(grid.edges)} moves"
        )


if __name__ == "__main__":
    main()
