"""What one program of a kernel did: accesses to memory by sector, matrix products, element-wise work.

Sizes are bytes, work is in operations of one element. A device fetches memory in sectors of 32 bytes, so what an access
costs is how many sectors it touches, not how many bytes it asked for. Sectors are kept as runs (first, end), since a
tile is a few runs and a strided access as many as it has elements.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SECTOR = 32
_SHIFT = 5

Runs = Any
"""int64 array of shape (n, 2): sectors [first, end), disjoint and ascending."""

EMPTY: Runs = np.empty((0, 2), dtype=np.int64)


def runs_of(addresses: Any, item_bytes: int) -> Runs:
    """The sectors that elements of `item_bytes` at `addresses` (any shape) touch; elements do not straddle sectors."""
    del item_bytes
    if addresses.size == 0:
        return EMPTY
    sectors = np.asarray(addresses, dtype=np.uint64).ravel() >> np.uint64(_SHIFT)
    # neighbours mostly share a sector: without them there is little left to sort
    sectors = np.unique(sectors[np.concatenate(([True], sectors[1:] != sectors[:-1]))]).astype(np.int64)
    breaks = np.flatnonzero(np.diff(sectors) > 1)
    first = sectors[np.concatenate(([0], breaks + 1))]
    end = sectors[np.concatenate((breaks, [sectors.size - 1]))] + 1
    return np.stack((first, end), axis=1)


def union(runs: list[Runs]) -> Runs:
    """The union of runs, merged."""
    stacked = np.concatenate(runs) if runs else EMPTY
    if len(stacked) < 2:
        return stacked
    stacked = stacked[np.argsort(stacked[:, 0], kind="stable")]
    reach = np.maximum.accumulate(stacked[:, 1])
    starts = np.concatenate(([True], stacked[1:, 0] > reach[:-1]))
    at = np.flatnonzero(starts)
    ends = reach[np.concatenate((at[1:] - 1, [len(stacked) - 1]))]
    return np.stack((stacked[at, 0], ends), axis=1)


def size(runs: Runs) -> int:
    """Bytes of the sectors in `runs` (disjoint)."""
    return int((runs[:, 1] - runs[:, 0]).sum()) * SECTOR


@dataclass(frozen=True)
class Access:
    """One load or store of a tile. `tensor` numbers the argument it falls into (-1: none of them)."""

    tensor: int
    store: bool
    asked_bytes: int
    lanes: int
    runs: Runs
    new_bytes: int
    """Bytes of sectors that the program had not touched before."""
    weight: float


@dataclass(frozen=True, order=True)
class Tile:
    """A matrix product of one shape: (m, k) x (k, n) in `dtype`, operands of `item_bytes`."""

    dtype: str
    m: int
    n: int
    k: int
    item_bytes: int


@dataclass
class Program:
    """The tally of one program. `weight` is how many iterations the current one stands for."""

    accesses: list[Access] = field(default_factory=list)
    tiles: dict[Tile, float] = field(default_factory=lambda: defaultdict(float))
    simple: float = 0.0
    special: float = 0.0
    reduced: float = 0.0
    barriers: float = 0.0
    phases: float = 0.0
    weight: float = 1.0
    _touched: dict[int, Runs] = field(default_factory=dict)
    _consumed: bool = True

    def access(self, tensor: int, store: bool, addresses: Any, item_bytes: int) -> None:
        """Note a load or store of the elements at `addresses` (unmasked lanes only)."""
        runs = runs_of(addresses, item_bytes)
        before = self._touched.get(tensor, EMPTY)
        after = union([before, runs])
        self._touched[tensor] = after
        self.accesses.append(
            Access(
                tensor=tensor,
                store=store,
                asked_bytes=int(addresses.size) * item_bytes,
                lanes=int(addresses.size),
                runs=runs,
                new_bytes=size(after) - size(before),
                weight=self.weight,
            )
        )
        if not store and self._consumed:
            self.phases += self.weight
            self._consumed = False
        if store:
            self._consumed = True

    def product(self, tile: Tile) -> None:
        self.tiles[tile] += self.weight
        self.consume()

    def work(self, elements: int) -> None:
        """Arithmetic that one lane does in one instruction: add, multiply, compare, select."""
        self.simple += elements * self.weight

    def special_work(self, elements: int) -> None:
        """Arithmetic of the special function unit: exponential, logarithm, root, division."""
        self.special += elements * self.weight

    def reduce(self, elements: int) -> None:
        self.reduced += elements * self.weight
        self.barriers += self.weight
        self.consume()

    def consume(self) -> None:
        """What was loaded is waited for here; a load after this starts a new phase of waiting."""
        self._consumed = True
