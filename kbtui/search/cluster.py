"""Clusters of candidates that behave alike: k-means++ on z-scored features. KernelBand (arXiv 2511.18868).

A partition keeps the names of the one before as far as it can, and the arms' statistics are recomputed under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from kbtui.search.arms import cluster_of, clusters_of, recomputed, resolve, time_step
from kbtui.search.features import features, known_features
from kbtui.search.policy import Purpose, draw
from kbtui.search.settings import settings_of
from kbtui.state.events import Clustered
from kbtui.state.records import Features
from kbtui.state.run_state import Candidate, RunState

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from threadpoolctl import ThreadpoolController

    Matrix = NDArray[np.float64]

__all__ = ["cluster", "due", "features", "representatives"]


def due(state: RunState, pull: int) -> bool:
    """Whether the frontier is to be clustered before this pull: t mod τ = 0, and it holds at least 2K candidates.

    False once it was done for this pull, so that a resumed run does not do it twice.
    """
    settings = settings_of(state)
    if state.last_clustered is not None and state.last_clustered.pull == pull:
        return False
    return time_step(state) % settings.period == 0 and len(state.frontier) >= 2 * settings.clusters


def cluster(state: RunState, pull: int, seed: int) -> Clustered:
    """A new partition of the frontier into at most K clusters, and all arms' statistics under it.

    The order of the candidates does not matter. With fewer than K distinct points there are as many clusters as points,
    and the other names are empty. A candidate whose features are incomplete (untimed, say) goes to the centroid that is
    nearest by those it has; one that has none goes to cluster 0.
    """
    settings = settings_of(state)
    count = settings.clusters
    frontier = sorted(state.frontier, key=lambda candidate: candidate.id)
    scale = _Scale.of(frontier)
    complete = [candidate for candidate in frontier if candidate.id in scale.features]
    groups, distinct = _k_means(scale.points(complete), count, seed, pull)
    raw = {candidate.id: int(group) for candidate, group in zip(complete, groups, strict=True)}
    labels = _named(raw, {number: cluster_of(state, number) for number in raw}, count)
    labels |= _placed([c for c in frontier if c.id not in raw], complete, labels, scale)
    return Clustered(
        pull=pull,
        labels=labels,
        representatives=_representatives(frontier, labels, scale),
        features=scale.features,
        arms=recomputed(
            state.pulls.values(), lambda parent: resolve(state, labels, parent), range(count), settings.prior_mean
        ),
        reason=f"{len(complete)} of {len(frontier)} candidates have all features, {distinct} of them differ",
    )


def representatives(state: RunState) -> dict[int, int]:
    """The member nearest the centroid of each cluster that has members, under the present partition.

    Those that the last clustering named, where they are still in their cluster; before the first one, of all candidates.
    """
    clusters = clusters_of(state)
    members: dict[int, list[Candidate]] = {}
    for candidate in sorted(state.frontier, key=lambda candidate: candidate.id):
        members.setdefault(clusters[candidate.id], []).append(candidate)
    found = {}
    for number, here in sorted(members.items()):
        named = state.representatives.get(number)
        if named is not None and any(candidate.id == named for candidate in here):
            found[number] = named
        else:
            found |= _representatives(here, {candidate.id: number for candidate in here}, _Scale.of(here))
    return found


class _Scale:
    """z-scores: each feature minus its mean over the candidates that have all, over its standard deviation.

    A feature that does not vary is 0 for all.
    """

    def __init__(self, known: Mapping[int, Features]) -> None:
        self.features = dict(known)
        self._table = np.array([_vector(value) for value in known.values()], dtype=np.float64).reshape(-1, 5)
        self._mean = self._table.mean(axis=0) if len(known) else np.zeros(5)
        deviation = self._table.std(axis=0) if len(known) else np.ones(5)
        # Equal values can leave a deviation of a few ulps, which would blow rounding up to a feature of its own.
        varies = deviation > 1e-9 * np.maximum(1.0, np.abs(self._mean))
        self._inverse = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> _Scale:
        found = ((candidate.id, features(candidate)) for candidate in candidates)
        return cls({number: value for number, value in found if value is not None})

    def points(self, candidates: Sequence[Candidate]) -> Matrix:
        """Shape (candidates, 5); NaN where a feature is unknown."""
        rows = (_vector(self.features[c.id]) if c.id in self.features else known_features(c) for c in candidates)
        values = [[np.nan if value is None else value for value in row] for row in rows]
        return (np.array(values, dtype=np.float64).reshape(-1, 5) - self._mean) * self._inverse


def _vector(value: Features) -> tuple[float, ...]:
    return tuple(getattr(value, name) for name in value.__struct_fields__)


def _k_means(points: Matrix, count: int, seed: int, pull: int) -> tuple[NDArray[np.int_], int]:
    """Groups of the points, numbered from 0 in no particular order; and how many distinct points there are."""
    # Rounding keeps two candidates that differ in the last bit of a logarithm from being two points.
    distinct = len(np.unique(np.round(points, 9), axis=0)) if len(points) else 0
    wanted = min(count, distinct)
    if wanted <= 1:
        return np.zeros(len(points), dtype=np.int_), distinct
    from sklearn.cluster import KMeans

    state = int(draw(seed, pull, Purpose.CLUSTER).integers(2**31))
    model = KMeans(n_clusters=wanted, init="k-means++", n_init=10, random_state=state)
    # A pool of threads costs more than the work, by a factor of hundreds where the cores are busy.
    with _pools().limit(limits=1):
        return np.asarray(model.fit_predict(np.round(points, 9)), dtype=np.int_), distinct


@lru_cache(maxsize=1)
def _pools() -> ThreadpoolController:
    """The process's thread pools. To find them takes longer than to cluster; scikit-learn is imported before this."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _named(raw: Mapping[int, int], before: Mapping[int, int], count: int) -> dict[int, int]:
    """Rename groups so that as many candidates as possible keep their cluster's name.

    Every assignment of names is tried (K is small). Ties go to the assignment that gives low names to the groups with
    the oldest members.
    """
    oldest = {group: min(number for number in raw if raw[number] == group) for group in set(raw.values())}
    groups = sorted(oldest, key=lambda group: oldest[group])

    def kept(names: tuple[int, ...]) -> int:
        name = dict(zip(groups, names, strict=True))
        return sum(name[group] == before[number] for number, group in raw.items())

    # `max` keeps the first of equals, and permutations come in ascending order.
    best = max(permutations(range(count), len(groups)), key=kept)
    name = dict(zip(groups, best, strict=True))
    return {number: name[group] for number, group in raw.items()}


