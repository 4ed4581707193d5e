"""`--policy random`: any arm, whatever it earned. What a bandit must beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kbtui.search.arm_policy import Arm, Rating
from kbtui.search.arms import Board
from kbtui.search.soft_policy import SoftPolicy
from kbtui.state.records import ArmScore


class RandomPolicy(SoftPolicy):
    """A draw among the arms that are not held back, each as likely as its prior's weight says."""

    name = "random"
    summary = "a draw among the arms, whatever they earned; one with a saturated resource is less likely"
    source = "in-tree"

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:  # noqa: ARG002
        # Pulls in flight divide an arm's chance, so that parallel ones spread.
        weights = [0.0 if arm.held else arm.prior.weight / (1 + arm.playing) for arm in arms]
        total = sum(weights)
        return [Rating(score=weight, share=weight / total if total else 0.0) for weight in weights]

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"drawn with a chance of {chosen.share or 0.0:.0%} among {arms} arms"

    def pick(self, eligible: Sequence[ArmScore], generator: np.random.Generator) -> ArmScore:
        shares = np.array([score.share or 0.0 for score in eligible])
        return eligible[int(generator.choice(len(eligible), p=shares / shares.sum()))]
