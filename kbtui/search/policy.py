"""The interface of a policy. One idea, one file, in `search/policies/`.

A policy proposes; it is told by the event fold, which it reads as `RunState`. It keeps nothing between calls, so that
resume and replay need no policy state. Every draw comes from `draw(seed, pull, purpose)`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import IntEnum

import msgspec
import numpy as np

from kbtui.search.tuning import Step
from kbtui.state.events import Masked
from kbtui.state.records import ArmScore, Scalar, Strategy
from kbtui.state.run_state import Candidate, RunState


class Purpose(IntEnum):
    """What a random draw is for; each has its own stream so that adding one never shifts another."""

    PARENT = 1
    CLUSTER = 2
    MOVE = 3
    TIE = 4
    INPUTS = 5
    BELIEF = 6
    STEP = 7


def draw(seed: int, pull: int, purpose: Purpose) -> np.random.Generator:
    """The generator for one purpose of one pull: the same after a crash as before it."""
    return np.random.default_rng([seed, pull, int(purpose)])


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One proposed pull: the arm, the parent, and the numbers that made it win."""

    cluster: int
    strategy: Strategy
    parent_id: int
    scores: tuple[ArmScore, ...]
    runner_up: tuple[int, str] | None = None
    reason: str = ""
    tuned: str = ""
    """The move that the numeric search chose, by its title; "" where the generator is free."""


class Policy(ABC):
    """Chooses arms and parents."""

    name: str
    """As in `--policy NAME`."""
    summary: str
    """One line for `kbtui policies`."""
    source: str
    """The paper, or "in-tree"."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, Scalar]:
        """The parameters in force, as they are recorded in `run_started`."""

    @abstractmethod
    def propose(self, state: RunState, pull: int, n: int = 1) -> list[Choice]:
        """Up to `n` choices for the pulls numbered `pull`, `pull + 1`, ...; empty when no arm is left.

        Arms that are banned, or whose strategy has no move on any parent of the cluster, are never chosen. Pulls in
        flight (`state.open_pulls`) count as played. A forced arm is not a policy's business: the engine asks `force`.
        """

    @abstractmethod
    def force(
        self, state: RunState, pull: int, strategy: Strategy, cluster: int | None, parent_id: int | None
    ) -> Choice | None:
        """The choice for an arm that a person forced; None when it has no parent with a move."""

    @abstractmethod
    def tune(self, state: RunState, pull: int, parent: Candidate, steps: Sequence[Step]) -> Choice | None:
        """The choice of the step on `parent` that promises most; None when none is worth a pull, or what a person banned
        or the policy masks is all there is. `kbtui.search.tuning` says when to ask."""

    @abstractmethod
    def mask(self, state: RunState, pull: int) -> Masked:
        """The clusters' signatures, and the arms that the policy refuses because of them. Asked before `propose`."""

    @abstractmethod
    def reward(self, parent: Candidate, child: Candidate | None) -> float:
        """What the arm of a pull that made `child` of `parent` learns, 0 or more; 0 when the child failed or is None.

        What is kept as the best is another question, answered by the judge against the best so far.
        """
