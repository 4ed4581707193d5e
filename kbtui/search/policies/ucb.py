"""`--policy ucb`: UCB with scaled rewards and masks as a prior. After UCB1 (Auer, Cesa-Bianchi and Fischer, 2002)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from kbtui.search.arm_policy import Arm, Rating
from kbtui.search.arms import Board
from kbtui.search.settings import SoftSettings
from kbtui.search.soft_policy import SoftPolicy, expected, largest
from kbtui.state.records import ArmScore


class UcbSettings(SoftSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    c: Annotated[float, msgspec.Meta(ge=0)] = 0.25
    """Weight of exploration."""


class UcbPolicy(SoftPolicy):
    """argmax of μ / r_max + c·sqrt(ln t / N): rewards are log gains, so without the scale the bonus would drown them."""

    name = "ucb"
    summary = "UCB on log gains scaled by the largest so far; saturated resources lower what is expected of an arm"
    source = "UCB1, Auer et al. 2002, doi 10.1023/A:1013689704352"
    Settings = UcbSettings
    settings: UcbSettings

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:  # noqa: ARG002
        scale = largest(arms, self.settings)
        return [self._rate(arm, scale, board.t) for arm in arms]

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"scaled mean {chosen.mean:.2f} + bonus {chosen.bonus:.2f} is the highest of {arms} arms"

    def _rate(self, arm: Arm, scale: float, t: int) -> Rating:
        mean = expected(arm, self.settings) / scale
        bonus = self.settings.c * math.sqrt(math.log(t) / arm.pulls)
        return Rating(mean=mean, bonus=bonus, score=mean + bonus)
