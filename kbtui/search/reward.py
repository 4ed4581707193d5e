"""What a pull earned, and what its arm knows after it."""

from __future__ import annotations

import math

from kbtui.search.arms import cluster_of, statistics, updated
from kbtui.search.settings import settings_of
from kbtui.state.events import Rewarded
from kbtui.state.records import Strategy, Timing
from kbtui.state.run_state import Candidate, RunState

TYPICAL_GAIN = 0.1
"""Spread of true log gains that measured ones are shrunk by: most moves change a kernel's time by some 10 %."""
_INTERVAL = 2 * 1.96
"""Standard errors between the ends of a 95 % interval."""


def paper_reward(parent: Candidate, child: Candidate | None) -> float:
    """max(0, (T_parent − T_child) / T_parent), in [0, 1); 0 when the child failed or either has no time. KernelBand
    (arXiv 2511.18868).

    Times are the run's objective, from ratios to the common baseline: T_child / T_parent = ratio_parent / ratio_child.
    Both ratios are measured or both are modelled; a measured one is never set against a modelled one.
    """
    gain = log_gain(parent, child)
    return 0.0 if gain is None else max(0.0, -math.expm1(-gain))


def learning_reward(parent: Candidate, child: Candidate | None) -> float:
    """max(0, g·τ² / (τ² + s²)) with g = ln(T_parent / T_child), its standard error s, and τ = `TYPICAL_GAIN`.

    The factor is the posterior mean of a gain that is N(0, τ²) at first: a gain within the noise is worth next to
    nothing, a clear one all of itself. Logarithms add up along a chain of versions, so that two steps of 10 % earn
    the same from a fast parent as from a slow one. 0 when the child failed, is no faster, or either has no time: only
    what is faster is kept. A modelled time has no noise, hence s = 0.
    """
    gain = log_gain(parent, child)
    if gain is None or child is None:
        return 0.0
    error = math.hypot(_standard_error(_beside(parent, child)), _standard_error(child.timing))
    return max(0.0, gain) * TYPICAL_GAIN**2 / (TYPICAL_GAIN**2 + error**2)


def log_gain(parent: Candidate, child: Candidate | None) -> float | None:
    """ln(T_parent / T_child); None when the child failed or they have no times of one kind.

    In a run on several devices both times are of the child's device if the parent has one there; else each is a ratio to
    the baseline on its own device, which is near enough to steer by and decides nothing.
    """
    if child is None or not child.correct or child.timing is None:
        return None
    before, after = _beside(parent, child), child.timing
    if before is None:
        return None
    for above, below in ((before.ratio, after.ratio), (before.estimate, after.estimate)):
        if above is not None and below is not None and above > 0 and below > 0:
            return math.log(below / above)
    return None


def _beside(parent: Candidate, child: Candidate) -> Timing | None:
    return parent.timing_on(child.device) or parent.timing


def _standard_error(timing: Timing | None) -> float:
    """Of the logarithm of the measured ratio to the baseline, from its interval; 0 for the baseline and without one."""
    if timing is None or timing.low is None or timing.high is None or not 0 < timing.low <= timing.high:
        return 0.0
    return math.log(timing.high / timing.low) / _INTERVAL


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
    pulls, mean = updated(*statistics(state, now, strategy, settings_of(state).prior_mean), reward)
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
