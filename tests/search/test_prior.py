"""What the hardware says of an arm before it was tried, and what fusion could remove."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.search.prior import prior, ramp, removable_percent
from kbtui.search.settings import SoftSettings
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState

SETTINGS = SoftSettings(saturated=0.5)


def state_with(
    dram: float | None,
    *,
    ms: float | None = 1.0,
    moved: int = 1_000_000,
    peak: float = 4e9,
    kind: r.TimingKind = "measured",
) -> RunState:
    """A baseline of one case that must move `moved` bytes: 1,000,000 at 4 GB/s are 25 % of 1 ms."""
    state = RunState()
    state.apply(
        e.RunStarted(
            journal_version=1, run_id="r", timing=kind, policy="ucb", policy_parameters={}, generator="rewrite",
            objective="geomean", seed=0, iterations=20, budget_usd=None, parallel=1, versions={}, isolation={}, python="python",
            problem=r.ProblemInfo(
                name="p", path="/p", entry="p", digest="d", cases=(r.CaseInfo(name="a", fields={}, bytes_moved=moved),)
            ),
            device=r.DeviceInfo(lane="cuda:0", kind="cuda", name="GPU", target="sm_90", peak_bytes_per_s=peak),
        )
    )  # fmt: skip
    state.apply(
        e.Generated(
            candidate_id=0, parent_id=None, pull=0, strategy=None, generator="baseline", move="baseline", source="",
            source_digest="", syntax_digest="",
        )
    )  # fmt: skip
    case = r.CaseTiming(case="a", ms=ms) if kind == "measured" else r.CaseTiming(case="a", estimate_ms=ms)
    source: r.ReadingSource = "ncu" if kind == "measured" else "model"
    reading = r.Reading(dram, source) if dram is not None else r.Reading()
    timing = r.Timing(kind=kind, verdict="same", cases=(case,))
    state.apply(e.Timed(candidate_id=0, timing=timing, signature=r.Signature(dram=reading)))
    return state


def of(state: RunState, strategy: r.Strategy) -> Any:
    return prior(state, state.candidates[0], strategy, SETTINGS)


@pytest.mark.parametrize("kind", ["measured", "modelled"])
def test_what_fusion_could_remove_is_the_traffic_beyond_the_least(kind: r.TimingKind) -> None:
    state = state_with(85.0, kind=kind)
    assert removable_percent(state, state.candidates[0]) == pytest.approx(60.0)


def test_fusion_stands_well_where_dram_is_saturated_and_vectorization_does_not() -> None:
    state = state_with(95.0)
    assert of(state, "fusion").weight == 1.0
    assert of(state, "fusion").headroom_percent == pytest.approx(70.0)
    assert of(state, "vectorization").weight == pytest.approx(1 - 0.5 * 20 / 25)
    assert of(state, "vectorization").headroom_percent == -20.0


@pytest.mark.parametrize(
    ("dram", "weight", "reason"),
    [
        (25.0, 0.5, "0 % of DRAM peak is traffic to remove"),
        (10.0, 0.5, "0 % of DRAM peak is traffic to remove"),
        (37.5, 0.75, "12 % of DRAM peak is traffic to remove"),
        (50.0, 1.0, ""),
    ],
)
def test_fusion_has_little_to_gain_where_only_compulsory_traffic_is_left(
    dram: float, weight: float, reason: str
) -> None:
    found = of(state_with(dram), "fusion")
    assert (found.weight, found.reason) == (pytest.approx(weight), reason)


@pytest.mark.parametrize("missing", [{"dram": None}, {"ms": None}, {"moved": 0}, {"peak": 0.0}])
def test_what_is_not_known_leaves_fusion_alone(missing: dict[str, Any]) -> None:
    state = state_with(**{"dram": 5.0, **missing})
    assert removable_percent(state, state.candidates[0]) is None
    assert of(state, "fusion") == of(state_with(None), "fusion")
    assert of(state, "fusion").weight == 1.0


@given(excess=st.floats(-200, 200), more=st.floats(0, 100), span=st.floats(0, 100), least=st.floats(0.01, 1))
def test_the_ramp_falls_from_one_to_its_least(excess: float, more: float, span: float, least: float) -> None:
    assert least - 1e-12 <= ramp(excess + more, span, least) <= ramp(excess, span, least) <= 1.0
    assert ramp(min(excess, 0.0), max(span, 1e-6), least) == 1.0
    assert ramp(span, span, least) == pytest.approx(least)


@given(percent=st.one_of(st.none(), st.floats(0, 100)))
def test_every_strategy_keeps_a_chance(percent: float | None) -> None:
    state = state_with(percent)
    reading = r.Reading(percent, "ncu") if percent is not None else r.Reading()
    candidate = state.candidates[0]
    candidate.signature = r.Signature(sm=reading, dram=reading, l2=reading)
    for strategy in r.STRATEGIES:
        found = prior(state, candidate, strategy, SETTINGS)
        assert 0.5 <= found.weight <= 1.0
        assert bool(found.reason) == (found.weight < 1.0) or found.headroom_percent == 0.0
        if percent is None:
            assert found.weight == 1.0


def test_a_modelled_reading_is_marked() -> None:
    state = state_with(30.0, kind="modelled")
    assert of(state, "fusion").reason == "5 % of DRAM peak modelled is traffic to remove"
    assert msgspec.structs.asdict(of(state, "fusion"))["headroom_percent"] == pytest.approx(5.0)
