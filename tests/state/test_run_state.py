"""The fold: what follows from each kind of event, and that nothing else does."""

from __future__ import annotations

import copy
import subprocess
import sys
import typing
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from kbtui.state import acts
from kbtui.state import events as e
from kbtui.state import records as r
from kbtui.state.run_state import _FOLD, LOG_LINES, RunState

SUMMARY = r.Summary(
    run_id="r", problem="p", device="d", timing="measured", pulls=1, candidates=1, correct=1, best=None, baseline_ms=None,
    cost_usd=0.0, tokens=0, stopped_by="user",
)  # fmt: skip
STARTED = e.RunStarted(
    journal_version=1, run_id="r", timing="measured", policy="paper", policy_parameters={}, generator="rewrite",
    objective="geomean", seed=0, iterations=20, budget_usd=1.0, parallel=1, versions={}, isolation={}, python="python",
    problem=r.ProblemInfo(name="softmax", path="/p", entry="p", digest="d", cases=()),
    device=r.DeviceInfo(lane="cpu", kind="cpu", name="CPU", target="sm_90"),
)  # fmt: skip


def generated(candidate_id: int, parent_id: int | None = None, pull: int = 0, **more: Any) -> e.Generated:
    given = {"strategy": None, "generator": "rewrite", "move": f"m{candidate_id}", "source": "", "source_digest": "",
             "syntax_digest": f"x{candidate_id}"}  # fmt: skip
    return e.Generated(candidate_id=candidate_id, parent_id=parent_id, pull=pull, **{**given, **more})


def selected(pull: int, **more: Any) -> e.Selected:
    return e.Selected(pull=pull, cluster=0, strategy="tiling", parent_id=0, scores=(), **more)


def rewarded(pull: int, candidate_id: int | None = None) -> e.Rewarded:
    return e.Rewarded(
        pull=pull, cluster=0, strategy="tiling", candidate_id=candidate_id, reward=0.4, mean=0.45, pulls=2.0, outcome="faster"
    )  # fmt: skip


def verified(candidate_id: int, verdict: r.Correctness) -> e.Verified:
    return e.Verified(candidate_id=candidate_id, verification=r.Verification(verdict=verdict, stage="s", reason="why"))


def timed(candidate_id: int, **figures: Any) -> e.Timed:
    kind = "modelled" if "estimate" in figures else "measured"
    timing = r.Timing(kind=kind, verdict="unknown", cases=(), **figures)
    return e.Timed(candidate_id=candidate_id, timing=timing, signature=r.Signature())


def numbered(events: Iterable[e.Event]) -> list[e.Event]:
    found = []
    for event in events:
        seq = len([one for one in found if one.seq]) + 1 if e.is_durable(event) else 0
        found.append(msgspec.structs.replace(event, seq=seq, t=100.0 + len(found), elapsed=float(len(found))))
    return found


def fold(*events: e.Event) -> RunState:
    return RunState().apply_all(numbered(events))


BASE = (STARTED, generated(0))


def asked(pull: int, call: int, usd: float = 0.25, tokens: int = 900) -> e.Asked:
    return e.Asked(
        pull=pull,
        call=call,
        model="m",
        asking="write",
        strategy="tiling",
        messages=(r.Message("user", "make it faster"),),
        prompt_digest="d",
        most_tokens=500,
        reserved_usd=usd,
        reserved_tokens=tokens,
    )


def replied(pull: int, call: int, usd: float | None = 0.1) -> e.Replied:
    return e.Replied(
        pull=pull,
        call=call,
        model="m",
        asking="write",
        strategy="tiling",
        prompt_digest="d",
        text="```python\n```",
        finish="stop",
        prompt_tokens=300,
        completion_tokens=200,
        cost_usd=usd,
    )


