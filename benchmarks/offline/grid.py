"""A grid: the full product of a problem's parameter moves, each point judged once, so that any policy can be played on it.

Comparing policies on recorded runs is not sound: a policy asks for (parent, strategy) pairs that the run never made. On a
grid every pair that can be asked for has its answer. One JSON file per grid, written by benchmarks/measure_grids.py.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from kbtui.search.tuning import Step
from kbtui.state.records import (
    STRATEGIES,
    CaseInfo,
    DeviceInfo,
    KernelFacts,
    NumberChange,
    Reading,
    ReadingSource,
    Signature,
    Strategy,
    TimingKind,
)
from offline.world import Version, World

FORMAT = 1
UNSAID = {"loop num_stages": 1}
"""What a number counts as that is not in the source."""


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One version. `made` is (point, move title) that first led to it, None for the baseline, so that its source can be made
    again. `failed` says why it has no speed. `speed` is the ratio to the baseline, measured or modelled as the grid is;
    `ms` the times by case; `registers` ... `occupancy` those of its most demanding kernel, in the units of
    kbtui.search.features; `sm`, `dram`, `l2` readings in percent of peak, None where unknown."""

    made: tuple[int, str] | None = None
    speed: float | None = None
    low: float | None = None
    high: float | None = None
    ms: tuple[float, ...] = ()
    registers: int = 0
    shared_bytes: int = 0
    threads: int = 0
    occupancy: float = 0.0
    sm: float | None = None
    dram: float | None = None
    l2: float | None = None
    failed: str = ""


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`points[0]` is the baseline. `edges` are (from, strategy, to), one for every move. `complete` says that every move of
    every point leads to a point, which a limit on the number of points can prevent."""

    format: int
    problem: str
    digest: str
    timing: TimingKind
    device: DeviceInfo
    cases: tuple[CaseInfo, ...]
    moves: tuple[str, ...]
    complete: bool
    versions: dict[str, str]
    signatures: ReadingSource
    points: tuple[Point, ...]
    edges: tuple[tuple[int, Strategy, int], ...]


def read_grid(path: Path) -> Grid:
    """The grid in a file. Raises ValueError, naming the file, for another format or anything malformed."""
    try:
        grid = msgspec.json.decode(path.read_bytes(), type=Grid)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is no grid: {error}") from error
    if grid.format != FORMAT:
        raise ValueError(f"{path} has format {grid.format}, this reads {FORMAT}: measure it again")
    count = len(grid.points)
    if not count or grid.points[0].speed is None:
        raise ValueError(f"{path} has no baseline that passed")
    if any(not (0 <= start < count and 0 <= end < count) for start, _, end in grid.edges):
        raise ValueError(f"{path} has a move to a point that it does not have")
    return grid


def write_grid(path: Path, grid: Grid) -> None:
    """A point or a few edges a line, so that a diff of two measurements can be read."""
    body = msgspec.to_builtins(grid)
    del body["points"], body["edges"]
    lines = [msgspec.json.encode(point).decode() for point in grid.points]
    edges = [msgspec.json.encode(edge).decode() for edge in grid.edges]
    text = msgspec.json.format(msgspec.json.encode(body), indent=1).decode().rstrip("}\n")
    rows = [", ".join(edges[start : start + 8]) for start in range(0, len(edges), 8)]
    path.write_text(
        text + ',\n "points": [\n' + ",\n".join(lines) + '\n ],\n "edges": [\n' + ",\n".join(rows) + "\n ]\n}\n"
    )


def unconnected(grid: Grid) -> int:
    """How many correct points are outside the largest set in which every point can be reached from every other by moves over
    correct points. The baseline is often one: a parameter that it leaves to a default is written out after a move."""
    correct = {number for number, point in enumerate(grid.points) if point.speed is not None}
    forward: dict[int, set[int]] = {number: set() for number in correct}
    backward: dict[int, set[int]] = {number: set() for number in correct}
    for start, _, end in grid.edges:
        if start in correct and end in correct:
            forward[start].add(end)
            backward[end].add(start)
    largest, left = 0, set(correct)
    while len(left) > largest:
        start = min(left)
        component = _closure(forward, start) & _closure(backward, start)
        largest = max(largest, len(component))
        left -= component
    return len(correct) - largest


class GridWorld(World):
    """A pull of (parent, strategy) draws evenly among the moves that lead to a point not yet seen, as the `rewrite` generator
    does. Two points with the same machine code are two points, where a run would prune the second."""

    def __init__(self, grid: Grid) -> None:
        self.name = f"{grid.problem}, {grid.timing}"
        self.timing, self.cases, self.device = grid.timing, grid.cases, grid.device
        self._versions = [_version(number, point, grid.signatures) for number, point in enumerate(grid.points)]
        self._next: dict[tuple[int, str], list[int]] = {}
        for start, strategy, end in grid.edges:
            self._next.setdefault((start, strategy), []).append(end)
        self._edges = {(start, end): strategy for start, strategy, end in grid.edges}
        self._settings = _settings(grid)
        self.starts = (self._versions[0],)
        self.best = max(version.speed for version in self._versions if version.speed is not None)

    def moves(self, version: Version) -> dict[str, int]:
        return {strategy: len(self._next.get((version.where, strategy), ())) for strategy in STRATEGIES}

    def pull(
        self, parent: Version, strategy: Strategy, known: set[str], generator: np.random.Generator
    ) -> Version | None:
        ends = [end for end in self._next.get((parent.where, strategy), ()) if self._versions[end].key not in known]
        if not ends:
            return None
        end = ends[int(generator.integers(len(ends)))]
        return replace(self._versions[end], change=self._change(parent.where, end))

    def steps(self, version: Version, known: set[str]) -> list[tuple[Step, Version]]:
        found = []
        for (start, end), strategy in self._edges.items():
            change = self._change(start, end) if start == version.where else None
            if change is not None and self._versions[end].key not in known:
                move = f"{change.parameter} {change.old} → {change.new}"
                step = Step(strategy=strategy, move=move, change=change)
                found.append((step, replace(self._versions[end], change=change)))
        return found

    def _change(self, start: int, end: int) -> NumberChange | None:
        """The one number in which two points differ, None when they differ otherwise."""
        before, after = self._settings[start], self._settings[end]
        differ = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        if len(differ) != 1 or differ[0] not in after:
            return None
        old, new = before.get(differ[0], UNSAID.get(differ[0].partition(" at line")[0])), after[differ[0]]
        return NumberChange(differ[0], old, new) if old is not None else None

    def expected(self, parent: Version, strategy: Strategy) -> float:
        ends = self._next.get((parent.where, strategy), ())
        gains = [self._gain(parent, self._versions[end]) for end in ends]
        return sum(gains) / len(gains) if gains else 0.0

    @staticmethod
    def _gain(parent: Version, child: Version) -> float:
        return max(0.0, math.log(child.speed / parent.speed)) if parent.speed and child.speed else 0.0


def _settings(grid: Grid) -> list[dict[str, int]]:
    """The numbers that the moves on the way to each point set, by name. What the baseline says itself shows in the first
    title that changes it ("BLOCK 1024 → 2048"); a move that sets no number counts as one of its own name."""
    titles = [point.made[1] for point in grid.points if point.made is not None]
    first: dict[str, int] = {}
    for name, old, _ in map(_number, titles):
        if old is not None:
            first.setdefault(name, old)
    found: list[dict[str, int]] = []
    for point in grid.points:
        if point.made is None:
            found.append({})
            continue
        above, title = point.made
        name, old, new = _number(title)
        # A number first seen changed was there before: a row in pieces brings one of its own.
        before = found[above] if old is None or name in found[above] else {**found[above], name: old}
        if before is not found[above]:
            found[above].update(before)
        found.append({**before, name: new})
    return found


def _number(title: str) -> tuple[str, int | None, int]:
    """(name, old, new) of a title: "num_warps 4 (default) → 2", "loop num_stages 2 at line 21", "row in pieces of 1024"."""
    head, arrow, tail = title.partition(" → ")
    place = " at line" + title.partition(" at line")[2] if " at line" in title else ""
    if not arrow:
        words = title.removesuffix(place).rsplit(" ", 1)
        return words[0] + place, None, int(words[1]) if words[-1].isdigit() else 1
    name, _, old = head.removesuffix(" (default)").rpartition(" ")
    new = tail.partition(" ")[0]
    if not old.isdigit() or not new.isdigit():
        return title, None, 1
    return name + place, int(old), int(new)


def _closure(graph: dict[int, set[int]], start: int) -> set[int]:
    found, ahead = {start}, [start]
    while ahead:
        new = graph[ahead.pop()] - found
        found |= new
        ahead += new
    return found


def _version(number: int, point: Point, source: ReadingSource) -> Version:
    readings = {
        name: Reading(value, source)
        for name, value in (("sm", point.sm), ("dram", point.dram), ("l2", point.l2))
        if value is not None
    }
    kernel = KernelFacts(
        name="kernel", target="", registers=point.registers, spill_bytes=0, shared_bytes=point.shared_bytes,
        num_warps=point.threads // 32, num_stages=1, threads=point.threads, occupancy_percent=point.occupancy, code_digest="",
    )  # fmt: skip
    return Version(
        key=str(number), speed=point.speed, ms=point.ms, low=point.low, high=point.high, where=number, kernel=kernel,
        signature=Signature(**readings),
    )  # fmt: skip
