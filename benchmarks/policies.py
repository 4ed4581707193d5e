"""Which policy finds the most in how many pulls: every policy played on simulated worlds and on the grids in benchmarks/grids/.

    python benchmarks/policies.py                                      # a sample: 100 seeds, minutes
    python benchmarks/policies.py --seeds 1000 --jobs 8 --save NAME    # in full, kept in benchmarks/results/NAME.txt
    python benchmarks/policies.py --policies paper,paper:c=0.1,ucb --worlds 6,18

Played through the policies' own interface on states folded from events (offline/play.py). For T pulls: the geometric mean over
the seeds of the best speedup found, with a 95 % interval; on a grid in percent of the grid's best. "on best": the share of the
first 20 and of all pulls on an arm of which most could be expected at that moment. "vs paper at 20": ratio of what was
found after 20 pulls to what `paper` (or another, `--against`) found with the same seed, with its 95 % interval. Grids
from a `cpu` lane hold estimates: they show that the machinery works, and no default is chosen by them.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from offline.grid import GridWorld, read_grid
from offline.numeric import NumericWorld
from offline.play import Play, Played
from offline.simulated import SimulatedWorld
from offline.world import World

from kbtui.config import parse_scalar
from kbtui.search.policy import Policy
from kbtui.search.registry import POLICIES, make_policy
from kbtui.state.records import Scalar

HERE = Path(__file__).parent
MARKS = (10, 20, 50, 200)
AIM = 0.95
"""Share of a grid's best for which pulls are counted."""
SIMULATED = {"6": (1, 1), "18": (3, 1), "18-delay": (3, 4)}
"""Name -> (clusters, pulls in flight)."""
NUMERIC = "numbers"
"""The simulated world whose moves are numbers for the most part."""


@dataclass(frozen=True)
class Task:
    world: str
    policy: str
    pulls: int
    seed: int


@dataclass(frozen=True)
class Row:
    """`logs`: log of the best speed after each pull, shape (seeds, pulls); `on_best` likewise, NaN where nothing was best."""

    policy: str
    logs: np.ndarray
    on_best: np.ndarray


def play(task: Task) -> Played:
    """One policy, one world, one seed."""
    world, parallel, fixed = opened(task.world, task.seed)
    return Play(world, policy_of(task.policy, fixed), task.seed, parallel).run(task.pulls)


def opened(name: str, seed: int) -> tuple[World, int, dict[str, Scalar]]:
    """The world of a seed, how many pulls are in flight on it, and the policy's parameters that it fixes."""
    if name in SIMULATED:
        clusters, parallel = SIMULATED[name]
        return SimulatedWorld(clusters, seed), parallel, {"clusters": clusters}
    if name == NUMERIC:
        return NumericWorld(seed), 1, {}
    return _grid(name), 1, {}


@lru_cache
def _grid(name: str) -> GridWorld:
    return GridWorld(read_grid(HERE / "grids" / f"{name}.json"))


def policy_of(text: str, fixed: dict[str, Scalar]) -> Policy:
    """`NAME` or `NAME:key=value;key=value`. Raises UsageError as `make_policy` does."""
    name, _, pairs = text.partition(":")
    given = {key: parse_scalar(value) for key, _, value in (pair.partition("=") for pair in pairs.split(";") if pair)}
    return make_policy(name, {**given, **fixed})


