"""`--policy thompson`: discounted Thompson sampling on validity times log gain.

Discounting of the posteriors' parameters as in Raj and Kalyani, "Taming non-stationary bandits: a Bayesian approach"
(arXiv 1707.09727), there for the Beta posterior; here the same weights enter the normal-gamma posterior of the log gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from kbtui.search.arm_policy import Arm, Rating
from kbtui.search.arms import Board, Play
from kbtui.search.settings import Positive, SoftSettings
from kbtui.search.soft_policy import SoftPolicy
from kbtui.state.records import ArmScore

_SHAPE = 2.0
"""Of the gamma prior of the precision. At 2 a draw has a variance before anything is known, at 1 it has none."""


class ThompsonSettings(SoftSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    discount: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.97
    """γ: what a pull's outcome weighs after one more pull of any arm; 1 forgets nothing."""
    spread: Positive = 0.1
    """Standard deviation of log gains that is believed at first."""


class Posterior(msgspec.Struct, frozen=True):
    """Beta(a, b) of the probability that a pull makes a correct version; normal-gamma(m, κ, α, β) of the log gain of one."""

    a: float
    b: float
    m: float
    kappa: float
    alpha: float
    beta: float


class ThompsonPolicy(SoftPolicy):
    """argmax of p·g, with p and g drawn from each arm's posterior: what the next pull gains, as far as is known."""

    name = "thompson"
    summary = (
        "Thompson sampling on validity x log gain; outcomes fade with age, since gains run out as kernels get faster"
    )
    source = "discounted Thompson sampling, arXiv 1707.09727"
    Settings = ThompsonSettings
    settings: ThompsonSettings

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:
        # A stream for each arm: how many numbers a gamma takes depends on its shape, and what one arm learned must not
        # shift the draws of another.
        return [self._rate(arm, board.t, own) for arm, own in zip(arms, generator.spawn(len(arms)), strict=True)]

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"drew {chosen.score:.3f} where {chosen.mean:.3f} is expected, the highest of {arms} arms"

    def posterior(self, arm: Arm, t: int) -> Posterior:
        """What is believed of an arm at time step t. A pull in flight counts as a failure until it ends, which lowers the
        draw and never raises it."""
        weights = [self.settings.discount ** (t - play.t) for play in arm.log]
        valid = [(weight, play) for weight, play in zip(weights, arm.log, strict=True) if play.valid]
        m0 = self.settings.prior_mean * arm.prior.weight
        n = math.fsum(weight for weight, _ in valid)
        mean = _mean(valid, n)
        squares = math.fsum(weight * (play.reward - mean) ** 2 for weight, play in valid)
        return Posterior(
            a=1 + n,
            b=1 + max(0.0, math.fsum(weights) - n) + arm.playing,
            m=(m0 + n * mean) / (1 + n),
            kappa=1 + n,
            alpha=_SHAPE + n / 2,
            beta=(_SHAPE - 1) * self.settings.spread**2 + squares / 2 + n * (mean - m0) ** 2 / (2 * (1 + n)),
        )

    def _rate(self, arm: Arm, t: int, generator: np.random.Generator) -> Rating:
        belief = self.posterior(arm, t)
        p = float(generator.beta(belief.a, belief.b))
        precision = max(float(generator.gamma(belief.alpha)) / belief.beta, 1e-12)
        gain = belief.m + float(generator.standard_normal()) / math.sqrt(belief.kappa * precision)
        mean = belief.a / (belief.a + belief.b) * belief.m
        # A negative draw times a small p would beat one times a large p; a gain below 0 is a version that is not kept.
        score = p * max(gain, 0.0)
        return Rating(mean=mean, bonus=score - mean, score=score)


def _mean(valid: Sequence[tuple[float, Play]], n: float) -> float:
    return math.fsum(weight * play.reward for weight, play in valid) / n if n > 0 else 0.0
