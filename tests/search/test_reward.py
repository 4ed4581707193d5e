"""Rewards and the recurrences of N and μ."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.search.registry import POLICIES, make_policy
from kbtui.search.reward import TYPICAL_GAIN, learning_reward, paper_reward, rewarded
from kbtui.state import events as e
from kbtui.state import records as r


@pytest.mark.parametrize("timing", ["measured", "modelled"])
@pytest.mark.parametrize(("child_ms", "reward"), [(5.0, 0.5), (9.0, 0.1), (10.0, 0.0), (20.0, 0.0)])
def test_the_reward_is_the_share_of_the_parents_time_saved(
    build: Any, timing: str, child_ms: float, reward: float
) -> None:
    builder = build(timing=timing)
    builder.candidate(0, ms=10.0)
    builder.candidate(1, ms=child_ms)
    parent, child = builder.state.candidates[0], builder.state.candidates[1]
    assert paper_reward(parent, child) == pytest.approx(reward)


def test_the_reward_is_against_the_parent_and_not_the_baseline(build: Any) -> None:
    builder = build()
    builder.candidate(0, ms=10.0)
    builder.candidate(1, ms=4.0)
    builder.candidate(2, parent_id=1, ms=2.0)
    assert paper_reward(builder.state.candidates[1], builder.state.candidates[2]) == pytest.approx(0.5)


def test_failures_earn_nothing(build: Any) -> None:
    builder = build()
    builder.candidate(0, ms=10.0)
    builder.candidate(1, verdict="wrong")
    builder.candidate(2, ms=None)
    parent = builder.state.candidates[0]
    assert paper_reward(parent, None) == 0.0
    assert paper_reward(parent, builder.state.candidates[1]) == 0.0
    assert paper_reward(parent, builder.state.candidates[2]) == 0.0
    assert paper_reward(builder.state.candidates[2], parent) == 0.0


def test_measured_and_modelled_times_are_never_set_against_each_other(build: Any) -> None:
    measured, modelled = build(), build(timing="modelled")
    measured.candidate(0, ms=10.0)
    modelled.candidate(0, ms=5.0)
    assert paper_reward(measured.state.candidates[0], modelled.state.candidates[0]) == 0.0


@given(parent=st.floats(1e-3, 1e3), child=st.floats(1e-3, 1e3))
def test_the_reward_equals_the_formula_on_times_and_is_bounded(build: Any, parent: float, child: float) -> None:
    builder = build()
    builder.candidate(0, ms=parent)
    builder.candidate(1, ms=child)
    found = paper_reward(builder.state.candidates[0], builder.state.candidates[1])
    assert found == pytest.approx(max(0.0, (parent - child) / parent), abs=1e-9)
    assert 0.0 <= found < 1.0


@given(rewards=st.lists(st.floats(0, 1), max_size=30))
def test_n_counts_and_mu_is_the_mean_with_the_prior(build: Any, rewards: list[float]) -> None:
    builder = build()
    builder.candidate(0)
    for number, value in enumerate(rewards, 1):
        builder.play(number, 0, "fusion", 0, value)
    pulls, mean = 1.0, 0.5
    for value in rewards:
        pulls += 1
        mean += (value - mean) / pulls
    if rewards:
        arm = builder.state.arms[0, "fusion"]
        assert (arm.pulls, arm.mean) == (pulls, mean)
        assert arm.mean == pytest.approx((0.5 + sum(rewards)) / (1 + len(rewards)))
    else:
        assert builder.state.arms == {}


def test_a_reward_after_a_new_partition_goes_to_the_parents_present_cluster(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    builder.candidate(1)
    builder.begin(1, 0, "tiling", parent_id=1)
    builder.emit(e.Clustered(pull=2, labels={0: 0, 1: 2}, representatives={}, features={}, arms=()))
    event = rewarded(builder.state, 1, 0, "tiling", None, 0.25, "faster")
    assert (event.cluster, event.pulls, event.mean) == (2, 2.0, 0.375)
    assert (event.pull, event.strategy, event.reward, event.outcome) == (1, "tiling", 0.25, "faster")


# ---------------------------------------------------------------- the reward of the other policies


def timed(build: Any, low: float | None, high: float | None, ratio: float) -> Any:
    """A candidate of that measured ratio to the baseline and 95 % interval."""
    builder = build()
    builder.candidate(0)
    timing = r.Timing(kind="measured", verdict="faster", cases=(), ratio=ratio, low=low, high=high)
    builder.emit(e.Timed(candidate_id=0, timing=timing, signature=r.Signature()))
    return builder.state.candidates[0]


def test_gains_add_up_along_a_chain(build: Any) -> None:
    first, second, third = (timed(build, None, None, ratio) for ratio in (1.0, 1.2, 1.2 * 1.5))
    assert learning_reward(first, second) == pytest.approx(math.log(1.2))
    assert learning_reward(first, third) == pytest.approx(
        learning_reward(first, second) + learning_reward(second, third)
    )
    assert learning_reward(third, first) == 0.0


def test_a_gain_within_the_noise_is_worth_next_to_nothing(build: Any) -> None:
    parent = timed(build, None, None, 1.0)
    clear = learning_reward(parent, timed(build, 1.099, 1.101, 1.1))
    noisy = learning_reward(parent, timed(build, 0.6, 2.0, 1.1))
    assert clear == pytest.approx(math.log(1.1), rel=1e-3)
    error = math.log(2.0 / 0.6) / (2 * 1.96)
    assert noisy == pytest.approx(math.log(1.1) * TYPICAL_GAIN**2 / (TYPICAL_GAIN**2 + error**2))
    assert noisy < 0.2 * clear


def test_the_noise_of_both_sides_counts(build: Any) -> None:
    child = timed(build, 1.4, 1.6, 1.5)
    exact, vague = timed(build, None, None, 1.0), timed(build, 0.8, 1.25, 1.0)
    assert learning_reward(vague, child) < learning_reward(exact, child)


@given(ratio=st.floats(0.1, 10), low=st.floats(0.1, 1), high=st.floats(1, 10))
def test_shrinking_never_changes_the_sign_or_raises_a_gain(build: Any, ratio: float, low: float, high: float) -> None:
    parent = timed(build, None, None, 1.0)
    found = learning_reward(parent, timed(build, ratio * low, ratio * high, ratio))
    assert 0.0 <= found <= max(0.0, math.log(ratio)) + 1e-12
    assert (found > 0) == (ratio > 1)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_failures_and_slower_versions_earn_nothing_under_any_policy(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0, ms=10.0)
    builder.candidate(1, verdict="wrong")
    builder.candidate(2, ms=None)
    builder.candidate(3, ms=11.0)
    builder.candidate(4, ms=5.0)
    parent, *children = builder.state.candidates.values()
    policy = make_policy(name, {})
    assert [policy.reward(parent, child) for child in (None, *children[:3])] == [0.0] * 4
    assert policy.reward(parent, children[3]) == pytest.approx(0.5 if name == "paper" else math.log(2))


def test_the_prior_is_the_policys(build: Any) -> None:
    builder = build(prior_mean=0.1)
    builder.candidate(0)
    builder.play(1, 0, "fusion", 0, 0.3)
    arm = builder.state.arms[0, "fusion"]
    assert (arm.pulls, arm.mean) == (2.0, pytest.approx(0.2))
