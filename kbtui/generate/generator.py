"""The interface of a generator. One generator, one file."""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from kbtui.state.records import DeviceInfo, ProblemInfo, Strategy
from kbtui.state.run_state import Candidate


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a generator is asked for: a new version of `parent` by `strategy`.

    `seen` are the normalised syntax digests that already exist in the run; `tried` the moves already made on this
    parent. `seed` is
    for the draw: `[run seed, pull, purpose]`.
    """

    problem: ProblemInfo
    device: DeviceInfo
    parent: Candidate
    strategy: Strategy
    pull: int
    seed: tuple[int, int, int]
    seen: frozenset[str]
    tried: frozenset[str]


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A new version. `move` is a short title ("num_warps 4 → 8"), unique among the children of a parent; `detail` says more."""

    source: str
    move: str
    detail: str = ""
    cost_usd: float = 0.0
    tokens: int = 0


class Exhausted(msgspec.Struct, frozen=True):
    """No new version exists for this parent and strategy: nobody's failure, costs no pull."""

    reason: str


class Generator(ABC):
    name: str

    @abstractmethod
    def moves(self, source: str, entry: str) -> dict[str, int]:
        """How many moves each strategy offers on `source` (strategies without one may be left out).

        A strategy that offers none is not an arm for that parent. Pure and deterministic; may take 100 ms: call it in
        a thread.
        """

    @abstractmethod
    async def write(self, request: Request) -> Written | Exhausted:
        """A new version. Raises ProviderFailure or EnvironmentFailure; never for a fault of the source."""
