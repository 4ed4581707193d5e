"""Masks: saturated resources hold arms back, unknown ones never do, and something always stays."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.errors import UsageError
from kbtui.search.mask import TARGETS, mask
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES


def held(builder: Any, **thresholds: float) -> dict[int, dict[str, str]]:
    return mask(builder.state, 1, thresholds).held


def one(build: Any, **signature: float) -> Any:
    builder = build()
    builder.candidate(0, signature=signature)
    return builder


def test_the_targets_are_the_published_ones() -> None:
    assert set(TARGETS) == set(STRATEGIES)
    by_resource = {resource: {s for s in TARGETS if TARGETS[s] == resource} for resource in ("l2", "dram", "sm")}
    assert by_resource == {
        "l2": {"tiling"},
        "dram": {"vectorization", "fusion", "access_layout"},
        "sm": {"pipeline", "reordering"},
    }


def test_a_saturated_resource_holds_its_strategies_and_says_why(build: Any) -> None:
    found = held(one(build, sm=20.0, dram=83.2, l2=50.0))
    assert found == {0: dict.fromkeys(("vectorization", "fusion", "access_layout"), "DRAM 83.2 % ≥ 75 %")}


def test_the_threshold_itself_is_saturated(build: Any) -> None:
    assert set(held(one(build, sm=75.0, dram=0.0, l2=0.0))[0]) == {"pipeline", "reordering"}
    assert held(one(build, sm=74.99, dram=0.0, l2=0.0)) == {}


def test_each_resource_has_its_own_threshold(build: Any) -> None:
    builder = one(build, sm=50.0, dram=50.0, l2=50.0)
    assert held(builder) == {}
    assert held(builder, threshold_l2=40.0) == {0: {"tiling": "L2 50 % ≥ 40 %"}}


@pytest.mark.parametrize("bad", [{"threshold_sm": "much"}, {"threshold_dram": 0.0}, {"threshold_l2": 101.0}])
def test_a_threshold_out_of_range_is_refused(build: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"threshold|range|Expected"):
        mask(one(build, sm=1.0).state, 1, bad)


def test_a_modelled_reading_is_marked(build: Any) -> None:
    builder = build(timing="modelled")
    builder.candidate(0, signature={"dram": 90.0}, source="model")
    assert held(builder)[0]["fusion"] == "DRAM ~90 % modelled ≥ 75 %"


def test_unknown_resources_hold_nothing(build: Any) -> None:
    assert held(one(build)) == {}
    assert set(held(one(build, l2=99.0))[0]) == {"tiling"}
    untimed = build()
    untimed.candidate(0, ms=None)
    assert held(untimed) == {}


@pytest.mark.parametrize(
    ("sm", "dram", "l2", "stays"),
    [
        (80.0, 90.0, 90.0, "pipeline"),
        (90.0, 80.0, 90.0, "vectorization"),
        (90.0, 90.0, 80.0, "tiling"),
        (80.0, 80.0, 80.0, "tiling"),
    ],
)
def test_when_all_fall_the_most_headroom_stays(build: Any, sm: float, dram: float, l2: float, stays: str) -> None:
    assert set(STRATEGIES) - set(held(one(build, sm=sm, dram=dram, l2=l2))[0]) == {stays}


def test_what_stays_is_playable(build: Any) -> None:
    builder = build()
    builder.candidate(0, signature={"sm": 80.0, "dram": 95.0, "l2": 90.0}, moves={"tiling": 1, "fusion": 1})
    assert "tiling" not in held(builder)[0]
    assert "pipeline" in held(builder)[0]
    builder.emit(e.Banned(by="ann", strategy="tiling"))
    assert "fusion" not in held(builder)[0]


def test_masks_follow_the_representative_of_each_cluster(build: Any) -> None:
    builder = build()
    builder.candidate(0, signature={"dram": 10.0})
    builder.candidate(1, signature={"dram": 90.0})
    builder.candidate(2, parent_id=1, signature={"dram": 10.0})
    builder.emit(e.Clustered(pull=10, labels={0: 0, 1: 1, 2: 1}, representatives={0: 0, 1: 1}, features={}, arms=()))
    found = mask(builder.state, 10, {})
    assert {number: signature.dram.percent for number, signature in found.signatures.items()} == {0: 10.0, 1: 90.0}
    assert set(found.held) == {1}


percent = st.one_of(st.none(), st.floats(0, 100))


@given(sm=percent, dram=percent, l2=percent, moves=st.sets(st.sampled_from(STRATEGIES)))
def test_some_playable_arm_always_stays_and_the_rule_holds(
    build: Any, sm: float | None, dram: float | None, l2: float | None, moves: set[str]
) -> None:
    readings = {name: value for name, value in (("sm", sm), ("dram", dram), ("l2", l2)) if value is not None}
    builder = build()
    builder.candidate(0, signature=readings, moves=dict.fromkeys(moves, 1))
    fallen = set(held(builder).get(0, {}))
    saturated = {s for s in STRATEGIES if readings.get(TARGETS[s], 0.0) >= 75.0}
    assert fallen <= saturated
    if not moves:
        assert fallen == saturated
    elif moves <= saturated:
        [stays] = saturated - fallen
        assert stays in moves
        assert readings[TARGETS[stays]] == min(readings[TARGETS[s]] for s in moves)
    else:
        assert fallen == saturated
