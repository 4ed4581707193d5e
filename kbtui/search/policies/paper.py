"""`--policy paper`: masked UCB over (cluster, strategy) arms. KernelBand (arXiv 2511.18868, ICML 2026).

docs/search.md gives the algorithm in full, and where this implementation departs from the published code's mistakes.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from kbtui.search.arm_policy import ArmPolicy
from kbtui.search.settings import SearchSettings
from kbtui.state.records import ArmScore


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

    def rate(self, mean: float, pulls: float, t: int) -> tuple[float, float]:
        bonus = self.settings.c * math.sqrt(math.log(t) / pulls)
        return bonus, mean + bonus

    def reason(self, chosen: ArmScore, arms: int) -> str:
        return f"mean {chosen.mean:.2f} + bonus {chosen.bonus:.2f} is the highest of {arms} arms"