def _placed(
    incomplete: Sequence[Candidate], complete: Sequence[Candidate], labels: Mapping[int, int], scale: _Scale
) -> dict[int, int]:
    """Labels of candidates that lack features: the nearest centroid by those they have, cluster 0 without any."""
    centroids = _centroids(complete, labels, scale)
    found = {}
    for candidate, point in zip(incomplete, scale.points(incomplete), strict=True):
        known = ~np.isnan(point)
        if not known.any() or not centroids:
            found[candidate.id] = 0
            continue
        distance = {number: float(np.sum((point - centroid)[known] ** 2)) for number, centroid in centroids.items()}
        found[candidate.id] = min(distance, key=lambda number: (distance[number], number))
    return found


def _centroids(candidates: Sequence[Candidate], labels: Mapping[int, int], scale: _Scale) -> dict[int, Matrix]:
    points = scale.points(candidates)
    names = np.array([labels[candidate.id] for candidate in candidates], dtype=np.int_)
    return {int(number): points[names == number].mean(axis=0) for number in np.unique(names)}


def _representatives(candidates: Sequence[Candidate], labels: Mapping[int, int], scale: _Scale) -> dict[int, int]:
    """The candidate nearest its centroid, the oldest of equals; in a cluster where none has all features, the oldest."""
    complete = [candidate for candidate in candidates if candidate.id in scale.features]
    centroids = _centroids(complete, labels, scale)
    found: dict[int, tuple[float, int]] = {}
    for candidate, point in zip(complete, scale.points(complete), strict=True):
        number = labels[candidate.id]
        # Rounded, so that the choice among identical candidates does not hang on the order of a sum.
        here = (round(float(np.sum((point - centroids[number]) ** 2)), 9), candidate.id)
        found[number] = min(found.get(number, here), here)
    chosen = {number: candidate_id for number, (_, candidate_id) in found.items()}
    for candidate in candidates:
        chosen.setdefault(labels[candidate.id], candidate.id)
    return dict(sorted(chosen.items()))
