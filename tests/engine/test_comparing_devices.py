"""Who is compared with the best, and where: on one device, or not at all. Pure, from events made by hand."""

from __future__ import annotations

import pytest
from engine_fakes import OFFERS, variant

from kbtui.engine import actions as a
from kbtui.engine.best import arena, best_of
from kbtui.engine.dispatching import merge_of
from kbtui.engine.placing import Limits
from kbtui.engine.plan import ready_actions
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import RunState

A, B, C = "cuda:0", "cuda:1", "cuda:2"
STARTED = e.RunStarted(
    journal_version=1, run_id="r", timing="measured", policy="ucb", policy_parameters={}, generator="rewrite",
    objective="geomean", seed=0, iterations=20, budget_usd=None, parallel=2, versions={}, isolation={}, python="python",
    problem=r.ProblemInfo(
        name="p", path="/p", entry="vector_add", digest="d", cases=(r.CaseInfo(name="n", fields={}, bytes_moved=1000),)
    ),
    device=r.DeviceInfo(lane=A, kind="cuda", name="H200", target="sm_90"), lanes=(A, B),
    devices=tuple(r.DeviceInfo(lane=lane, kind="cuda", name="H200", target="sm_90") for lane in (A, B)),
)  # fmt: skip
LIMITS = Limits(pulls=2, compilers=2)


def timed(number: int, ratio: float | None, device: str, ms: float = 1.0) -> e.Timed:
    verdict = "unknown" if ratio is None else "faster" if ratio > 1 else "slower" if ratio < 1 else "same"
    case = r.CaseTiming(case="n", ms=None if ratio is None else ms / ratio, ratio=ratio)
    span = {} if ratio is None else {"low": ratio * 0.99, "high": ratio * 1.01}
    timing = r.Timing(kind="measured", verdict=verdict, cases=(case,), ratio=ratio, **span)  # type: ignore[arg-type]
    return e.Timed(candidate_id=number, timing=timing, signature=r.Signature(), device=device)


def candidate(number: int, ratio: float | None, device: str) -> list[e.Event]:
    """The events of a candidate of pull `number` up to its first time."""
    made: list[e.Event] = []
    if number:
        made.append(e.Selected(pull=number, cluster=0, strategy="tiling", parent_id=0, scores=()))
    made += [
        e.Generated(
            candidate_id=number, parent_id=0 if number else None, pull=number, strategy=None, generator="rewrite",
            move=f"m{number}", source=variant(number), source_digest=str(number), syntax_digest=str(number),
        ),
        e.Compiled(candidate_id=number, compilation=r.Compilation(ok=True), device=device),
        e.Verified(candidate_id=number, verification=r.Verification(verdict="correct", stage="done"), device=device),
        timed(number, ratio, device),
        e.MovesFound(candidate_id=number, moves=dict(OFFERS)),
    ]  # fmt: skip
    return made


def confirmed(number: int) -> e.Confirmed:
    return e.Confirmed(candidate_id=number, verification=r.Verification(verdict="correct", stage="hidden"))


def promoted(number: int, device: str) -> e.BestChanged:
    return e.BestChanged(candidate_id=number, path="/b", device=device)


def ended(number: int) -> e.Rewarded:
    return e.Rewarded(
        pull=number, cluster=0, strategy="tiling", candidate_id=number, reward=0.1, mean=0.1, pulls=2, outcome="faster"
    )


BASELINE = (*candidate(0, 1.0, A), promoted(0, A), timed(0, 1.0, B, 1.2))
BEST = (*candidate(1, 1.4, A), confirmed(1), promoted(1, A), ended(1))
"""#1 is the best, by its time on cuda:0."""


def fold(*events: e.Event) -> RunState:
    return RunState().apply_all([STARTED, *events])


def step(state: RunState, pull: int) -> a.Action:
    """What comes next for what the pull made."""
    for action in ready_actions(state, LIMITS):
        if isinstance(action, a.EndPull) and action.pull.number == pull:
            return action
        if isinstance(action, a.Judge | a.TimeBaseline):
            return action
    raise AssertionError("nothing")


def on(state: RunState, number: int, device: str) -> a.Time:
    return a.Time(state.candidates[number], device)


def test_the_baseline_is_timed_on_each_device_and_shown_by_its_first() -> None:
    state = fold(*candidate(0, 1.0, A), promoted(0, A))
    assert [x for x in ready_actions(state, LIMITS) if isinstance(x, a.OnDevice)] == [
        a.TimeBaseline(state.candidates[0], B)
    ]
    state = fold(*BASELINE)
    baseline = state.candidates[0]
    assert (baseline.device, baseline.timing) == (A, baseline.timings[A])
    assert set(baseline.timings) == {A, B}


def test_a_challenger_timed_elsewhere_is_timed_where_the_best_was() -> None:
    state = fold(*BASELINE, *BEST, *candidate(2, 1.5, B))
    assert best_of(state) == 1, "its ratio on another device does not count"
    assert step(state, 2) == on(state, 2, A)


@pytest.mark.parametrize(("there", "rises"), [(1.41, True), (1.39, False), (1.0, False), (None, False)])
def test_what_decides_is_its_time_there(there: float | None, rises: bool) -> None:
    state = fold(*BASELINE, *BEST, *candidate(2, 1.5, B), timed(2, there, A))
    assert isinstance(step(state, 2), a.Confirm if rises else a.EndPull)
    assert best_of(state) == (2 if rises else 1)
    if there is not None:
        assert (state.candidates[2].ratio, state.candidates[2].device) == (there, A)
    else:
        assert (state.candidates[2].ratio, state.candidates[2].device) == (1.5, B), "no time there is no time lost"