EVERY_KIND: tuple[e.Event, ...] = (
    *BASE,
    e.Compiled(candidate_id=0, compilation=r.Compilation(ok=True)),
    verified(0, "correct"),
    timed(0, ratio=1.0),
    e.MovesFound(candidate_id=0, moves={"tiling": 2}),
    e.Confirmed(candidate_id=0, verification=r.Verification(verdict="correct", stage="hidden")),
    e.BestChanged(candidate_id=0, path="/b"),
    e.Masked(pull=1, signatures={0: r.Signature()}, held={0: {"fusion": "DRAM 80 % ≥ 75 %"}}),
    e.Forced(by="ann", strategy="tiling"),
    selected(1, forced=9),
    generated(1, 0, 1, strategy="tiling", cost_usd=0.5, tokens=10),
    e.Pruned(candidate_id=1, stage="static", reason="calls torch"),
    rewarded(1, 1),
    e.Clustered(pull=2, labels={0: 1}, representatives={1: 0}, features={}, arms=()),
    selected(2),
    e.PullDropped(pull=2, owner="provider", reason="429"),
    e.Banned(by="ann", strategy="fusion"),
    e.Unbanned(by="ann", strategy="fusion"),
    e.RunPaused(by="ann"),
    e.Stepped(by="ann"),
    e.RunResumed(by="ann"),
    e.Injected(by="ann", name="mine.py", source="x"),
    e.Pinned(by="ann", parent_id=0),
    e.BudgetChanged(by="ann", iterations=30),
    e.Tagged(by="ann", candidate_id=1, tag="odd"),
    e.Hinted(by="ann", text="fewer warps"),
    e.Undone(by="ann", act=27, text="ann tagged #1 odd"),
    e.Killed(by="ann", candidate_id=1),
    selected(3),
    asked(3, 1),
    e.ReplyDelta(pull=3, call=1, model="m", characters=40, tokens=10, tail="def"),
    replied(3, 1),
    e.ReplyRead(pull=3, call=1, refused="no code", reason="no block"),
    asked(3, 2),
    e.AskFailed(pull=3, call=2, model="m", kind="rate limit", reason="429", cost_usd=0.01, tokens=7),
    e.ParameterDropped(model="m", parameter="temperature", reason="unsupported"),
    e.RepairEnded(pull=3, candidate_id=1, reason="no reply"),
    e.BudgetSpent(budget="budget", reason="no call fits"),
    e.Noted(level="info", text="hello"),
    e.GpuSampled(device="cuda:0", uuid="GPU-1", values={"power_w": 400.0}),
    e.Progressed(stage="timing"),
    e.RunStopped(stopped_by="user", summary=SUMMARY),
    e.RunContinued(pid=1),
    e.BaselineChosen(candidate_id=0),
    e.DeviceDropped(device="cuda:1", reason="it fell off the bus", candidate_id=1),
)


def everything(state: RunState) -> dict[str, Any]:
    """All of the state, in a form that compares by value."""
    return {name: repr(value) for name, value in vars(state).items()}


def test_the_sample_has_every_kind_and_the_fold_knows_every_kind() -> None:
    kinds = set(typing.get_args(e.AnyEvent))
    assert {type(event) for event in EVERY_KIND} == kinds
    assert set(_FOLD) == kinds


@pytest.mark.parametrize("cut", range(len(EVERY_KIND) + 1))
def test_folding_a_prefix_and_then_the_rest_is_folding_all(cut: int) -> None:
    events = numbered(EVERY_KIND)
    state = RunState().apply_all(events[:cut])
    state = copy.deepcopy(state).apply_all(events[cut:])
    assert everything(state) == everything(RunState().apply_all(events))


def test_folding_from_json_is_folding_the_events() -> None:
    events = numbered(EVERY_KIND)
    decoded = [e.decode(e.encode(event)) for event in events]
    assert everything(RunState().apply_all(decoded)) == everything(RunState().apply_all(events))


def test_two_states_share_nothing() -> None:
    one, other = fold(*EVERY_KIND), RunState()
    assert everything(other) == everything(RunState())
    one.candidates[0].tags.append("x")
    assert fold(*EVERY_KIND).candidates[0].tags == []


def test_an_unknown_kind_is_an_error() -> None:
    class Strange(e.Event, frozen=True, kw_only=True):
        pass

    with pytest.raises(KeyError):
        RunState().apply(Strange())


