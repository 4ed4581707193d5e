"""What the policies beside the published one share: masks as a prior, log gains as rewards, fast parents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kbtui.search.arm_policy import Arm, ArmPolicy, softmax
from kbtui.search.arms import ArmKey
from kbtui.search.cluster import representatives
from kbtui.search.mask import signatures_of
from kbtui.search.prior import Prior, prior
from kbtui.search.reward import learning_reward
from kbtui.search.settings import SoftSettings
from kbtui.state.events import Masked
from kbtui.state.records import STRATEGIES, Strategy
from kbtui.state.run_state import Candidate, RunState


class SoftPolicy(ArmPolicy):
    """A saturated resource lowers what is expected of an arm; nothing that a person did not ban is ever out of reach."""

    Settings: type[SoftSettings] = SoftSettings
    settings: SoftSettings

    def mask(self, state: RunState, pull: int) -> Masked:
        return Masked(pull=pull, signatures=signatures_of(state), held={})

    def reward(self, parent: Candidate, child: Candidate | None) -> float:
        return learning_reward(parent, child)

    def parent_shares(self, candidates: Sequence[Candidate], strategy: Strategy) -> list[float]:  # noqa: ARG002
        """P(p) ∝ speed ^ (1 / temperature): what is kept is the fastest version, and gains multiply along a chain."""
        speeds = [one.ratio if one.ratio is not None else one.estimate for one in candidates]
        return softmax([math.log(speed) / self.settings.temperature if speed else None for speed in speeds])

    def priors(self, state: RunState) -> Mapping[ArmKey, Prior]:
        return {
            (cluster, strategy): prior(state, state.candidates[representative], strategy, self.settings)
            for cluster, representative in representatives(state).items()
            for strategy in STRATEGIES
        }


def expected(arm: Arm, settings: SoftSettings) -> float:
    """Mean reward of the arm with one pull of the prior's weight: (w·μ₀ + Σ r) / (1 + plays)."""
    rewards = math.fsum(play.reward for play in arm.log)
    return (settings.prior_mean * arm.prior.weight + rewards) / (1 + len(arm.log))


def largest(arms: Sequence[Arm], settings: SoftSettings) -> float:
    """What rewards are divided by: the largest of the run so far; twice the prior mean before there is a larger one.

    So an arm without a pull begins at 1/2, as in the published policy, whether gains are of 1 % or of 100 %.
    """
    return max((play.reward for arm in arms for play in arm.log), default=0.0) or 2 * settings.prior_mean
