"""What a policy is played on: a world makes versions of a kernel and knows what each is worth."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kbtui.search.tuning import Step
from kbtui.state.records import CaseInfo, DeviceInfo, KernelFacts, NumberChange, Signature, Strategy, TimingKind


@dataclass(frozen=True)
class Version:
    """One version of the kernel. `key` tells equal versions; `speed` is its ratio to the baseline, None where it is wrong
    or does not compile, `low` and `high` the interval of a measured one; `ms` has the time of each case; `where` is the
    world's own; `change` the one number in which it differs from what it was made of."""

    key: str
    speed: float | None
    ms: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    where: Any = None
    kernel: KernelFacts | None = None
    change: NumberChange | None = None
    signature: Signature = field(default_factory=Signature)


class World(ABC):
    """`cases` and `device` are what a run's first event would say. `starts` are the versions that a play begins with, the
    baseline first; `labels` their clusters, where the world fixes them instead of leaving them to the clustering. `best`
    is the highest speed there is, None if there is no limit."""

    name: str
    timing: TimingKind
    cases: tuple[CaseInfo, ...]
    device: DeviceInfo
    starts: tuple[Version, ...]
    labels: Mapping[int, int] | None = None
    best: float | None = None

    @abstractmethod
    def moves(self, version: Version) -> dict[str, int]:
        """How many moves each strategy offers on a version."""

    @abstractmethod
    def pull(
        self, parent: Version, strategy: Strategy, known: set[str], generator: np.random.Generator
    ) -> Version | None:
        """A version made of `parent` that is not `known`; None when there is no such."""

    @abstractmethod
    def expected(self, parent: Version, strategy: Strategy) -> float:
        """Mean of max(0, log gain) of a pull, failures counting as 0: what an oracle would choose arms by."""

    def steps(self, version: Version, known: set[str]) -> list[tuple[Step, Version]]:  # noqa: ARG002
        """Every number of a version, one step up or down, to a version that is not `known`; none where nothing is a number."""
        return []
