"""`--policy max_ucb`: the arm that may hold the largest single gain, not the best on average.

MaxUCB of Balef, Vernade and Eggensperger, "Put CASH on bandits: a max K-armed problem for automated machine learning"
(arXiv 2505.05226), for bounded rewards with light tails.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from kbtui.search.arm_policy import Arm, Rating
from kbtui.search.arms import Board
from kbtui.search.settings import SoftSettings
from kbtui.search.soft_policy import SoftPolicy, largest
from kbtui.state.records import PRIOR_PULLS, ArmScore


class MaxUcbSettings(SoftSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    alpha: Annotated[float, msgspec.Meta(ge=0)] = 0.5
    """Weight of exploration; published value."""


class MaxUcbPolicy(SoftPolicy):
    """argmax of max_i r_i / r_max + (α·ln t / n)², every arm once first, those with unsaturated resources before others."""

    name = "max_ucb"
    summary = "plays for the largest single gain instead of the best average, every arm once first"
    source = "MaxUCB, arXiv 2505.05226"
    Settings = MaxUcbSettings
    settings: MaxUcbSettings

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:  # noqa: ARG002
        scale = largest(arms, self.settings)
        first = 1 + (self.settings.alpha * math.log(board.t)) ** 2
        return [self._rate(arm, scale, board.t, first) for arm in arms]

    def reason(self, chosen: ArmScore, arms: int) -> str:
        if chosen.pulls <= PRIOR_PULLS:
            return f"not played yet, of {arms} arms"
        return f"largest gain {chosen.mean:.2f} (scaled) + bonus {chosen.bonus:.2f} is the highest of {arms} arms"

    def _rate(self, arm: Arm, scale: float, t: int, first: float) -> Rating:
        """`first` is above every index of an arm that was played: 1 + the bonus of a single pull."""
        played = len(arm.log) + arm.playing
        if not played:
            return Rating(mean=arm.prior.weight, bonus=first, score=arm.prior.weight + first)
        largest_gain = max((play.reward for play in arm.log), default=0.0) / scale
        bonus = (self.settings.alpha * math.log(t) / played) ** 2
        return Rating(mean=largest_gain, bonus=bonus, score=largest_gain + bonus)