def test_transient_events_leave_the_number_and_the_clock_alone() -> None:
    state = fold(*BASE)
    before = (state.seq, state.last_t, state.elapsed)
    state.apply(e.Progressed(t=999.0, elapsed=999.0, stage="timing"))
    state.apply(e.Progressed(stage="idle"))
    state.apply(e.GpuSampled(device="cuda:0", uuid="GPU-1", values={"power_w": 1.0}))
    state.apply(e.GpuSampled(device="cuda:0", uuid="GPU-1", values={"power_w": 2.0}))
    assert (state.seq, state.last_t, state.elapsed) == before
    assert state.progress is not None
    assert state.progress.stage == "idle"
    assert state.gpu["GPU-1"].values == {"power_w": 2.0}


def test_the_clock_never_goes_back() -> None:
    state = RunState()
    state.apply(e.Noted(seq=1, t=50.0, elapsed=10.0, level="info", text=""))
    state.apply(e.Noted(seq=2, t=60.0, elapsed=5.0, level="info", text=""))
    assert (state.seq, state.first_t, state.last_t, state.elapsed) == (2, 50.0, 60.0, 10.0)


@pytest.mark.parametrize(
    ("verdict", "correct"), [("correct", True), ("unknown", True), ("wrong", False), ("crash", False)]
)
def test_the_hidden_stage_has_the_last_word(verdict: r.Correctness, correct: bool) -> None:
    state = fold(*BASE, verified(0, "correct"), timed(0, ratio=1.0))
    state.apply(e.Confirmed(candidate_id=0, verification=r.Verification(verdict=verdict, stage="hidden", reason="odd")))
    candidate = state.candidates[0]
    assert candidate.correct == correct
    assert (candidate in state.frontier) == correct
    assert candidate.exposed != correct
    assert correct or candidate.status == verdict


def test_a_killed_candidate_says_by_whom() -> None:
    state = fold(*BASE, selected(1), generated(1, 0, 1, strategy="tiling"), e.Killed(by="ann", candidate_id=1))
    assert (state.candidates[1].killed_by, state.candidates[1].status) == ("ann", "killed")
    assert state.log[-1].text == "ann killed #1"


def test_a_changed_limit_leaves_the_others() -> None:
    state = fold(*BASE)
    state.apply(e.BudgetChanged(by="ann", budget_s=60.0))
    state.apply(e.BudgetChanged(by="ann", patience=4, budget_tokens=9))
    assert (state.budget_s, state.patience, state.budget_tokens) == (60.0, 4, 9)
    assert (state.iterations, state.budget_usd) == (20, 1.0)


def test_the_life_of_a_run() -> None:
    state = fold(STARTED)
    assert (state.status, state.iterations, state.budget_usd, state.modelled) == ("running", 20, 1.0, False)
    state.apply(e.RunPaused(by="kbtui", reason="429", owner="provider"))
    assert (state.status, state.pause_reason) == ("paused", "429")
    state.apply(e.Stepped(by="ann"))
    assert state.steps == 1
    state.apply(selected(1))
    assert (state.status, state.steps) == ("paused", 0)
    state.apply(e.RunResumed(by="ann"))
    assert (state.status, state.pause_reason) == ("running", "")
    state.apply(e.Progressed(stage="timing"))
    state.apply(e.RunStopped(stopped_by="iterations", summary=SUMMARY))
    assert (state.status, state.stopped_by, state.summary, state.progress) == ("stopped", "iterations", SUMMARY, None)
    state.apply(e.RunContinued(pid=5, iterations=40))
    assert (state.status, state.stopped_by, state.summary, state.iterations) == ("running", "", None, 40)


def test_a_candidate_goes_its_way() -> None:
    state = fold(*BASE, selected(1), generated(1, 0, 1, strategy="tiling", cost_usd=0.5, tokens=10))
    child = state.candidates[1]
    assert (child.stage, child.status, child.correct) == ("generated", "generated", False)
    assert (state.cost_usd, state.tokens) == (0.5, 10)
    assert state.candidates[0].children == [1]
    assert state.pulls[1].candidate_ids == [1]
    assert state.digests == {"x0": 0, "x1": 1}
    state.apply(e.Compiled(candidate_id=1, compilation=r.Compilation(ok=True)))
    assert child.status == "compiled"
    state.apply(verified(1, "correct"))
    assert (child.status, child.correct) == ("verified", True)
    assert [one.id for one in state.frontier] == [1]
    state.apply(timed(1, ratio=1.4))
    assert (child.ratio, child.estimate, child.stage) == (1.4, None, "timed")
    state.apply(e.MovesFound(candidate_id=1, moves={"fusion": 1}))
    assert child.moves == {"fusion": 1}
    state.apply(e.BestChanged(candidate_id=1, path="/b"))
    assert (state.best_id, child.path) == (1, "/b")
    assert state.best is child
    state.apply(e.Tagged(by="ann", candidate_id=1, tag="good", note="n"))
    state.apply(e.Tagged(by="ann", candidate_id=1, tag="good"))
    assert (child.tags, child.note) == (["good"], "n")


