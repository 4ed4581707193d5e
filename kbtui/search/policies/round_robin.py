"""`--policy round_robin`: every arm in turn. What a bandit must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbtui.search.arm_policy import Arm, Rating
from kbtui.search.arms import Board
from kbtui.search.soft_policy import SoftPolicy
from kbtui.state.records import PRIOR_PULLS, ArmScore


class RoundRobinPolicy(SoftPolicy):
    """The arm with the fewest pulls for its weight, in the order of clusters and strategies; rewards do not matter."""

    name = "round_robin"
    summary = "every arm in turn, whatever it earned; one with a saturated resource skips turns"
    source = "in-tree"

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:  # noqa: ARG002
        return [Rating(score=-arm.pulls / arm.prior.weight) for arm in arms]

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"played {chosen.pulls - PRIOR_PULLS:.0f} times, the fewest of {arms} arms for what is expected of it"

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:  # noqa: ARG002
        return max(eligible, key=lambda arm: arm.score)
