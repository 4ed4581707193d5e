"""The policies beside the published one: priors instead of masks, log gains, spreading, rests."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.errors import UsageError
from kbtui.search.arm_policy import Arm, ArmPolicy
from kbtui.search.arms import Board, Play
from kbtui.search.policies.best_of_n import BestOfNPolicy
from kbtui.search.policies.thompson import ThompsonPolicy, ThompsonSettings
from kbtui.search.prior import Prior
from kbtui.search.registry import POLICIES, make_policy
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES, ArmScore, Strategy

SOFT = sorted(set(POLICIES) - {"paper"})
DRAWN = ("random", "best_of_n", "thompson")
LEARNING = ("paper", "ucb", "thompson", "max_ucb")


def made(name: str, **parameters: Any) -> ArmPolicy:
    policy = make_policy(name, parameters)
    assert isinstance(policy, ArmPolicy)
    return policy


def scores(policy: ArmPolicy, builder: Any, pull: int = 100) -> dict[str, ArmScore]:
    """Those of cluster 0."""
    found = policy.scores(Board(builder.state), pull)
    return {score.strategy: score for score in found if score.cluster == 0}


def frequency(policy: ArmPolicy, builder: Any, strategy: str, draws: int = 300) -> float:
    """How often the next pull is on a strategy, over pull numbers."""
    chosen = [policy.propose(builder.state, 1000 + number)[0].strategy for number in range(draws)]
    return chosen.count(strategy) / draws


# ---------------------------------------------------------------- masks are a prior


@pytest.mark.parametrize("name", SOFT)
def test_a_saturated_resource_lowers_an_arms_chance_and_never_bans_it(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0, signature={"l2": 100.0}, moves={"tiling": 3, "pipeline": 3})
    policy = made(name, saturated=0.25)
    found = scores(policy, builder)
    assert (found["tiling"].held, found["pipeline"].held) == ("", "")
    assert found["tiling"].reason == "L2 100 % ≥ 75 %"
    assert found["tiling"].headroom_percent == -25.0
    if name == "thompson":
        assert 0 < frequency(policy, builder, "tiling") < 0.4
        return
    assert found["tiling"].score < found["pipeline"].score
    if name in DRAWN:
        assert found["tiling"].share == pytest.approx(0.2)
    builder.candidate(1, moves={})
    only = build()
    only.candidate(0, signature={"l2": 100.0}, moves={"tiling": 1})
    assert policy.propose(only.state, 1)[0].strategy == "tiling"


@pytest.mark.parametrize("name", SOFT)
def test_nothing_is_held_by_the_policys_own_mask(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0, signature={"sm": 99.0, "dram": 99.0, "l2": 99.0})
    masked = made(name).mask(builder.state, 1)
    assert masked.held == {}
    assert masked.signatures[0].dram.percent == 99.0


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_an_unknown_resource_never_masks(build: Any, name: str) -> None:
    """With no reading at all an arm stands as well as with a reading that leaves room."""
    unknown, roomy = build(), build()
    unknown.candidate(0)
    roomy.candidate(0, signature={"sm": 10.0, "dram": 10.0, "l2": 10.0})
    policy = made(name)
    for builder in (unknown, roomy):
        builder.emit(policy.mask(builder.state, 1))
    one, other = scores(policy, unknown), scores(policy, roomy)
    assert {score.held for score in one.values()} == {""}
    assert {s: score.score for s, score in one.items()} == {s: score.score for s, score in other.items()}
    assert {score.reason for score in one.values()} == {""}


@pytest.mark.parametrize("name", SOFT)
def test_a_weight_of_one_switches_masks_off(build: Any, name: str) -> None:
    free, full = build(), build()
    free.candidate(0)
    full.candidate(0, signature={"sm": 99.0, "dram": 99.0, "l2": 99.0})
    policy = made(name, saturated=1.0)
    assert [s.score for s in scores(policy, free).values()] == [s.score for s in scores(policy, full).values()]


# ---------------------------------------------------------------- rewards


@pytest.mark.parametrize("name", ["paper", "ucb", "max_ucb"])
@given(
    rewards=st.lists(st.tuples(st.sampled_from(STRATEGIES), st.floats(0, 1)), min_size=1, max_size=12),
    which=st.integers(0, 11),
    share=st.floats(0, 1),
)
@settings(max_examples=60, deadline=None)
def test_more_reward_never_makes_an_arm_less_chosen(
    build: Any, name: str, rewards: list[tuple[Strategy, float]], which: int, share: float
) -> None:
    """Up to the largest reward of the run: a larger one changes what rewards are divided by, and with it every arm."""
    most = max(reward for _, reward in rewards)
    at = which % len(rewards)
    strategy, low = rewards[at]
    more = [*rewards[:at], (strategy, low + share * (most - low)), *rewards[at + 1 :]]
    policy = made(name)
    chosen = []
    for log in (rewards, more):
        builder = build()
        builder.candidate(0)
        for number, (arm, reward) in enumerate(log, 1):
            builder.play(number, 0, arm, 0, reward)
        found = scores(policy, builder)
        best = max(score.score for score in found.values())
        chosen.append(found[strategy].score == best)
    assert chosen[1] or not chosen[0]


@pytest.mark.parametrize("name", LEARNING)
def test_the_arm_that_earns_is_chosen_more_often(build: Any, name: str) -> None:
    shares = []
    for earned in (0.0, 0.1, 0.4):
        builder = build()
        builder.candidate(0)
        for number in range(1, 25):
            strategy = STRATEGIES[number % 6]
            builder.emit(e.Selected(pull=number, cluster=0, strategy=strategy, parent_id=0, scores=()))
            builder.candidate(number, pull=number, moves={})
            builder.reward(number, earned if strategy == "fusion" else 0.1)
        shares.append(frequency(made(name), builder, "fusion", 60))
    assert shares[0] <= shares[1] <= shares[2]
    assert shares[0] < shares[2]


@pytest.mark.parametrize("name", ["round_robin", "random", "best_of_n"])
def test_what_is_to_be_beaten_ignores_rewards(build: Any, name: str) -> None:
    found = []
    for earned in (0.0, 0.9):
        builder = build()
        builder.candidate(0)
        for number, strategy in enumerate(STRATEGIES, 1):
            builder.play(number, 0, strategy, 0, earned if strategy == "fusion" else 0.0)
        found.append([made(name).propose(builder.state, pull)[0].strategy for pull in range(50, 90)])
    assert found[0] == found[1]


def test_ucb_equals_its_formula(build: Any) -> None:
    builder = build()
    builder.candidate(0, signature={"l2": 87.5})
    builder.play(1, 0, "tiling", 0, 0.3)
    builder.play(2, 0, "tiling", 0, 0.0)
    builder.begin(3, 0, "fusion")
    found = scores(made("ucb", c=0.5, saturated=0.5, prior_mean=0.2), builder)
    # L2 is halfway between its threshold and its peak: the weight is halfway between 1 and 0.5.
    assert found["tiling"].mean == pytest.approx((0.75 * 0.2 + 0.3) / 3 / 0.3)
    assert found["tiling"].bonus == pytest.approx(0.5 * math.sqrt(math.log(4) / 3))
    assert found["fusion"].mean == pytest.approx(0.2 / 0.3)
    assert found["fusion"].bonus == pytest.approx(0.5 * math.sqrt(math.log(4) / 2))


def test_ucb_does_not_hang_on_the_scale_of_gains(build: Any) -> None:
    chosen = []
    for scale in (1.0, 0.01):
        builder = build()
        builder.candidate(0)
        for number in range(1, 19):
            strategy = STRATEGIES[number % 6]
            builder.play(number, 0, strategy, 0, scale * (0.8 if strategy == "pipeline" else 0.1))
        chosen.append(made("ucb", prior_mean=0.5 * scale).propose(builder.state, 50)[0].strategy)
    assert chosen == ["pipeline", "pipeline"]


def test_max_ucb_plays_every_arm_once_and_then_for_the_largest_gain(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    policy = made("max_ucb")
    gains: dict[str, list[float]] = {"tiling": [0.5, 0.0], "fusion": [0.2, 0.2]}
    order = []
    for pull in range(1, 7):
        [choice] = policy.propose(builder.state, pull)
        order.append(choice.strategy)
        builder.play(pull, 0, choice.strategy, 0, gains.get(choice.strategy, [0.0])[0])
    assert sorted(order) == sorted(STRATEGIES)
    builder.play(7, 0, "tiling", 0, 0.0)
    builder.play(8, 0, "fusion", 0, 0.2)
    found = scores(policy, builder)
    bonus = (0.5 * math.log(9) / 2) ** 2
    assert found["tiling"].score == pytest.approx(1.0 + bonus)
    assert found["fusion"].score == pytest.approx(0.4 + bonus)  # the better mean, and yet it is not played
    assert policy.propose(builder.state, 9)[0].strategy == "tiling"


@given(
    log=st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=10),
    playing=st.integers(0, 3),
    weight=st.floats(0.1, 1),
    discount=st.floats(0.5, 1),
)
def test_the_posterior_equals_the_conjugate_update(
    log: list[tuple[float, bool]], playing: int, weight: float, discount: float
) -> None:
    """One outcome at a time, against the closed form over all: κ, m, α and β of the normal-gamma, a and b of the Beta."""
    policy = ThompsonPolicy(ThompsonSettings(discount=discount, prior_mean=0.2, spread=0.3))
    t = len(log) + 1
    arm = Arm(
        cluster=0, strategy="tiling", pulls=1.0, mean=0.0, playing=playing, prior=Prior(weight=weight), held="", reason="",
        log=[Play(number, reward if valid else 0.0, valid) for number, (reward, valid) in enumerate(log, 1)],
    )  # fmt: skip
    a, b, m, kappa, alpha, beta = 1.0, 1.0 + playing, 0.2 * weight, 1.0, 2.0, 0.3**2
    for number, (reward, valid) in enumerate(log, 1):
        w = discount ** (t - number)
        if not valid:
            b += w
            continue
        a += w
        beta += kappa * w * (reward - m) ** 2 / (2 * (kappa + w))
        m = (kappa * m + w * reward) / (kappa + w)
        kappa += w
        alpha += w / 2
    found = policy.posterior(arm, t)
    assert (found.a, found.b, found.kappa, found.alpha) == pytest.approx((a, b, kappa, alpha))
    assert found.m == pytest.approx(m)
    assert found.beta == pytest.approx(beta)


def test_old_outcomes_fade(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    builder.play(1, 0, "fusion", 0, 0.0)
    early = scores(made("thompson"), builder)["fusion"].mean
    for pull in range(2, 80):
        builder.play(pull, 0, "tiling", 0, 0.0)
    late = scores(made("thompson"), builder)["fusion"].mean
    never = scores(made("thompson"), builder)["reordering"].mean
    assert early < late < never
    assert late == pytest.approx(never, rel=0.1)


# ---------------------------------------------------------------- in flight


@pytest.mark.parametrize("name", SOFT)
def test_a_pull_in_flight_lowers_its_arms_chance(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0)
    policy = made(name)
    before = frequency(policy, builder, "fusion")
    shares = {strategy: score.share for strategy, score in scores(policy, builder).items()}
    builder.begin(1, 0, "fusion")
    builder.begin(2, 0, "fusion")
    assert frequency(policy, builder, "fusion") < before or before == 0.0
    if name in ("random", "best_of_n"):
        after = scores(policy, builder)
        assert shares["fusion"] == pytest.approx(1 / 6)
        assert after["fusion"].share == pytest.approx(1 / 16)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_proposals_at_once_equal_proposals_one_by_one(build: Any, name: str) -> None:
    builder = build(seed=4)
    builder.candidate(0)
    builder.candidate(1, ms=0.9)
    policy = made(name)
    at_once = policy.propose(builder.state, 1, 5)
    for number, choice in enumerate(at_once, 1):
        [alone] = policy.propose(builder.state, number)
        assert alone == choice
        builder.begin(number, choice.cluster, choice.strategy, choice.parent_id)


# ---------------------------------------------------------------- parents


@pytest.mark.parametrize("name", sorted(set(SOFT) - {"best_of_n"}))
def test_fast_parents_are_likelier(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0, ms=1.0)
    builder.candidate(1, ms=1.0 / 1.1)
    policy = made(name, temperature=0.1)
    slow, fast = policy.parent_shares(list(builder.state.candidates.values()), "fusion")
    assert fast / slow == pytest.approx(1.1**10)


def test_best_of_n_stays_with_a_parent_for_a_round(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    policy = made("best_of_n", n=3)
    parents = []
    for pull in range(1, 8):
        [choice] = policy.propose(builder.state, pull)
        parents.append(choice.parent_id)
        builder.emit(e.Selected(pull=pull, cluster=0, strategy=choice.strategy, parent_id=choice.parent_id, scores=()))
        builder.candidate(pull, parent_id=choice.parent_id, pull=pull, ms=1.0 / (1 + pull))
        builder.reward(pull, 0.1)
    assert parents == [0, 0, 0, 3, 3, 3, 6]


def test_best_of_n_goes_on_when_its_parent_has_nothing_left(build: Any) -> None:
    builder = build()
    builder.candidate(0, moves={})
    builder.candidate(1, ms=0.9)
    builder.candidate(2, ms=0.5)
    policy = made("best_of_n")
    assert isinstance(policy, BestOfNPolicy)
    assert {policy.propose(builder.state, pull)[0].parent_id for pull in range(1, 20)} == {2}
    builder.emit(e.Pinned(by="ann", parent_id=1))
    assert policy.propose(builder.state, 1)[0].parent_id == 1
    forced = policy.force(builder.state, 1, "fusion", None, 2)
    assert forced is not None
    assert forced.parent_id == 2


# ---------------------------------------------------------------- rests


def duplicates(builder: Any, pull: int, strategy: Strategy, parent: int, count: int = 3) -> None:
    builder.begin(pull, 0, strategy, parent)
    builder.emit(e.PullDropped(pull=pull, owner=None, reason="duplicates", duplicates=count))


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_three_duplicates_rest_the_arm_for_that_parent(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0)
    duplicates(builder, 1, "tiling", 0)
    policy = made(name, rest=4)
    builder.state.started.policy_parameters["rest"] = 4
    found = scores(policy, builder)
    assert (found["tiling"].held, found["tiling"].reason) == ("resting", "only known versions came lately")
    assert {score.held for strategy, score in found.items() if strategy != "tiling"} == {""}
    # Another parent of the cluster is not concerned, and the pull that was dropped left no trace in the statistics.
    builder.candidate(1)
    assert scores(policy, builder)["tiling"].held == ""
    assert {policy.parent(Board(builder.state), pull, 0, "tiling") for pull in range(40)} == {1}
    assert found["tiling"].pulls == found["fusion"].pulls
    # A person may insist.
    forced = policy.force(builder.state, 2, "tiling", None, 0)
    assert forced is not None
    assert forced.parent_id == 0


@pytest.mark.parametrize(("count", "owner"), [(2, None), (0, "provider")])
def test_other_drops_do_not_rest_an_arm(build: Any, count: int, owner: Any) -> None:
    builder = build()
    builder.candidate(0)
    builder.begin(1, 0, "tiling", 0)
    builder.emit(e.PullDropped(pull=1, owner=owner, reason="x", duplicates=count))
    assert Board(builder.state).resting == frozenset()


def test_a_rest_ends_after_rewarded_pulls_and_not_after_dropped_ones(build: Any) -> None:
    builder = build(rest=2)
    builder.candidate(0)
    duplicates(builder, 1, "tiling", 0)
    for pull in range(2, 8):
        builder.begin(pull, 0, "fusion")
        builder.drop(pull)
    assert Board(builder.state).resting == {(0, "tiling")}
    builder.play(8, 0, "fusion", 0, 0.1)
    assert Board(builder.state).resting == {(0, "tiling")}
    builder.play(9, 0, "fusion", 0, 0.1)
    assert Board(builder.state).resting == frozenset()


def test_an_arm_that_made_something_new_does_not_rest(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    duplicates(builder, 1, "tiling", 0)
    builder.play(2, 0, "tiling", 0, 0.0)  # a person forced it
    assert Board(builder.state).resting == frozenset()


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_when_everything_rests_there_is_no_choice(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0)
    for number, strategy in enumerate(STRATEGIES, 1):
        duplicates(builder, number, strategy, 0)
    assert made(name).propose(builder.state, 10) == []


# ---------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("ucb", {"saturated": 0}, "policy ucb: .*saturated"),
        ("ucb", {"saturated": 1.5}, "policy ucb: .*saturated"),
        ("ucb", {"prior_mean": 0}, "policy ucb: .*prior_mean"),
        ("thompson", {"discount": 0}, "policy thompson: .*discount"),
        ("thompson", {"discount": 1.01}, "policy thompson: .*discount"),
        ("thompson", {"spread": 0}, "policy thompson: .*spread"),
        ("max_ucb", {"alpha": -1}, "policy max_ucb: .*alpha"),
        ("best_of_n", {"n": 0}, "policy best_of_n: .*n"),
        ("round_robin", {"rest": 0}, "policy round_robin: .*rest"),
        ("paper", {"saturated": 0.5}, "policy paper has no parameter 'saturated'"),
    ],
)
def test_parameters_out_of_range_are_refused_in_a_sentence(name: str, parameters: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence) as refused:
        make_policy(name, parameters)
    assert "\n" not in str(refused.value)


def test_draws_of_an_arm_do_not_hang_on_another(build: Any) -> None:
    """What one arm learned leaves the others' draws as they were."""
    first, second = build(), build()
    for builder, reward in ((first, 0.1), (second, 0.9)):
        builder.candidate(0)
        for pull in range(1, 4):
            builder.begin(pull, 0, "tiling")
            builder.candidate(pull, pull=pull, moves={})
            builder.reward(pull, reward)
    one, other = scores(made("thompson"), first), scores(made("thompson"), second)
    same = [strategy for strategy in STRATEGIES if one[strategy].score == other[strategy].score]
    assert same == [strategy for strategy in STRATEGIES if strategy != "tiling"]


def test_best_of_n_draws_strategies_evenly(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    policy = made("best_of_n", n=1000)
    drawn = Counter(policy.propose(builder.state, pull)[0].strategy for pull in range(600))
    assert all(60 < drawn[strategy] < 140 for strategy in STRATEGIES)
    assert np.isclose(sum(score.share or 0.0 for score in scores(policy, builder).values()), 1.0)
