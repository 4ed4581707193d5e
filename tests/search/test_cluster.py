"""Clusters: when, of what, under which names, and the statistics under them."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbtui.search.arms import cluster_of
from kbtui.search.cluster import cluster, due, features, representatives
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES

# ---------------------------------------------------------------- features


def test_features_come_from_times_and_compiled_kernels(build: Any) -> None:
    builder = build()
    builder.candidate(0, ms=3.0, registers=40, shared=2048, threads=256, occupancy=62.5)
    found = features(builder.state.candidates[0])
    assert found is not None
    assert found.log_latency == pytest.approx(math.log(4.0))
    assert (found.registers, found.shared_kib, found.log2_block, found.occupancy_percent) == (40.0, 2.0, 8.0, 62.5)


def test_a_modelled_run_uses_its_estimates(build: Any) -> None:
    builder = build(timing="modelled")
    builder.candidate(0, ms=3.0)
    found = features(builder.state.candidates[0])
    assert found is not None
    assert found.log_latency == pytest.approx(math.log(4.0))


def test_incomplete_features_are_none(build: Any) -> None:
    builder = build()
    builder.candidate(0, ms=None)
    builder.candidate(1, registers=None)
    assert features(builder.state.candidates[0]) is None
    assert features(builder.state.candidates[1]) is None


# ---------------------------------------------------------------- when


def frontier(builder: Any, count: int) -> None:
    for number in range(count):
        builder.candidate(number, ms=1.0 + number)


@pytest.mark.parametrize(
    ("seen", "size", "expected"), [(9, 6, True), (9, 5, False), (8, 6, False), (10, 6, False), (19, 6, True)]
)
def test_clustering_is_due_every_tenth_pull_once_the_frontier_is_large(
    build: Any, seen: int, size: int, expected: bool
) -> None:
    builder = build()
    frontier(builder, size)
    for number in range(1, seen + 1):
        builder.play(number, 0, "tiling", 0, 0.1)
    assert due(builder.state, seen + 1) is expected


def test_the_period_and_the_number_of_clusters_are_the_runs(build: Any) -> None:
    builder = build(period=2, clusters=2)
    frontier(builder, 4)
    builder.play(1, 0, "tiling", 0, 0.1)
    assert due(builder.state, 2)
    assert set(cluster(builder.state, 2, 0).labels.values()) == {0, 1}


def test_dropped_pulls_do_not_count_and_wrong_candidates_are_not_on_the_frontier(build: Any) -> None:
    builder = build()
    frontier(builder, 5)
    builder.candidate(5, verdict="wrong")
    for number in range(1, 10):
        builder.play(number, 0, "tiling", 0, 0.1)
    assert not due(builder.state, 10)
    builder.candidate(6)
    assert due(builder.state, 10)
    builder.begin(10, 0, "tiling")
    builder.drop(10)
    assert due(builder.state, 11)
    builder.play(11, 0, "tiling", 0, 0.1)
    assert not due(builder.state, 12)


def test_a_resumed_run_does_not_cluster_twice_for_one_pull(build: Any) -> None:
    builder = build()
    frontier(builder, 6)
    for number in range(1, 10):
        builder.play(number, 0, "tiling", 0, 0.1)
    builder.emit(cluster(builder.state, 10, 0))
    assert not due(builder.state, 10)


# ---------------------------------------------------------------- of what

GROUPS = {0: (1.0, 20), 1: (1.1, 21), 2: (100.0, 20), 3: (110.0, 21), 4: (1.0, 200), 5: (1.1, 210)}
"""id -> (ms, registers): three groups that anyone would see."""


def grouped(build: Any, order: tuple[int, ...] = tuple(GROUPS)) -> Any:
    builder = build()
    for number in order:
        builder.candidate(number, ms=GROUPS[number][0], registers=GROUPS[number][1])
    return builder


def test_clear_groups_are_found_and_named_from_the_oldest(build: Any) -> None:
    found = cluster(grouped(build).state, 10, 0)
    assert found.labels == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
    assert set(found.representatives) == {0, 1, 2}
    assert all(found.labels[candidate] == number for number, candidate in found.representatives.items())
    assert found.pull == 10


@pytest.mark.parametrize("order", list(permutations(GROUPS))[::97])
def test_the_order_of_candidates_does_not_matter(build: Any, order: tuple[int, ...]) -> None:
    assert cluster(grouped(build, order).state, 10, 3) == cluster(grouped(build).state, 10, 3)


@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_order_does_not_matter_for_any_features(build: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.tuples(st.floats(0.01, 100), st.integers(16, 255)), min_size=6, max_size=12))
    order = data.draw(st.permutations(range(len(values))))
    found = []
    for numbers in (range(len(values)), order):
        builder = build()
        for number in numbers:
            builder.candidate(number, ms=values[number][0], registers=values[number][1])
        found.append(cluster(builder.state, 10, 1))
    assert found[0] == found[1]
    assert set(found[0].labels) == set(range(len(values)))
    assert set(found[0].labels.values()) <= {0, 1, 2}
    assert set(found[0].representatives) == set(found[0].labels.values())


def test_the_scale_of_a_feature_does_not_matter(build: Any) -> None:
    builder = build()
    for number, (ms, registers) in GROUPS.items():
        # Shared memory in the hundreds of KiB would drown the rest without z-scores.
        builder.candidate(number, ms=ms, registers=registers, shared=200_000 + number)
    labels = cluster(builder.state, 10, 0).labels
    assert labels[0] == labels[1] != labels[2]
    assert labels[2] == labels[3]
    assert labels[4] == labels[5] != labels[0]


@pytest.mark.parametrize("distinct", [1, 2])
def test_fewer_distinct_points_than_clusters(build: Any, distinct: int) -> None:
    builder = build()
    for number in range(8):
        builder.candidate(number, ms=1.0 + number % distinct)
    found = cluster(builder.state, 10, 0)
    assert found.labels == {number: number % distinct for number in range(8)}
    assert found.representatives == {number: number for number in range(distinct)}
    assert {(arm.cluster, arm.strategy) for arm in found.arms} == {(k, s) for k in range(3) for s in STRATEGIES}


def test_a_candidate_without_a_time_goes_to_the_nearest_by_its_other_features(build: Any) -> None:
    builder = grouped(build)
    builder.candidate(6, ms=None, registers=205)
    found = cluster(builder.state, 10, 0)
    assert found.labels[6] == found.labels[4]
    assert 6 not in found.features
    assert 6 not in found.representatives.values()


def test_a_candidate_without_any_feature_goes_to_cluster_0(build: Any) -> None:
    builder = grouped(build)
    builder.candidate(6, ms=None, registers=None)
    assert cluster(builder.state, 10, 0).labels[6] == 0


def test_no_candidate_with_all_features_leaves_all_in_cluster_0(build: Any) -> None:
    builder = build()
    for number in range(6):
        builder.candidate(number, ms=None, registers=30 + number)
    found = cluster(builder.state, 10, 0)
    assert set(found.labels.values()) == {0}
    assert found.representatives == {0: 0}


# ---------------------------------------------------------------- under which names


@pytest.mark.parametrize("names", list(permutations(range(3))))
def test_clusters_keep_their_names(build: Any, names: tuple[int, ...]) -> None:
    builder = grouped(build)
    before = {number: names[number // 2] for number in GROUPS}
    builder.emit(e.Clustered(pull=10, labels=before, representatives={}, features={}, arms=()))
    builder.candidate(6, parent_id=0, ms=105.0, registers=20)
    found = cluster(builder.state, 20, 5).labels
    assert {number: found[number] for number in before} == before
    assert found[6] == before[2]


@given(labels=st.lists(st.integers(0, 2), min_size=6, max_size=6))
@settings(max_examples=20, deadline=None)
def test_no_other_naming_keeps_more_candidates(build: Any, labels: list[int]) -> None:
    builder = grouped(build)
    before = dict(enumerate(labels))
    builder.emit(e.Clustered(pull=10, labels=before, representatives={}, features={}, arms=()))
    found = cluster(builder.state, 20, 5).labels
    kept = sum(found[number] == before[number] for number in GROUPS)
    for other in permutations(range(3)):
        assert kept >= sum(other[found[number]] == before[number] for number in GROUPS)


def test_a_candidate_younger_than_the_partition_is_in_its_parents_cluster(build: Any) -> None:
    builder = grouped(build)
    builder.emit(cluster(builder.state, 10, 0))
    builder.candidate(6, parent_id=4)
    builder.candidate(7, parent_id=6)
    builder.candidate(8, parent_id=None)
    assert [cluster_of(builder.state, number) for number in (4, 6, 7, 8, 99)] == [2, 2, 2, 0, 0]


# ---------------------------------------------------------------- representatives


def test_the_representative_is_nearest_the_centroid_and_the_oldest_of_equals(build: Any) -> None:
    builder = build()
    for number, ms in enumerate((1.0, 2.0, 2.0, 4.0)):
        builder.candidate(number, ms=ms)
    assert representatives(builder.state) == {0: 1}


def test_a_named_representative_stays(build: Any) -> None:
    builder = grouped(build)
    builder.emit(cluster(builder.state, 10, 0))
    named = dict(builder.state.representatives)
    builder.candidate(6, parent_id=0, ms=1.05)
    assert representatives(builder.state) == named


def test_nobody_represents_an_empty_frontier(build: Any) -> None:
    assert representatives(build().state) == {}


# ---------------------------------------------------------------- statistics

plays = st.lists(st.tuples(st.sampled_from(STRATEGIES), st.integers(0, 5), st.floats(0, 1), st.booleans()), max_size=25)


@given(played=plays)
@settings(max_examples=20, deadline=None)
def test_statistics_are_recomputed_from_the_log_under_the_new_partition(build: Any, played: list[Any]) -> None:
    builder = grouped(build)
    for number, (strategy, parent, reward, dropped) in enumerate(played, 1):
        builder.begin(number, 0, strategy, parent)
        builder.drop(number) if dropped else builder.reward(number, reward)
    found = cluster(builder.state, 20, 0)
    expected: dict[tuple[int, str], list[float]] = {(k, s): [] for k in range(3) for s in STRATEGIES}
    for strategy, parent, reward, dropped in played:
        if not dropped:
            expected[found.labels[parent], strategy].append(reward)
    got = {(arm.cluster, arm.strategy): arm for arm in found.arms}
    assert set(got) == set(expected)
    for key, rewards in expected.items():
        assert got[key].pulls == 1 + len(rewards)
        assert got[key].mean == pytest.approx((0.5 + sum(rewards)) / (1 + len(rewards)))


def test_going_on_after_a_clustering_equals_a_later_recomputation(build: Any) -> None:
    builder = grouped(build)
    for number in range(1, 10):
        builder.play(number, 0, STRATEGIES[number % 6], number % 6, number / 10)
    builder.emit(cluster(builder.state, 10, 0))
    for number in range(10, 20):
        parent = number % 6
        builder.play(number, builder.state.labels[parent], STRATEGIES[number % 5], parent, number / 20)
    again = cluster(builder.state, 20, 0)
    assert again.labels == builder.state.labels
    for arm in again.arms:
        kept = builder.state.arms[arm.cluster, arm.strategy]
        assert (kept.pulls, kept.mean) == (arm.pulls, arm.mean)


def test_the_same_seed_gives_the_same_partition_in_another_process(build: Any) -> None:
    assert cluster(grouped(build).state, 10, 4) == cluster(grouped(build).state, 10, 4)


def test_scikit_learn_is_imported_late() -> None:
    code = "import sys, kbtui.search.cluster, kbtui.search.registry; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