@pytest.mark.parametrize(
    ("event", "status"),
    [
        (e.Pruned(candidate_id=0, stage="static", reason="x", value=1.0, limit=0.5), "pruned"),
        (e.Compiled(candidate_id=0, compilation=r.Compilation(ok=False, outcome="invalid")), "invalid"),
        (e.Compiled(candidate_id=0, compilation=r.Compilation(ok=False, outcome="hang")), "hang"),
        (verified(0, "wrong"), "wrong"),
        (verified(0, "cheat"), "cheat"),
    ],
)
def test_a_failed_candidate_says_how_it_failed_and_is_not_on_the_frontier(event: e.Event, status: str) -> None:
    state = fold(*BASE, event)
    assert state.candidates[0].status == status
    assert state.frontier == []


def test_a_modelled_figure_is_no_ratio() -> None:
    state = fold(*BASE, timed(0, estimate=1.3))
    assert (state.candidates[0].ratio, state.candidates[0].estimate) == (None, 1.3)
    assert "~1.30 est" in state.log[-1].text
    assert "modelled" in state.log[-1].text
    assert "x" not in state.log[-1].text.partition("~")[2].partition("est")[0]


def test_a_pull_ends_once() -> None:
    state = fold(*BASE, selected(1), generated(1, 0, 1), rewarded(1, 1))
    pull = state.pulls[1]
    assert (pull.reward, pull.outcome, pull.ended, pull.seen) == (0.4, "faster", True, True)
    assert (state.pulls_ended, state.open_pulls) == (1, [])
    assert state.candidates[1].reward == 0.4
    state.apply(e.PullDropped(pull=1, owner=None, reason="again"))
    assert (pull.outcome, state.pulls_ended) == ("faster", 1)


def test_a_dropped_pull_is_not_seen_and_leaves_its_arm_alone() -> None:
    state = fold(*BASE, selected(1), e.PullDropped(pull=1, owner="provider", reason="429"))
    assert (state.pulls[1].outcome, state.pulls[1].ended, state.pulls[1].seen) == ("dropped", True, False)
    assert (state.arms, state.pulls_ended, state.pulls[1].reward) == ({}, 0, None)


def test_statistics_come_from_the_events() -> None:
    arm = r.ArmStatistics(cluster=2, strategy="fusion", pulls=4.0, mean=0.3)
    clustered = e.Clustered(pull=2, labels={0: 2}, representatives={2: 0}, features={}, arms=(arm,))
    state = fold(*BASE, selected(1), rewarded(1), clustered)
    assert {key: (found.pulls, found.mean) for key, found in state.arms.items()} == {(2, "fusion"): (4.0, 0.3)}
    assert (state.candidates[0].cluster, state.labels, state.representatives) == (2, {0: 2}, {2: 0})
    assert state.last_clustered is not None
    assert state.last_clustered.pull == 2
    state.apply(rewarded(1))
    assert state.arms[0, "tiling"].mean == 0.45


def test_bans_of_one_cluster_and_of_all() -> None:
    state = fold(e.Banned(by="ann", strategy="fusion"), e.Banned(by="ann", strategy="tiling", cluster=1))
    assert [state.banned(k, "fusion") for k in (0, 1)] == [True, True]
    assert [state.banned(k, "tiling") for k in (0, 1)] == [False, True]
    state.apply(e.Unbanned(by="ann", strategy="fusion"))
    assert not state.banned(0, "fusion")


def test_forces_wait_in_order_until_played_or_given_up() -> None:
    state = fold(*BASE, e.Forced(by="ann", strategy="tiling"), e.Forced(by="ann", strategy="fusion"))
    assert list(state.forces) == [3, 4]
    state.apply(selected(1, forced=3))
    assert list(state.forces) == [4]
    assert state.pulls[1].forced
    state.apply(e.Noted(level="warning", text="no move", drops_force=4))
    assert state.forces == {}