def rows(
    world: str, policies: list[str], pulls: int, seeds: int, run: Callable[[list[Task]], list[Played]]
) -> list[Row]:
    found = []
    for policy in policies:
        played = run([Task(world, policy, pulls, seed) for seed in range(seeds)])
        on_best = np.full((seeds, pulls), np.nan)
        for number, one in enumerate(played):
            on_best[number, : len(one.on_best)] = [np.nan if hit is None else hit for hit in one.on_best]
        found.append(Row(policy, np.log([one.best for one in played]), on_best))
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half of its 95 % interval, by the normal approximation."""
    if len(values) < 2:
        return float(values.mean()), float("inf")
    return float(values.mean()), 1.96 * float(values.std(ddof=1)) / float(np.sqrt(len(values)))


def pulls_to(logs: np.ndarray, best: float) -> str:
    """Median over the seeds of the pulls until `AIM` of the best is found."""
    hit = np.exp(logs) >= AIM * best
    pulls = np.where(hit.any(axis=1), hit.argmax(axis=1) + 1, np.inf)
    median = float(np.median(pulls))
    return f"{median:.0f}" if np.isfinite(median) else f">{logs.shape[1]}"


def table(world: World, title: str, found: list[Row], against: str = "paper") -> Iterator[str]:
    """`against` is the policy that the others are compared with, seed by seed, at 20 pulls and at the last mark."""
    marks = [mark for mark in MARKS if mark <= found[0].logs.shape[1]]
    best = world.best
    yield title
    heads = [f"best at {mark}" for mark in marks]
    aim = f"{'to 95 %':>9}" if best else ""
    last = marks[-1]
    compared = [mark for mark in marks if mark >= 20]
    yield (
        f"{'policy':<28}"
        + "".join(f"{head:>17}" for head in heads)
        + "".join(f"{f'vs {against} at {mark}':>18}" for mark in compared)
        + f"{'on best 20':>12}{f'on best {last}':>13}{aim}"
    )
    other = next((row for row in found if row.policy == against), None)
    for row in found:
        cells = "".join(f"{_found(row.logs[:, mark - 1], best):>17}" for mark in marks)
        early, late = (np.nanmean(row.on_best[:, :mark]) for mark in (min(20, last), last))
        end = f"{pulls_to(row.logs, best):>9}" if best else ""
        ratios = "".join(f"{_against(row, other, mark):>18}" for mark in compared)
        yield f"{row.policy:<28}{cells}{ratios}{early:>12.1%}{late:>13.1%}{end}"


def _found(logs: np.ndarray, best: float | None) -> str:
    mean, half = interval(logs)
    if best:
        value = 100 * np.exp(mean) / best
        return f"{value:.1f} ±{value * half:.1f} %"
    return f"{np.exp(mean):.3f} ±{np.exp(mean) * half:.3f}"


def _against(row: Row, other: Row | None, mark: int) -> str:
    if other is None or other is row:
        return ""
    mean, half = interval(row.logs[:, mark - 1] - other.logs[:, mark - 1])
    return f"{np.exp(mean):.3f} ±{np.exp(mean) * half:.3f}"


def grids() -> list[str]:
    return sorted(path.stem for path in (HERE / "grids").glob("*.json"))


def title_of(name: str, world: World, parallel: int) -> str:
    delay = f", {parallel} pulls in flight" if parallel > 1 else ""
    note = "; modelled: no default is chosen by it" if world.timing == "modelled" else ""
    limit = f", best {world.best:.3f}" if world.best else ""
    return f"{world.name}{delay}{limit}{note}" if name in (*SIMULATED, NUMERIC) else f"{name}{limit}{note}"


def report(arguments: argparse.Namespace, run: Callable[[list[Task]], list[Played]]) -> Iterator[str]:
    yield f"{arguments.seeds} seeds, {arguments.pulls} pulls, Python {platform.python_version()}, numpy {np.__version__}"
    for name in arguments.worlds:
        world, parallel, _ = opened(name, 0)
        yield ""
        found = rows(name, arguments.policies, arguments.pulls, arguments.seeds, run)
        yield from table(world, title_of(name, world, parallel), found, arguments.against)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = lambda text: text.split(",")  # noqa: E731  (argparse wants a callable, and it is said once)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--pulls", type=int, default=200)
    parser.add_argument(
        "--policies", type=names, default=list(POLICIES), help="NAME or NAME:key=value;key=value, by commas"
    )
    parser.add_argument(
        "--worlds",
        type=names,
        default=[*SIMULATED, NUMERIC, *grids()],
        help="6, 18, 18-delay, numbers, or names of grids",
    )
    parser.add_argument("--against", default="paper", help="the policy of --policies that the others are compared with")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--save", help="also write the table to benchmarks/results/NAME.txt")
    arguments = parser.parse_args()
    lines = []
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for line in report(arguments, lambda tasks: list(pool.map(play, tasks, chunksize=4))):
            print(line, flush=True)
            lines.append(line)
    if arguments.save:
        (HERE / "results").mkdir(exist_ok=True)
        (HERE / "results" / f"{arguments.save}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
