"""The policies: who is never chosen, who is, and why."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.errors import UsageError
from kbtui.search.arm_policy import ArmPolicy
from kbtui.search.arms import Board, cluster_of
from kbtui.search.cluster import cluster
from kbtui.search.mask import mask
from kbtui.search.policies.paper import PaperPolicy, PaperSettings
from kbtui.search.policy import Choice, Policy
from kbtui.search.registry import POLICIES, make_policy
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES, Strategy
from kbtui.state.run_state import RunState

KEYS = [(number, strategy) for number in range(3) for strategy in STRATEGIES]


@pytest.fixture(params=sorted(POLICIES))
def policy(request: pytest.FixtureRequest) -> Policy:
    return make_policy(request.param, {})


def playable(state: RunState, cluster_number: int, strategy: str, name: str) -> bool:
    """Written anew, from the words of the interface. Only the published policy refuses what its mask holds."""
    if (None, strategy) in state.bans or (cluster_number, strategy) in state.bans:
        return False
    if name == "paper" and strategy in state.held.get(cluster_number, {}):
        return False
    return any(
        candidate.correct and candidate.moves.get(strategy, 0) > 0 and state.pinned in (None, candidate.id)
        for candidate in state.candidates.values()
        if cluster_of(state, candidate.id) == cluster_number
    )


# ---------------------------------------------------------------- random runs

percent = st.one_of(st.none(), st.floats(0, 100))
candidates = st.lists(
    st.fixed_dictionaries(
        {
            "ms": st.floats(0.01, 10),
            "registers": st.integers(16, 255),
            "moves": st.dictionaries(st.sampled_from(STRATEGIES), st.integers(0, 3)),
            "signature": st.fixed_dictionaries(dict.fromkeys(("sm", "dram", "l2"), percent)).map(
                lambda found: {name: value for name, value in found.items() if value is not None}
            ),
            "verdict": st.sampled_from(("correct", "correct", "correct", "wrong")),
        }
    ),
    min_size=1,
    max_size=10,
)
runs = st.fixed_dictionaries(
    {
        "candidates": candidates,
        "plays": st.lists(st.tuples(st.sampled_from(STRATEGIES), st.integers(0, 9), st.floats(0, 1)), max_size=20),
        "open": st.lists(st.tuples(st.sampled_from(STRATEGIES), st.integers(0, 9)), max_size=3),
        "bans": st.lists(st.tuples(st.sampled_from((None, 0, 1, 2)), st.sampled_from(STRATEGIES)), max_size=5),
        "pinned": st.one_of(st.none(), st.integers(0, 9)),
        "clustered": st.booleans(),
        "seed": st.integers(0, 2**32),
    }
)


def folded(build: Any, run: dict[str, Any]) -> RunState:
    builder = build(seed=run["seed"])
    for number, candidate in enumerate(run["candidates"]):
        builder.candidate(number, **candidate)
    count = len(run["candidates"])
    for number, (strategy, parent, reward) in enumerate(run["plays"], 1):
        builder.play(number, 0, strategy, parent % count, reward)
    if run["clustered"]:
        builder.emit(cluster(builder.state, 100, run["seed"]))
    for number, (strategy, parent) in enumerate(run["open"], 200):
        builder.begin(number, cluster_of(builder.state, parent % count), strategy, parent % count)
    for where, strategy in run["bans"]:
        builder.emit(e.Banned(by="ann", strategy=strategy, cluster=where))
    if run["pinned"] is not None and run["pinned"] < count:
        builder.emit(e.Pinned(by="ann", parent_id=run["pinned"]))
    builder.emit(mask(builder.state, 300, {}))
    state: RunState = builder.state
    return state


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(run=runs, n=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_what_is_held_back_is_never_chosen_and_an_arm_that_is_left_is(build: Any, name: str, run: Any, n: int) -> None:
    state = folded(build, run)
    policy = make_policy(name, {})
    choices = policy.propose(state, 300, n)
    left = [key for key in KEYS if playable(state, *key, name)]
    assert len(choices) == (n if left else 0)
    for choice in choices:
        assert (choice.cluster, choice.strategy) in left
        parent = state.candidates[choice.parent_id]
        assert parent.correct
        assert parent.moves[choice.strategy] > 0
        assert cluster_of(state, parent.id) == choice.cluster
        assert state.pinned in (None, parent.id)
        held = {(score.cluster, score.strategy): score.held for score in choice.scores}
        assert sorted(held) == sorted(KEYS)
        assert {key for key, why in held.items() if not why} == set(left)
        assert choice.runner_up in [key for key in left if key != (choice.cluster, choice.strategy)] or len(left) == 1


@pytest.mark.parametrize("name", sorted(POLICIES))
@given(run=runs)
@settings(max_examples=10, deadline=None)
def test_the_same_state_and_seed_choose_the_same(build: Any, name: str, run: Any) -> None:
    first = make_policy(name, {}).propose(folded(build, run), 300, 3)
    second = make_policy(name, {}).propose(folded(build, run), 300, 3)
    assert first == second


@given(run=runs)
@settings(max_examples=40, deadline=None)
def test_ucb_equals_the_formula_on_any_log(build: Any, run: Any) -> None:
    state = folded(build, run)
    choices = make_policy("paper", {}).propose(state, 300)
    rewards: dict[tuple[int, str], list[float]] = {key: [] for key in KEYS}
    flying: Counter[tuple[int, str]] = Counter()
    for pull in state.pulls.values():
        key = (cluster_of(state, pull.parent_id), pull.strategy)
        if pull.reward is not None:
            rewards[key].append(pull.reward)
        else:
            flying[key] += 1
    t = 1 + len(state.pulls)
    scores = {}
    for key, earned in rewards.items():
        n = 1 + len(earned) + flying[key]
        mean = (0.5 + sum(earned)) / (1 + len(earned))
        scores[key] = mean + 2.0 * math.sqrt(math.log(t) / n)
    for choice in choices:
        for score in choice.scores:
            assert score.score == pytest.approx(scores[score.cluster, score.strategy])
            assert score.score == pytest.approx(score.mean + score.bonus)
        best = max(value for key, value in scores.items() if playable(state, *key, "paper"))
        assert scores[choice.cluster, choice.strategy] == pytest.approx(best)


# ---------------------------------------------------------------- the published policy


def test_the_first_choice_is_a_draw_among_equals(build: Any) -> None:
    found = set()
    for seed in range(40):
        builder = build(seed=seed)
        builder.candidate(0)
        [choice] = make_policy("paper", {}).propose(builder.state, 1)
        assert {score.bonus for score in choice.scores} == {0.0}
        assert {score.mean for score in choice.scores} == {0.5}
        found.add(choice.strategy)
    assert found == set(STRATEGIES)


def test_before_the_first_clustering_the_other_clusters_are_empty(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    [choice] = make_policy("paper", {}).propose(builder.state, 1)
    assert Counter(score.held for score in choice.scores) == {"": 6, "empty": 12}


def test_dropped_pulls_leave_no_trace_in_the_next_scores(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    builder.play(1, 0, "tiling", 0, 0.2)
    [before] = make_policy("paper", {}).propose(builder.state, 2)
    builder.begin(2, 0, "fusion")
    builder.drop(2)
    [after] = make_policy("paper", {}).propose(builder.state, 2)
    assert after == before


def test_exploitation_without_bonus(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    builder.play(1, 0, "reordering", 0, 0.9)
    [choice] = make_policy("paper", {"c": 0}).propose(builder.state, 2)
    assert (choice.strategy, choice.reason) == ("reordering", "mean 0.70 + bonus 0.00 is the highest of 6 arms")


def test_reasons_name_what_holds_an_arm(build: Any) -> None:
    builder = build()
    builder.candidate(0, signature={"sm": 5.0, "dram": 83.0}, moves={"tiling": 1, "fusion": 1, "pipeline": 1})
    builder.emit(e.Banned(by="ann", strategy="pipeline"))
    builder.emit(mask(builder.state, 1, {}))
    [choice] = make_policy("paper", {}).propose(builder.state, 1)
    found = {score.strategy: score for score in choice.scores if score.cluster == 0}
    assert {s: score.held for s, score in found.items()} == {
        "tiling": "", "vectorization": "no move", "fusion": "masked", "pipeline": "banned", "reordering": "no move",
        "access_layout": "no move",
    }  # fmt: skip
    assert found["fusion"].reason == "DRAM 83 % ≥ 75 %"
    assert found["fusion"].headroom_percent == -8.0
    assert found["pipeline"].headroom_percent == 70.0
    assert found["tiling"].headroom_percent is None
    assert choice.strategy == "tiling"
    assert choice.runner_up is None


@pytest.mark.parametrize("name", ["paper", "ucb", "max_ucb", "round_robin"])
def test_parallel_proposals_spread(build: Any, name: str) -> None:
    builder = build()
    builder.candidate(0)
    choices = make_policy(name, {}).propose(builder.state, 1, 6)
    assert {choice.strategy for choice in choices} == set(STRATEGIES)


def test_no_arm_left_gives_no_choice(build: Any, policy: Policy) -> None:
    assert policy.propose(build().state, 1) == []
    builder = build()
    builder.candidate(0, moves={})
    assert policy.propose(builder.state, 1, 3) == []


# ---------------------------------------------------------------- parents


def test_parents_are_drawn_by_a_softmax_over_fractions(build: Any) -> None:
    builder = build()
    for number, dram in enumerate((15.0, 45.0, 70.0)):
        builder.candidate(number, signature={"dram": dram})
    members = list(builder.state.candidates.values())
    shares = PaperPolicy().parent_shares(members, "fusion")
    weights = [math.exp(0.60), math.exp(0.30), math.exp(0.05)]
    assert shares == pytest.approx([weight / sum(weights) for weight in weights])
    # Over percent points the first would have all but a part in 10^13.
    assert shares[0] < 0.5
    sharp = PaperPolicy(PaperSettings(temperature=0.1)).parent_shares(members, "fusion")
    assert sharp == pytest.approx([math.exp(w) / sum(map(math.exp, (6.0, 3.0, 0.5))) for w in (6.0, 3.0, 0.5)])


def test_a_parent_without_a_reading_gets_a_neutral_weight(build: Any) -> None:
    builder = build()
    builder.candidate(0, signature={"dram": 20.0})
    builder.candidate(1)
    builder.candidate(2, signature={"dram": 60.0})
    candidates = list(builder.state.candidates.values())
    low, unknown, high = PaperPolicy().parent_shares(candidates, "fusion")
    assert low > unknown > high
    assert unknown == pytest.approx(math.sqrt(low * high))
    assert PaperPolicy().parent_shares(candidates, "tiling") == pytest.approx([1 / 3] * 3)


def test_draws_follow_the_shares(build: Any) -> None:
    builder = build(seed=3)
    builder.candidate(0, signature={"dram": 0.0})
    builder.candidate(1, signature={"dram": 70.0})
    policy = make_policy("paper", {"temperature": 0.25})
    assert isinstance(policy, ArmPolicy)
    board = Board(builder.state)
    drawn = Counter(policy.parent(board, pull, 0, "fusion") for pull in range(2000))
    [share, _] = policy.parent_shares(list(builder.state.candidates.values()), "fusion")
    assert drawn[0] / 2000 == pytest.approx(share, abs=0.04)


# ---------------------------------------------------------------- forced arms


def force(build: Any, **wish: Any) -> Choice | None:
    builder = build()
    builder.candidate(0, signature={"dram": 90.0}, moves={"tiling": 1, "fusion": 1, "pipeline": 1})
    builder.candidate(1, moves={"fusion": 1})
    builder.candidate(2, verdict="wrong")
    builder.emit(e.Clustered(pull=1, labels={0: 0, 1: 1}, representatives={0: 0, 1: 1}, features={}, arms=()))
    builder.emit(mask(builder.state, 2, {}))
    strategy: Strategy = wish.pop("strategy", "fusion")
    return make_policy("paper", {}).force(builder.state, 2, strategy, wish.get("cluster"), wish.get("parent_id"))


@pytest.mark.parametrize(
    ("wish", "arm"),
    [
        ({"cluster": 1}, (1, 1)),
        ({"cluster": 0}, (0, 0)),
        ({"parent_id": 1}, (1, 1)),
        ({"parent_id": 0}, (0, 0)),
        ({"parent_id": 0, "cluster": 0}, (0, 0)),
        ({"strategy": "tiling"}, (0, 0)),
    ],
)
def test_a_person_gets_the_arm_even_if_masked(build: Any, wish: dict[str, Any], arm: tuple[int, int]) -> None:
    choice = force(build, **wish)
    assert choice is not None
    assert (choice.cluster, choice.parent_id) == arm
    assert choice.reason == "forced by a person"


@pytest.mark.parametrize(
    "wish",
    [
        {"cluster": 2},
        {"cluster": 1, "strategy": "tiling"},
        {"parent_id": 1, "cluster": 0},
        {"parent_id": 1, "strategy": "pipeline"},
        {"parent_id": 2},
        {"parent_id": 9},
        {"strategy": "reordering"},
    ],
)
def test_an_arm_without_a_parent_cannot_be_forced(build: Any, wish: dict[str, Any]) -> None:
    assert force(build, **wish) is None


def test_a_forced_arm_without_a_cluster_avoids_a_banned_one(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    builder.candidate(1)
    builder.emit(e.Clustered(pull=1, labels={0: 0, 1: 1}, representatives={}, features={}, arms=()))
    builder.emit(e.Banned(by="ann", strategy="fusion", cluster=0))
    choice = make_policy("paper", {}).force(builder.state, 2, "fusion", None, None)
    assert choice is not None
    assert choice.cluster == 1


# ---------------------------------------------------------------- the plain ones


def test_round_robin_takes_turns_whatever_arms_earn(build: Any) -> None:
    builder = build()
    builder.candidate(0)
    order = []
    for pull in range(1, 13):
        [choice] = make_policy("round_robin", {}).propose(builder.state, pull)
        order.append(choice.strategy)
        builder.play(pull, choice.cluster, choice.strategy, choice.parent_id, float(choice.strategy == "fusion"))
    assert order == [*STRATEGIES, *STRATEGIES]


def test_random_is_uniform_and_says_so(build: Any) -> None:
    builder = build(seed=1)
    builder.candidate(0, moves={"tiling": 1, "fusion": 1, "pipeline": 1, "reordering": 1})
    policy = make_policy("random", {})
    drawn = Counter(policy.propose(builder.state, pull)[0].strategy for pull in range(1, 1001))
    assert len(drawn) == 4
    assert all(200 < count < 300 for count in drawn.values())
    [choice] = policy.propose(builder.state, 1)
    assert Counter(score.share for score in choice.scores) == {0.25: 4, 0.0: 14}


# ---------------------------------------------------------------- the registry


def test_every_policy_describes_itself(policy: Policy) -> None:
    assert POLICIES[policy.name] is type(policy)
    assert policy.summary
    assert policy.source
    assert policy.parameters["clusters"] == 3
    assert make_policy(policy.name, policy.parameters).parameters == policy.parameters


def test_the_published_parameters() -> None:
    assert make_policy("paper", {}).parameters == {
        "clusters": 3, "period": 10, "threshold_sm": 75.0, "threshold_dram": 75.0, "threshold_l2": 75.0, "temperature": 1.0,
        "prior_mean": 0.5, "rest": 10, "tune": 0, "c": 2.0,
    }  # fmt: skip


def test_parameters_may_be_text() -> None:
    assert make_policy("paper", {"c": "0.5", "clusters": "2"}).parameters["c"] == 0.5


@pytest.mark.parametrize(
    ("name", "parameters", "sentence"),
    [
        ("papr", {}, "no policy 'papr': choose from paper, "),
        ("paper", {"d": 1}, "paper has no parameter 'd': it has clusters, "),
        ("random", {"c": 1}, "random has no parameter 'c'"),
        ("paper", {"c": -1}, "policy paper: .*c"),
        ("paper", {"c": "x"}, "policy paper: .*c"),
        ("paper", {"clusters": 0}, "policy paper: .*clusters"),
        ("paper", {"temperature": 0}, "policy paper: .*temperature"),
    ],
)
def test_wrong_names_and_values_are_usage_errors(name: str, parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make_policy(name, parameters)
