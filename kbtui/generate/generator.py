"""The interface of a generator. One generator, one file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import msgspec

from kbtui.errors import KbtuiError
from kbtui.generate.desk import Desk
from kbtui.state.records import DeviceInfo, NumberChange, ProblemInfo, Strategy
from kbtui.state.run_state import Candidate


class BudgetSpent(KbtuiError):
    """What is left of the budget pays for no further version. `budget` is the one that is short."""

    def __init__(self, budget: Literal["budget", "tokens"], reason: str) -> None:
        super().__init__(reason)
        self.budget: Literal["budget", "tokens"] = budget


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
    model: str = ""
    reflection: str = ""
    change: NumberChange | None = None


class Exhausted(msgspec.Struct, frozen=True):
    """No new version exists for this parent and strategy: nobody's failure, costs no pull. `duplicates` counts the known
    versions in a row, if that is why."""

    reason: str
    duplicates: int = 0


class Unusable(msgspec.Struct, frozen=True):
    """What was written is no version at all: the pull ends without a candidate, and the arm earns nothing."""

    reason: str


class Generator(ABC):
    name: str
    repairs: int = 0
    """How often a version that failed may be sent back (`repair`)."""
    from_scratch: bool = False
    """Whether it can write a first version where there is none: the request's parent has no source then."""

    async def prepare(self, parallel: int) -> None:  # noqa: B027  (most generators need nothing)
        """Get ready, before anything is spent on the run. `parallel` versions may be asked for at a time. Raises
        UsageError, EnvironmentFailure or ProviderFailure for what cannot work."""

    def attach(self, desk: Desk) -> None:  # noqa: B027
        """Take the run's desk, once, after `prepare` and before anything is asked for."""

    def versions(self) -> dict[str, str]:
        """What the journal should know of the software behind it, name to version."""
        return {}

    def notices(self, problem: ProblemInfo, device: DeviceInfo, source: str, iterations: int) -> list[str]:  # noqa: ARG002
        """Lines for the log at the start of a run: what it may cost, where replies come from."""
        return []

    @abstractmethod
    def moves(self, source: str, entry: str) -> dict[str, int]:
        """How many moves each strategy offers on `source` (strategies without one may be left out).

        A strategy that offers none is not an arm for that parent. Pure and deterministic; may take 100 ms: call it in
        a thread.
        """

    @abstractmethod
    async def write(self, request: Request) -> Written | Exhausted | Unusable:
        """A new version. Raises ProviderFailure or EnvironmentFailure, never for a fault of the source; and BudgetSpent
        when what is left of the budget pays for nothing more."""

    async def repair(self, request: Request, failed: Candidate) -> Written | Exhausted | Unusable:  # noqa: ARG002
        """`failed`, a child of the request's parent, mended. Only asked of generators with `repairs`. Raises as `write`."""
        return Exhausted(f"{self.name} mends nothing")
