"""A simulated world with numbers: what a kernel's blocks, warps and stages do to its time, beside structural moves.

Not a model of any GPU: shapes that are assumed, stated here. It tells whether a search that knows that numbers have an order
finds more than one that draws among moves, and nothing of by how much on a device.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np

from kbtui.search.tuning import Step
from kbtui.state.records import STRATEGIES, CaseInfo, DeviceInfo, NumberChange, Strategy, TimingKind
from offline.world import Version, World

NUMBERS: tuple[tuple[str, int, Strategy, Strategy], ...] = (
    ("BLOCK", 8, "tiling", "tiling"),
    ("num_warps", 5, "vectorization", "reordering"),
    ("num_stages", 4, "pipeline", "pipeline"),
)
"""Name, how many values it has (powers of two from 1), and the strategies of going down and up."""
STRUCTURAL: dict[Strategy, int] = {
    "tiling": 2, "vectorization": 0, "fusion": 1, "pipeline": 3, "reordering": 3, "access_layout": 6,
}  # fmt: skip
"""Moves of each strategy that are no number's: about as many as the bundled kernels offer."""
FAILURE = 0.1
"""Share of versions that are wrong: moves are made where they should keep a kernel correct."""


@dataclass(frozen=True)
class Place:
    """The logarithms of the numbers, and the structural moves made."""

    numbers: tuple[int, ...]
    made: frozenset[tuple[str, int]] = frozenset()


class NumericWorld(World):
    """log speed = −Σ aᵢ·(xᵢ − oᵢ)² − b·(x₀ − o₀)(x₁ − o₁) + Σ gains of the structural moves made, where o are the best
    numbers, U over their range, and shift by U(−1, 1) with each structural move; aᵢ ~ Exp(0.03), b ~ U(−1, 1)·sqrt(a₀a₁);
    a structural move gains N(0, 0.1). A version is wrong with probability `FAILURE`, the same whenever it is asked for. The
    start is in the middle of every range."""

    timing: TimingKind = "measured"
    cases = (CaseInfo(name="simulated", fields={}),)
    device = DeviceInfo(lane="simulated", kind="cuda", name="simulated", target="")

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng([seed, 77])
        self.name = "simulated, three numbers and 15 other moves"
        self._seed = seed
        self._known: dict[tuple[str, NumberChange | None], Version] = {}
        self._near: dict[Place, list[tuple[Strategy, str, Version]]] = {}
        self._best = np.array([generator.uniform(0, values - 1) for _, values, _, _ in NUMBERS])
        self._curve = generator.exponential(0.03, len(NUMBERS))
        self._twist = generator.uniform(-1, 1) * math.sqrt(self._curve[0] * self._curve[1])
        moves = [(strategy, n) for strategy, count in STRUCTURAL.items() for n in range(count)]
        self._gain = {move: float(generator.normal(0, 0.1)) for move in moves}
        self._shift = {move: generator.uniform(-1, 1, len(NUMBERS)) for move in moves}
        start = Place(tuple((values - 1) // 2 for _, values, _, _ in NUMBERS))
        self._zero = self._log_speed(start)
        self.starts = (self._version(start, None, start=True),)

    def moves(self, version: Version) -> dict[str, int]:
        counts = dict.fromkeys(STRATEGIES, 0)
        for strategy, _, _ in self._ahead(version.where):
            counts[strategy] += 1
        return counts

    def pull(
        self, parent: Version, strategy: Strategy, known: set[str], generator: np.random.Generator
    ) -> Version | None:
        ends = [end for of, _, end in self._ahead(parent.where) if of == strategy and end.key not in known]
        return ends[int(generator.integers(len(ends)))] if ends else None

    def steps(self, version: Version, known: set[str]) -> list[tuple[Step, Version]]:
        return [
            (Step(strategy=strategy, move=f"{end.change.parameter} {end.change.new}", change=end.change), end)
            for strategy, _, end in self._ahead(version.where)
            if end.change is not None and end.key not in known
        ]

    def expected(self, parent: Version, strategy: Strategy) -> float:
        ends = [end for of, _, end in self._ahead(parent.where) if of == strategy]
        gains = [math.log(end.speed / parent.speed) for end in ends if end.speed and parent.speed]
        return sum(max(0.0, gain) for gain in gains) / len(ends) if ends else 0.0

    def _ahead(self, place: Place) -> list[tuple[Strategy, str, Version]]:
        if place in self._near:
            return self._near[place]
        found = self._near[place] = []
        for index, (name, values, down, up) in enumerate(NUMBERS):
            for sign, strategy in ((-1, down), (1, up)):
                new = place.numbers[index] + sign
                if 0 <= new < values:
                    numbers = (*place.numbers[:index], new, *place.numbers[index + 1 :])
                    change = NumberChange(name, 2 ** place.numbers[index], 2**new)
                    found.append((strategy, name, self._version(Place(numbers, place.made), change)))
        for move in self._gain:
            if move not in place.made:
                strategy, number = move
                found.append((strategy, str(number), self._version(Place(place.numbers, place.made | {move}), None)))
        return found

    def _version(self, place: Place, change: NumberChange | None, *, start: bool = False) -> Version:
        key = f"{place.numbers} {sorted(place.made)}"
        if (key, change) not in self._known:
            self._known[key, change] = self._judged(place, key, change, start=start)
        return self._known[key, change]

    def _judged(self, place: Place, key: str, change: NumberChange | None, *, start: bool) -> Version:
        wrong = zlib.crc32(f"{self._seed} {key}".encode()) < FAILURE * 2**32
        if wrong and not start:
            return Version(key, None, where=place, change=change)
        speed = math.exp(self._log_speed(place) - self._zero)
        return Version(key, speed, ms=(1 / speed,), where=place, change=change)

    def _log_speed(self, place: Place) -> float:
        shift = [sum(self._shift[move][i] for move in place.made) for i in range(len(NUMBERS))]
        away = [x - o - s for x, o, s in zip(place.numbers, self._best, shift, strict=True)]
        curve = sum(a * d**2 for a, d in zip(self._curve, away, strict=True)) + self._twist * away[0] * away[1]
        return sum(self._gain[move] for move in place.made) - float(curve)
