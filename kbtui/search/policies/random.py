"""`--policy random`: any arm with equal probability. What a bandit must beat."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from kbtui.search.arm_policy import ArmPolicy
from kbtui.search.arms import ArmKey
from kbtui.state.records import ArmScore
from kbtui.state.run_state import RunState


class RandomPolicy(ArmPolicy):
    """A uniform draw among the arms that are not held back."""

    name = "random"
    summary = "a uniform draw among the arms that are not held back"
    source = "in-tree"

    def rate(self, mean: float, pulls: float, t: int) -> tuple[float, float]:  # noqa: ARG002
        return 0.0, 0.0

    def reason(self, chosen: ArmScore, arms: int) -> str:  # noqa: ARG002
        return f"drawn, one of {arms} arms"

    def scores(self, state: RunState, t: int, playing: dict[ArmKey, int]) -> tuple[ArmScore, ...]:
        found = super().scores(state, t, playing)
        eligible = sum(not score.held for score in found)
        return tuple(msgspec.structs.replace(score, share=1 / eligible if not score.held else 0.0) for score in found)

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:
        return eligible[int(generator.integers(len(eligible)))]
