"""What a pull earned, and what its arm knows after it. KernelBand (arXiv 2511.18868)."""

from __future__ import annotations

from kbtui.search.arms import cluster_of, statistics, updated
from kbtui.state.events import Rewarded
from kbtui.state.records import Strategy
from kbtui.state.run_state import Candidate, RunState


def paper_reward(parent: Candidate, child: Candidate | None) -> float:
    """max(0, (T_parent − T_child) / T_parent), in [0, 1); 0 when the child failed or either has no time.

    Times are the run's objective, from ratios to the common baseline: T_child / T_parent = ratio_parent / ratio_child.
    Both ratios are measured or both are modelled; a measured one is never set against a modelled one.
    """
    if child is None or not child.correct:
        return 0.0
    for above, below in ((parent.ratio, child.ratio), (parent.estimate, child.estimate)):
        if above is not None and below is not None and above > 0 and below > 0:
            return max(0.0, 1.0 - above / below)
    return 0.0


def rewarded(
    state: RunState,
    pull: int,
    cluster: int,
    strategy: Strategy,
    candidate_id: int | None,
    reward: float,
    outcome: str,
) -> Rewarded:
    """The event that ends a pull: N ← N + 1, μ ← μ + (r − μ) / N.

    `cluster` is the one that was selected. If the frontier was clustered since, the reward goes to the cluster that the
    pull's parent is in now, as a recomputation from the pull log would have it.
    """
    begun = state.pulls.get(pull)
    now = cluster_of(state, begun.parent_id) if begun is not None else cluster
    pulls, mean = updated(*statistics(state, now, strategy), reward)
    return Rewarded(
        pull=pull,
        cluster=now,
        strategy=strategy,
        candidate_id=candidate_id,
        reward=reward,
        mean=mean,
        pulls=pulls,
        outcome=outcome,
    )
