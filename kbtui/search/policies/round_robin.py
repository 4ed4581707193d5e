"""`--policy round_robin`: every arm in turn. What a bandit must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbtui.search.arm_policy import ArmPolicy
from kbtui.search.arms import PRIOR_PULLS
from kbtui.state.records import ArmScore


class RoundRobinPolicy(ArmPolicy):
    """The arm with the fewest pulls, in the order of clusters and strategies; rewards do not matter."""

    name = "round_robin"
    summary = "every arm that is not held back in turn, whatever it earned"
    source = "in-tree"

    def rate(self, mean: float, pulls: float, t: int) -> tuple[float, float]:  # noqa: ARG002
        return 0.0, -pulls

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"played {chosen.pulls - PRIOR_PULLS:.0f} times, the fewest of {arms} arms"

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:  # noqa: ARG002
        return max(eligible, key=lambda arm: arm.score)