def test_an_injection_waits_until_it_is_a_candidate() -> None:
    state = fold(*BASE, *(e.Injected(by="ann", name="mine.py", source="x") for _ in range(2)))
    assert list(state.injections) == [3, 4]
    state.apply(generated(1, 0, generator="inject", move="mine.py", source="x"))
    assert list(state.injections) == [4]


def test_pins_and_budgets() -> None:
    state = fold(STARTED, e.Pinned(by="ann", parent_id=3), e.BudgetChanged(by="ann", iterations=9))
    assert (state.pinned, state.iterations, state.budget_usd) == (3, 9, 1.0)
    state.apply(e.Pinned(by="ann", parent_id=None))
    state.apply(e.BudgetChanged(by="ann", budget_usd=2.5))
    assert (state.pinned, state.iterations, state.budget_usd) == (None, 9, 2.5)


def test_the_log_says_each_thing_once_and_keeps_its_length() -> None:
    state = fold(STARTED, e.Noted(level="warning", text="careful", source="provider"))
    assert [(line.level, line.text) for line in state.log][-1] == ("warning", "provider: careful")
    for _ in range(LOG_LINES + 5):
        state.apply(e.Noted(level="info", text="x"))
    assert len(state.log) == LOG_LINES


def test_the_fold_imports_msgspec_and_nothing_heavier() -> None:
    code = (
        "import sys, kbtui.state.run_state, kbtui.state.commands\n"
        "heavy = {'numpy', 'duckdb', 'sklearn', 'torch', 'triton', 'textual', 'asyncio'} & set(sys.modules)\n"
        "print(sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# ---------------------------------------------------------------- models


def test_a_request_counts_as_spent_at_its_most_until_its_end_is_known() -> None:
    state = fold(*BASE, selected(1), asked(1, 1), asked(1, 2, usd=0.5, tokens=100))
    assert (state.reserved_usd, state.reserved_tokens, state.cost_usd) == (0.75, 1000, 0.0)
    state.apply_all(numbered((replied(1, 1),)))
    assert (state.reserved_usd, state.cost_usd, state.tokens) == (0.5, 0.1, 500)
    state.apply_all(numbered((e.AskFailed(pull=1, call=2, model="m", kind="dropped", reason="r", cost_usd=0.02),)))
    assert (state.reserved_usd, round(state.cost_usd, 2), state.asks) == (0.0, 0.12, {})


def test_what_a_crash_cut_off_stays_reserved() -> None:
    state = fold(*BASE, selected(1), asked(1, 1), e.RunContinued(pid=2))
    assert state.reserved_usd == 0.25


def test_a_candidate_is_charged_once() -> None:
    state = fold(*BASE, selected(1), asked(1, 1), replied(1, 1), generated(1, 0, 1, cost_usd=0.1, tokens=500))
    assert (state.cost_usd, state.tokens, state.candidates[1].cost_usd) == (0.1, 500, 0.1)
    assert (state.pulls[1].cost_usd, state.pulls[1].tokens) == (0.1, 500)


def test_an_unknown_price_costs_nothing_and_counts_tokens() -> None:
    state = fold(*BASE, selected(1), asked(1, 1, usd=0.0), replied(1, 1, usd=None))
    assert (state.cost_usd, state.tokens) == (0.0, 500)


def test_a_growing_reply_is_forgotten_at_its_end() -> None:
    delta = e.ReplyDelta(pull=1, call=1, model="m", characters=4, tokens=1)
    state = fold(*BASE, selected(1), asked(1, 1), delta)
    assert state.reply_deltas == {1: state.reply_deltas[1]}
    assert fold(*BASE, selected(1), asked(1, 1), delta, replied(1, 1)).reply_deltas == {}


def test_a_new_budget_lifts_what_the_old_one_ended() -> None:
    spent = e.BudgetSpent(budget="tokens", reason="r")
    assert fold(*BASE, spent).budget_spent == "tokens"
    assert fold(*BASE, spent, e.BudgetChanged(by="ann", budget_usd=2.0)).budget_spent == ""
    assert fold(*BASE, spent, e.RunContinued(pid=2)).budget_spent == ""


# ---------------------------------------------------------------- what people did and can take back


START = (*BASE, generated(1, 0, 1), verified(1, "correct"), e.Pinned(by="ann", parent_id=1))
"""Five events; #1 is pinned."""

ACTS: list[e.Event] = [
    e.RunPaused(by="bob", reason="lunch"),
    e.Forced(by="bob", strategy="fusion", cluster=0),
    e.Banned(by="bob", strategy="fusion"),
    e.Injected(by="bob", name="mine.py", source="x"),
    e.Pinned(by="bob", parent_id=None),
    e.BudgetChanged(by="bob", iterations=30, budget_usd=9.0, patience=3),
    e.Tagged(by="bob", candidate_id=1, tag="odd", note="look"),
    e.Hinted(by="bob", text="use fewer warps"),
]
IGNORED = ("seq", "version", "last_t", "elapsed", "log", "acts")


def visible(state: RunState) -> dict[str, Any]:
    """What an act may change."""
    return {name: repr(value) for name, value in vars(state).items() if name not in IGNORED}


@pytest.mark.parametrize("act", ACTS, ids=lambda act: type(act).__name__)
def test_an_act_is_taken_back_whole(act: e.Event) -> None:
    before, done = fold(*START), fold(*START, act)
    assert visible(done) != visible(before)
    undone = fold(*START, act, e.Undone(by="ann", act=6))
    assert visible(undone) == visible(before)
    assert list(undone.acts) == list(before.acts) == [5]
    assert undone.log[-1].text == f"ann took back: {done.acts[6].text}"


def test_lifting_a_ban_is_taken_back_by_the_ban() -> None:
    state = fold(*BASE, e.Banned(by="ann", strategy="fusion"), e.Unbanned(by="ann", strategy="fusion"))
    assert not state.bans
    state.apply(e.Undone(seq=5, by="ann", act=4))
    assert state.bans == {(None, "fusion")}
    state.apply(e.Undone(seq=6, by="ann", act=3))
    assert not state.bans
    assert acts.last_act(state) is None


def test_a_tag_that_was_there_stays() -> None:
    tag = e.Tagged(by="ann", candidate_id=0, tag="keep", note="first")
    state = fold(*BASE, tag, e.Tagged(by="ann", candidate_id=0, tag="keep", note="second"), e.Undone(by="a", act=4))
    assert (state.candidates[0].tags, state.candidates[0].note) == (["keep"], "first")


@pytest.mark.parametrize(
    "events",
    [
        (e.Forced(by="ann", strategy="tiling"), selected(1, forced=3)),
        (e.Forced(by="ann", strategy="tiling"), e.Noted(level="warning", text="no move is left", drops_force=3)),
        (
            e.Injected(by="ann", name="m1", source=""),
            generated(1, None, 0, generator="inject"),
        ),
        (e.RunPaused(by="ann"), e.RunResumed(by="ann")),
        (e.RunPaused(by="ann"), e.RunPaused(by="kbtui", reason="429", owner="provider")),
        (e.BudgetChanged(by="ann", iterations=3), e.RunStopped(stopped_by="user", summary=SUMMARY), e.RunContinued(pid=1)),
    ],
)  # fmt: skip
def test_what_has_had_its_effect_cannot_be_taken_back(events: tuple[e.Event, ...]) -> None:
    assert fold(*BASE, events[0]).acts
    assert not fold(*BASE, *events).acts


def test_what_the_program_did_is_no_act() -> None:
    state = fold(*BASE, e.RunPaused(by="kbtui", reason="429", owner="provider"))
    assert not state.acts
    assert state.log[-1].level == "warning"


def test_only_so_many_are_kept() -> None:
    state = fold(*BASE, *(e.Hinted(by="ann", text=str(i)) for i in range(acts.MOST_ACTS + 5)))
    assert len(state.acts) == acts.MOST_ACTS
    assert acts.last_act(state) is state.acts[acts.MOST_ACTS + 7]


def test_an_act_that_is_not_there_changes_nothing() -> None:
    before = fold(*START)
    after = fold(*START, e.Undone(by="ann", act=99, text="ann banned fusion"))
    assert visible(after) == visible(before)
    assert after.log[-1].text == "ann took back: ann banned fusion"
