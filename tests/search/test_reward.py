"""Rewards and the recurrences of N and μ."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.search.reward import paper_reward, rewarded
from kbtui.state import events as e


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
