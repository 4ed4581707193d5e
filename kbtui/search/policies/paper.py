"""`--policy paper`: masked UCB over (cluster, strategy) arms. KernelBand (arXiv 2511.18868, ICML 2026).

docs/search.md gives the algorithm in full, and where this implementation departs from the published code's mistakes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from kbtui.search.arm_policy import Arm, ArmPolicy, Rating, softmax
from kbtui.search.arms import ArmKey, Board
from kbtui.search.mask import headroom, mask
from kbtui.search.prior import Prior
from kbtui.search.reward import paper_reward
from kbtui.search.settings import SearchSettings
from kbtui.state.events import Masked
from kbtui.state.records import STRATEGIES, ArmScore, Signature, Strategy
from kbtui.state.run_state import Candidate, RunState


class PaperSettings(SearchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    c: Annotated[float, msgspec.Meta(ge=0)] = 2.0
    """Weight of exploration."""


class PaperPolicy(ArmPolicy):
    """argmax over arms that are not held back of μ + c·sqrt(ln t / N)."""

    name = "paper"
    summary = "masked UCB over clusters and strategies, as published; c = 2 explores almost evenly for 20 pulls"
    source = "KernelBand, arXiv 2511.18868"
    Settings = PaperSettings
    settings: PaperSettings

    def rate(self, board: Board, arms: Sequence[Arm], generator: np.random.Generator) -> list[Rating]:  # noqa: ARG002
        bonuses = [self.settings.c * math.sqrt(math.log(board.t) / arm.pulls) for arm in arms]
        return [Rating(bonus=bonus, score=arm.mean + bonus) for arm, bonus in zip(arms, bonuses, strict=True)]

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"mean {chosen.mean:.2f} + bonus {chosen.bonus:.2f} is the highest of {arms} arms"

    def mask(self, state: RunState, pull: int) -> Masked:
        return mask(state, pull, self.parameters)

    def masked(self, state: RunState, cluster: int, strategy: Strategy) -> str:
        return state.held.get(cluster, {}).get(strategy, "")

    def priors(self, state: RunState) -> Mapping[ArmKey, Prior]:
        return {
            (cluster, strategy): Prior(headroom_percent=headroom(signature, strategy, self.settings))
            for cluster, signature in state.signatures.items()
            for strategy in STRATEGIES
        }

    def reward(self, parent: Candidate, child: Candidate | None) -> float:
        return paper_reward(parent, child)

    def parent_shares(self, candidates: Sequence[Candidate], strategy: Strategy) -> list[float]:
        """Softmax over (θ − h)[target(strategy)] / 100 / temperature.

        Headrooms are fractions of peak: over percent points a softmax is an argmax.
        """
        unknown = Signature()
        rooms = [headroom(candidate.signature or unknown, strategy, self.settings) for candidate in candidates]
        return softmax([None if room is None else room / 100 / self.settings.temperature for room in rooms])