def test_what_is_far_behind_is_not_timed_again() -> None:
    state = fold(*BASELINE, *BEST, *candidate(2, 1.1, B))
    assert isinstance(step(state, 2), a.EndPull)
    state = fold(*BASELINE, *BEST, *candidate(2, 1.35, B))
    assert step(state, 2) == on(state, 2, A), "within what two devices of a kind differ by"


def test_a_challenger_on_the_same_device_needs_no_second_time() -> None:
    state = fold(*BASELINE, *BEST, *candidate(2, 1.5, A))
    assert isinstance(step(state, 2), a.Confirm)


def test_when_its_device_is_gone_the_best_is_timed_anew_before_it_can_be_beaten() -> None:
    dead = (*BASELINE, *BEST, *candidate(2, 1.5, B), e.DeviceDropped(device=A, reason="gone"))
    state = fold(*dead)
    assert (arena(state), best_of(state)) == (B, 1)
    assert step(state, 2) == on(state, 1, B)
    state = fold(*dead, timed(1, 1.6, B))
    assert isinstance(step(state, 2), a.EndPull)
    assert best_of(state) == 1
    state = fold(*dead, timed(1, 1.45, B))
    assert isinstance(step(state, 2), a.Confirm)
    state = fold(*dead, timed(1, 1.45, B), confirmed(2), promoted(2, B))
    assert (state.best_id, arena(state)) == (2, B)
    state = fold(*dead, timed(1, None, B))
    assert isinstance(step(state, 2), a.Confirm), "a best that cannot be timed any more does not hold its place"


def test_the_first_to_rise_says_where() -> None:
    """Two versions beat the baseline at once, on different devices: the older one's is where they meet."""
    state = fold(*BASELINE, *candidate(1, 1.2, B), *candidate(2, 1.3, A))
    assert (arena(state), best_of(state)) == (B, 1)
    ready = ready_actions(state, LIMITS)
    assert isinstance(ready[0], a.Confirm)
    assert [x for x in ready if isinstance(x, a.Time)] == [], "cuda:1 is taken by the check"
    assert on(state, 2, B) in ready_actions(state, Limits(3, 2), [a.Confirm(state.candidates[1], A)])


def test_without_a_baseline_one_device_times_alone() -> None:
    """Two at once would both be the baseline."""
    empty = e.Generated(
        candidate_id=0, parent_id=None, pull=0, strategy=None, generator=r.EMPTY_START, move="", source="",
        source_digest="", syntax_digest="e",
    )  # fmt: skip
    drafts = [x for n in (1, 2) for x in candidate(n, 1.0, A)[:-2]]
    state = fold(empty, e.MovesFound(candidate_id=0, moves=dict(OFFERS)), *drafts, confirmed(1), confirmed(2))
    timing = [x for x in ready_actions(state, LIMITS) if isinstance(x, a.Time)]
    assert timing == [on(state, 1, A)]


def test_milliseconds_of_two_devices_are_not_put_together() -> None:
    cases = tuple(r.CaseInfo(name=f"n={n}", fields={}, shapes=((n,), (n,))) for n in (64, 4096))
    problem = r.ProblemInfo(name="p", path="/p", entry="vector_add", digest="d", cases=cases)

    def by_case(number: int, small: float, large: float, device: str) -> e.Timed:
        times = tuple(r.CaseTiming(case=x.name, ms=ms) for x, ms in zip(cases, (small, large), strict=True))
        timing = r.Timing(kind="measured", verdict="faster", cases=times, ratio=2.0)
        return e.Timed(candidate_id=number, timing=timing, signature=r.Signature(), device=device)

    import msgspec

    def state(device: str) -> RunState:
        one = [x for x in candidate(1, 2.0, A) if not isinstance(x, e.Timed)]
        two = [x for x in candidate(2, 2.0, device) if not isinstance(x, e.Timed)]
        started = msgspec.structs.replace(STARTED, problem=problem)
        return RunState().apply_all(
            [started, *BASELINE, *one, by_case(1, 1.0, 4.0, A), confirmed(1), promoted(1, A), *two,
             by_case(2, 4.0, 1.0, device)]
        )  # fmt: skip

    assert merge_of(state(A), ("x", "y")) is not None
    assert merge_of(state(B), ("x", "y")) is None


def test_figures_of_a_candidate_are_set_against_its_own_devices() -> None:
    state = fold(*BASELINE, *candidate(1, 1.4, B))
    one, beside = state.candidates[1], state.baseline_beside(state.candidates[1])
    assert beside is state.candidates[0].timings[B]
    assert state.device_of(one).lane == B


def test_resuming_tries_what_ever_started_again() -> None:
    dropped = [e.DeviceDropped(device=lane, reason="gone") for lane in (A, B)]
    paused = e.RunPaused(by="kbtui", reason="gone", owner="environment")
    state = fold(*BASELINE, *dropped, paused)
    assert state.live_lanes == ()
    assert ready_actions(state, LIMITS) == []
    state.apply(e.RunResumed(by="me"))
    assert state.live_lanes == (A, B)
    state = RunState().apply_all([_with_third(), *BASELINE, e.DeviceDropped(device=C, reason="never started")])
    state.apply(e.RunResumed(by="me"))
    assert state.live_lanes == (A, B)
    state.apply(e.RunContinued(pid=1))
    assert state.live_lanes == (A, B, C)


def _with_third() -> e.RunStarted:
    import msgspec

    return msgspec.structs.replace(STARTED, lanes=(A, B, C))
