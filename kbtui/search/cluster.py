"""Clusters of candidates that behave alike: k-means++ on z-scored features. KernelBand (arXiv 2511.18868).

A partition keeps the names of the one before as far as it can, and the arms' statistics are recomputed under it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from kbtui.search.arms import clusters_of, recomputed, resolve, time_step
from kbtui.search.features import features, known_features
from kbtui.search.policy import Purpose, draw
from kbtui.search.settings import settings_of
from kbtui.search.standing import Standing, standing_of
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
    return time_step(state) % settings.period == 0 and len(state.correct_ids) >= 2 * settings.clusters


def cluster(state: RunState, pull: int, seed: int) -> Clustered:
    """A new partition of the frontier into at most K clusters, and all arms' statistics under it.

    The order of the candidates does not matter. With fewer than K distinct points there are as many clusters as points,
    and the other names are empty. A candidate whose features are incomplete (untimed, say) goes to the centroid that is
    nearest by those it has; one that has none goes to cluster 0.
    """
    settings = settings_of(state)
    count = settings.clusters
    frontier, clusters = state.frontier, clusters_of(state)
    scale = _Scale.of(frontier, standing_of(state))
    complete = [candidate for candidate in frontier if candidate.id in scale.features]
    points = scale.points(complete)
    groups, distinct = _k_means(points, count, seed, pull)
    raw = {candidate.id: int(group) for candidate, group in zip(complete, groups, strict=True)}
    labels = _named(raw, {number: clusters[number] for number in raw}, count)
    labels |= _placed([c for c in frontier if c.id not in raw], complete, points, labels, scale)
    return Clustered(
        pull=pull,
        labels=labels,
        representatives=_representatives(frontier, complete, points, labels),
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
    standing = standing_of(state)
    found = {}
    for number, here in sorted(standing.members.items()):
        named = state.representatives.get(number, -1)
        if standing.clusters.get(named) == number and state.candidates[named].correct:
            found[number] = named
        elif not here[0].empty:
            scale = _Scale.of(here, standing)
            complete = [candidate for candidate in here if candidate.id in scale.features]
            labels = {candidate.id: number for candidate in here}
            found |= _representatives(here, complete, scale.points(complete), labels)
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
    def of(cls, candidates: Sequence[Candidate], standing: Standing) -> _Scale:
        found = ((candidate.id, standing.features(candidate)) for candidate in candidates)
        return cls({number: value for number, value in found if value is not None})

    def points(self, candidates: Sequence[Candidate]) -> Matrix:
        """Shape (candidates, 5); NaN where a feature is unknown."""
        rows = (_vector(self.features[c.id]) if c.id in self.features else known_features(c) for c in candidates)
        values = [[np.nan if value is None else value for value in row] for row in rows]
        return (np.array(values, dtype=np.float64).reshape(-1, 5) - self._mean) * self._inverse


def _vector(value: Features) -> tuple[float, ...]:
    vector: tuple[float, ...] = msgspec.structs.astuple(value)
    return vector


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
    incomplete: Sequence[Candidate],
    complete: Sequence[Candidate],
    points: Matrix,
    labels: Mapping[int, int],
    scale: _Scale,
) -> dict[int, int]:
    """Labels of candidates that lack features: the nearest centroid by those they have, cluster 0 without any."""
    if not incomplete:
        return {}
    centroids = _centroids(complete, points, labels)
    found = {}
    for candidate, point in zip(incomplete, scale.points(incomplete), strict=True):
        known = ~np.isnan(point)
        if not known.any() or not centroids:
            found[candidate.id] = 0
            continue
        distance = {number: float(np.sum((point - centroid)[known] ** 2)) for number, centroid in centroids.items()}
        found[candidate.id] = min(distance, key=lambda number: (distance[number], number))
    return found


def _centroids(candidates: Sequence[Candidate], points: Matrix, labels: Mapping[int, int]) -> dict[int, Matrix]:
    names = np.array([labels[candidate.id] for candidate in candidates], dtype=np.int_)
    return {int(number): points[names == number].mean(axis=0) for number in np.unique(names)}


def _representatives(
    candidates: Sequence[Candidate], complete: Sequence[Candidate], points: Matrix, labels: Mapping[int, int]
) -> dict[int, int]:
    """The candidate nearest its centroid, the oldest of equals; in a cluster where none has all features, the oldest.

    `points` are those of the `complete` ones, which have all.
    """
    centroids = _centroids(complete, points, labels)
    found: dict[int, tuple[float, int]] = {}
    if complete:
        middle = np.array([centroids[labels[candidate.id]] for candidate in complete])
        # Rounded, so that the choice among identical candidates does not hang on the order of a sum.
        distances = np.sum((points - middle) ** 2, axis=1).round(9).tolist()
        for candidate, distance in zip(complete, distances, strict=True):
            number, here = labels[candidate.id], (distance, candidate.id)
            found[number] = min(found.get(number, here), here)
    chosen = {number: candidate_id for number, (_, candidate_id) in found.items()}
    for candidate in candidates:
        chosen.setdefault(labels[candidate.id], candidate.id)
    return dict(sorted(chosen.items()))
