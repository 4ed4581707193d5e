"""A simulated world: arms of hidden worth whose gains decay with use, and versions that fail about half of the time.

Not a model of any GPU: the shapes are assumptions, stated here, and what follows from them holds for policies under them only.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from kbtui.state.records import STRATEGIES, CaseInfo, DeviceInfo, Strategy, TimingKind
from offline.world import Version, World

MEAN_GAIN = 0.1
"""Mean of the arms' hidden gains, which are exponential: few arms are worth much. In log units, 0.1 being 10 %."""
SPREAD = 0.1
"""Standard deviation of a version's log gain around its arm's."""
NORMAL = NormalDist()


@dataclass(frozen=True)
class Place:
    """Where a version is: its cluster, and how often each strategy was used on the way to it."""

    cluster: int
    used: tuple[tuple[str, int], ...] = ()


class SimulatedWorld(World):
    """K clusters x 6 strategies. A pull of arm (i, s) on a version fails with probability f(i, s) ~ U(0.4, 0.6); else its
    log gain is N(q(i, s)·ρ^m − drift, SPREAD²), with q ~ Exp(MEAN_GAIN), ρ ~ U(0.3, 0.8) and m the uses of s on the way
    to the version. `drift` is SPREAD: most correct versions of a worn arm are slower than their parent."""

    timing: TimingKind = "measured"
    cases = (CaseInfo(name="simulated", fields={}),)
    device = DeviceInfo(lane="simulated", kind="cuda", name="simulated", target="")

    def __init__(self, clusters: int, seed: int) -> None:
        generator = np.random.default_rng([seed, clusters])
        self.name = f"simulated, {6 * clusters} arms"
        shape = (clusters, len(STRATEGIES))
        self._gain = generator.exponential(MEAN_GAIN, shape)
        self._decay = generator.uniform(0.3, 0.8, shape)
        self._failure = generator.uniform(0.4, 0.6, shape)
        self.starts = tuple(
            Version(f"start {number}", 1.0, ms=(1.0,), where=Place(number)) for number in range(clusters)
        )
        self.labels = {number: number for number in range(clusters)}

    def moves(self, version: Version) -> dict[str, int]:  # noqa: ARG002
        return dict.fromkeys(STRATEGIES, 100)

    def pull(
        self, parent: Version, strategy: Strategy, known: set[str], generator: np.random.Generator
    ) -> Version | None:
        place = parent.where
        key = f"{len(known)} {strategy}"
        if parent.speed is None or generator.random() < self._failure[place.cluster, STRATEGIES.index(strategy)]:
            return Version(key, None, where=place)
        gain = float(generator.normal(self._mean(place, strategy), SPREAD))
        used = Counter(dict(place.used))
        used[strategy] += 1
        speed = parent.speed * math.exp(gain)
        return Version(key, speed, ms=(1.0 / speed,), where=Place(place.cluster, tuple(sorted(used.items()))))

    def expected(self, parent: Version, strategy: Strategy) -> float:
        place = parent.where
        z = self._mean(place, strategy) / SPREAD
        gain = SPREAD * (NORMAL.pdf(z) + z * NORMAL.cdf(z))
        return float((1 - self._failure[place.cluster, STRATEGIES.index(strategy)]) * gain)

    def _mean(self, place: Place, strategy: Strategy) -> float:
        index = place.cluster, STRATEGIES.index(strategy)
        return float(self._gain[index] * self._decay[index] ** dict(place.used).get(strategy, 0) - SPREAD)
