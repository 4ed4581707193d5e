"""The arms of a run and what is known of them, read off its state. Statistics live in the pull log and under the clusters'
names, never under positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kbtui.search.standing import DUPLICATES, ArmKey, Play, standing_of
from kbtui.state.records import PRIOR_PULLS, STRATEGIES, ArmStatistics
from kbtui.state.run_state import Candidate, Pull, RunState

__all__ = [
    "DUPLICATES", "ArmKey", "Board", "Play", "cluster_of", "clusters_of", "in_flight", "members", "recomputed", "resolve",
    "statistics", "time_step", "updated",
]  # fmt: skip


class Board:
    """What a choice needs to know of a run. The next event makes it out of date."""

    def __init__(self, state: RunState) -> None:
        self.state = state
        self._standing = standing_of(state)
        self.clusters = self._standing.clusters
        """The cluster of every candidate, by id."""
        self.members = self._standing.members
        """What pulls may start from by cluster, by id: the frontier's candidates, or an empty start before there are any."""
        self.playing = in_flight(state, self.clusters)
        self.log = self._standing.log
        """Rewarded pulls by arm under the present partition, the oldest first."""
        self.t = time_step(state)
        """The time step of the next choice: 1 + pulls that the bandit saw + pulls in flight. Dropped pulls do not count."""
        self.resting = self._standing.resting(state)
        """(parent id, strategy) of which three versions in a row were known already."""

    def begin(self, cluster: int, strategy: str) -> None:
        """Count one more pull of the arm as in flight."""
        key = (cluster, strategy)
        self.playing[key] = self.playing.get(key, 0) + 1
        self.t += 1

    def able(self, cluster: int, strategy: str) -> list[Candidate]:
        """Members with a move of the strategy, resting or not; the pinned one only, if one is pinned."""
        found, pinned = self._standing.able.get((cluster, strategy), []), self.state.pinned
        return found if pinned is None else [one for one in found if one.id == pinned]

    def parents(self, cluster: int, strategy: str) -> list[Candidate]:
        """Members that a pull of the arm may start from."""
        found = self.able(cluster, strategy)
        return [one for one in found if (one.id, strategy) not in self.resting] if self.resting else found

    def playable(self, cluster: int, strategy: str) -> bool:
        """Whether the arm has a parent and nobody banned it."""
        return not self.state.banned(cluster, strategy) and bool(self.parents(cluster, strategy))


def time_step(state: RunState) -> int:
    """t of the next choice, as `Board.t`."""
    return 1 + len(standing_of(state).seen) + len(state.open_numbers)


def cluster_of(state: RunState, candidate_id: int) -> int:
    """The candidate's cluster: its label, or its nearest labelled ancestor's while it is younger than the partition; else 0."""
    return resolve(state, state.labels, candidate_id)


def resolve(state: RunState, labels: dict[int, int], candidate_id: int) -> int:
    """`cluster_of` under other labels (a partition that is about to be)."""
    current: int | None = candidate_id if labels else None
    while current is not None:
        if current in labels:
            return labels[current]
        candidate = state.candidates.get(current)
        current = candidate.parent_id if candidate is not None else None
    return 0


def clusters_of(state: RunState) -> Mapping[int, int]:
    """`cluster_of` every candidate."""
    return standing_of(state).clusters


def members(state: RunState, cluster: int) -> list[Candidate]:
    """The frontier's candidates in the cluster, by id."""
    return sorted(
        (candidate for candidate in state.frontier if cluster_of(state, candidate.id) == cluster),
        key=lambda candidate: candidate.id,
    )


def statistics(state: RunState, cluster: int, strategy: str, prior: float) -> tuple[float, float]:
    """(N, μ) of an arm after the rewards so far; `prior` is the μ of one that was never played."""
    arm = state.arms.get((cluster, strategy))
    return (arm.pulls, arm.mean) if arm is not None else (PRIOR_PULLS, prior)


def in_flight(state: RunState, clusters: Mapping[int, int]) -> dict[ArmKey, int]:
    """Pulls begun and not ended, by arm, where `clusters` has the cluster of each candidate."""
    found: dict[ArmKey, int] = {}
    for pull in state.open_pulls:
        key = (clusters.get(pull.parent_id, 0), pull.strategy)
        found[key] = found.get(key, 0) + 1
    return found


def updated(pulls: float, mean: float, reward: float) -> tuple[float, float]:
    """(N, μ) after one more reward: N ← N + 1, μ ← μ + (r − μ) / N."""
    pulls += 1
    return pulls, mean + (reward - mean) / pulls


def recomputed(
    pulls: Iterable[Pull], cluster: Callable[[int], int], clusters: Iterable[int], prior: float
) -> tuple[ArmStatistics, ...]:
    """Statistics of every arm of `clusters` from the pull log, where `cluster(parent_id)` is a pull's cluster and `prior`
    the μ of an arm without a pull."""
    found: dict[ArmKey, tuple[float, float]] = {
        (number, strategy): (PRIOR_PULLS, prior) for number in clusters for strategy in STRATEGIES
    }
    for pull in sorted(pulls, key=lambda pull: pull.number):
        if pull.seen and pull.reward is not None:
            key: ArmKey = (cluster(pull.parent_id), pull.strategy)
            found[key] = updated(*found.get(key, (PRIOR_PULLS, prior)), pull.reward)
    return tuple(
        ArmStatistics(
            cluster=number, strategy=strategy, pulls=found[number, strategy][0], mean=found[number, strategy][1]
        )
        for number in sorted({key[0] for key in found})
        for strategy in STRATEGIES
        if (number, strategy) in found
    )
