"""The arms of a run and their statistics, read off its state. Statistics live in the pull log and under the clusters'
names, never under positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kbtui.state.records import STRATEGIES, ArmStatistics, Strategy
from kbtui.state.run_state import Candidate, Pull, RunState

PRIOR_PULLS = 1.0
"""N of an arm that was never played."""
PRIOR_MEAN = 0.5
"""μ of an arm that was never played."""

ArmKey = tuple[int, str]


def time_step(state: RunState) -> int:
    """t of the next choice: 1 + pulls that the bandit saw + pulls in flight. Dropped pulls do not count."""
    return 1 + sum(pull.seen or not pull.ended for pull in state.pulls.values())


def cluster_of(state: RunState, candidate_id: int) -> int:
    """The candidate's cluster: its label, or its nearest labelled ancestor's while it is younger than the partition; else 0."""
    return resolve(state, state.labels, candidate_id)


def resolve(state: RunState, labels: dict[int, int], candidate_id: int) -> int:
    """`cluster_of` under other labels (a partition that is about to be)."""
    current: int | None = candidate_id
    while current is not None:
        if current in labels:
            return labels[current]
        candidate = state.candidates.get(current)
        current = candidate.parent_id if candidate is not None else None
    return 0


def members(state: RunState, cluster: int) -> list[Candidate]:
    """The frontier's candidates in the cluster, by id."""
    return sorted(
        (candidate for candidate in state.frontier if cluster_of(state, candidate.id) == cluster),
        key=lambda candidate: candidate.id,
    )


def parents(state: RunState, cluster: int, strategy: Strategy) -> list[Candidate]:
    """Members that a pull of the arm may start from: those that still have a move; the pinned one only, if one is pinned."""
    return [
        candidate
        for candidate in members(state, cluster)
        if candidate.moves.get(strategy, 0) > 0 and state.pinned in (None, candidate.id)
    ]


def statistics(state: RunState, cluster: int, strategy: str) -> tuple[float, float]:
    """(N, μ) of an arm after the rewards so far."""
    arm = state.arms.get((cluster, strategy))
    return (arm.pulls, arm.mean) if arm is not None else (PRIOR_PULLS, PRIOR_MEAN)


def in_flight(state: RunState) -> dict[ArmKey, int]:
    """Pulls begun and not ended, by arm under the present partition."""
    found: dict[ArmKey, int] = {}
    for pull in state.open_pulls:
        key = (cluster_of(state, pull.parent_id), pull.strategy)
        found[key] = found.get(key, 0) + 1
    return found


def updated(pulls: float, mean: float, reward: float) -> tuple[float, float]:
    """(N, μ) after one more reward: N ← N + 1, μ ← μ + (r − μ) / N."""
    pulls += 1
    return pulls, mean + (reward - mean) / pulls


def recomputed(
    pulls: Iterable[Pull], cluster: Callable[[int], int], clusters: Iterable[int]
) -> tuple[ArmStatistics, ...]:
    """Statistics of every arm of `clusters` from the pull log, where `cluster(parent_id)` is a pull's cluster."""
    found: dict[ArmKey, tuple[float, float]] = {
        (number, strategy): (PRIOR_PULLS, PRIOR_MEAN) for number in clusters for strategy in STRATEGIES
    }
    for pull in sorted(pulls, key=lambda pull: pull.number):
        if pull.seen and pull.reward is not None:
            key = (cluster(pull.parent_id), pull.strategy)
            found[key] = updated(*found.get(key, (PRIOR_PULLS, PRIOR_MEAN)), pull.reward)
    return tuple(
        ArmStatistics(
            cluster=number, strategy=strategy, pulls=found[number, strategy][0], mean=found[number, strategy][1]
        )
        for number in sorted({key[0] for key in found})
        for strategy in STRATEGIES
        if (number, strategy) in found
    )
