"""A small recorded run, written by hand, that every table of the history gets rows from."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest

from kbtui.history.journal import JournalWriter
from kbtui.paths import journal_file
from kbtui.state import events as e
from kbtui.state import records as r

T0 = 1_800_000_000.0


def started(run_id: str, timing: r.TimingKind = "measured", problem: str = "softmax") -> e.RunStarted:
    return e.RunStarted(
        journal_version=e.JOURNAL_VERSION,
        run_id=run_id,
        problem=r.ProblemInfo(
            name=problem,
            path=f"/problems/{problem}",
            entry=problem,
            digest="d" * 64,
            cases=(
                r.CaseInfo(name="small", fields={"rows": 128, "dtype": "float32"}, bytes_moved=1 << 20),
                r.CaseInfo(name="large", fields={"rows": 4096, "dtype": "float32"}, bytes_moved=1 << 40, weight=2.0),
            ),
        ),
        device=r.DeviceInfo(lane="cuda:0", kind="cuda", name="NVIDIA H200", target="sm_90", uuid="GPU-1"),
        timing=timing,
        policy="paper",
        policy_parameters={"c": 2.0},
        generator="rewrite",
        objective="geomean",
        seed=7,
        iterations=4,
        budget_usd=None,
        parallel=1,
        versions={"kbtui": "0.1"},
        isolation={"landlock": "yes"},
        python="/usr/bin/python3",
        arguments=("run", problem),
    )


def generated(candidate_id: int, parent_id: int | None, pull: int, strategy: r.Strategy | None) -> e.Generated:
    return e.Generated(
        candidate_id=candidate_id,
        parent_id=parent_id,
        pull=pull,
        strategy=strategy,
        generator="rewrite",
        move=f"move {candidate_id}",
        source=f"def softmax(x): ...  # {candidate_id} \0 \x1b[31m é",
        source_digest=f"s{candidate_id}",
        syntax_digest=f"t{candidate_id}",
        cost_usd=0.25,
        tokens=100,
    )


def compiled(candidate_id: int) -> e.Compiled:
    kernel = r.KernelFacts(
        name="softmax_kernel", target="sm_90", registers=32, spill_bytes=0, shared_bytes=1024, num_warps=4, num_stages=2,
        threads=128, occupancy_percent=75.0, code_digest=f"c{candidate_id}", constants={"BLOCK": 1024}, grid=(4, 1, 1),
    )  # fmt: skip
    return e.Compiled(candidate_id=candidate_id, compilation=r.Compilation(ok=True, kernels=(kernel,), seconds=0.5))


def verified(candidate_id: int, verdict: r.Correctness = "correct") -> e.Verified:
    return e.Verified(
        candidate_id=candidate_id,
        verification=r.Verification(verdict=verdict, stage="cases", cases_checked=9, not_checked=("races",)),
    )


def timed(candidate_id: int, ratio: float, kind: r.TimingKind = "measured") -> e.Timed:
    if kind == "measured":
        cases = tuple(r.CaseTiming(case=name, ms=1 / ratio, ratio=ratio) for name in ("small", "large"))
        timing = r.Timing(kind=kind, verdict="faster", cases=cases, ratio=ratio, low=ratio - 0.1, high=ratio + 0.1)
        source: r.ReadingSource = "ncu"
    else:
        cases = tuple(
            r.CaseTiming(case=name, estimate_ms=1 / ratio, estimate_ratio=ratio) for name in ("small", "large")
        )
        timing = r.Timing(kind=kind, verdict="not worse", cases=cases, estimate=ratio)
        source = "model"
    signature = r.Signature(sm=r.Reading(20.0, source), dram=r.Reading(83.0, source), l2=r.Reading(reason="no counter"))
    return e.Timed(candidate_id=candidate_id, timing=timing, signature=signature)


def selected(pull: int, strategy: r.Strategy, parent_id: int, forced: int | None = None) -> e.Selected:
    scores = tuple(
        r.ArmScore(cluster=0, strategy=name, pulls=1.0, mean=0.5, bonus=0.1, score=0.6, held="" if name == strategy else "masked")
        for name in r.STRATEGIES
    )  # fmt: skip
    return e.Selected(pull=pull, cluster=0, strategy=strategy, parent_id=parent_id, scores=scores, forced=forced)


def rewarded(pull: int, strategy: r.Strategy, candidate_id: int | None, reward: float, outcome: str) -> e.Rewarded:
    return e.Rewarded(
        pull=pull, cluster=0, strategy=strategy, candidate_id=candidate_id, reward=reward, mean=reward, pulls=2.0, outcome=outcome
    )  # fmt: skip


def a_run(run_id: str = "softmax-1", timing: r.TimingKind = "measured", problem: str = "softmax") -> list[e.Event]:
    """Three pulls: one gains, one is wrong, one is dropped; a person forces, bans, tags and stops."""
    features = r.Features(log_latency=0.7, registers=32.0, shared_kib=1.0, log2_block=10.0, occupancy_percent=75.0)
    events: list[e.Event] = [
        started(run_id, timing, problem),
        generated(0, None, 0, None), compiled(0), verified(0), timed(0, 1.0, timing),
        e.BestChanged(candidate_id=0, path="/best/0.py"),
        selected(1, "tiling", 0), generated(1, 0, 1, "tiling"), compiled(1), verified(1), timed(1, 1.5, timing),
        rewarded(1, "tiling", 1, 1 / 3, "faster"), e.BestChanged(candidate_id=1, path="/best/1.py"),
        e.Forced(by="ann@tty1", strategy="fusion", cluster=0, parent_id=1),
        selected(2, "fusion", 1, forced=14), generated(2, 1, 2, "fusion"), compiled(2), verified(2, "wrong"),
        rewarded(2, "fusion", 2, 0.0, "wrong"),
        e.Clustered(pull=3, labels={0: 0, 1: 1}, representatives={0: 0, 1: 1}, features={0: features}, arms=()),
        e.Banned(by="ann@tty1", strategy="pipeline"),
        e.Tagged(by="ann@tty1", candidate_id=1, tag="good", note="ship it"),
        selected(3, "tiling", 1), e.PullDropped(pull=3, owner="provider", reason="429"),
        e.RunPaused(by="kbtui", reason="provider refuses", owner="provider"),
        e.Noted(level="warning", text="careful"),
        e.RunPaused(by="ann@tty1", reason="lunch"),
    ]  # fmt: skip
    return [msgspec.structs.replace(event, t=T0 + index, elapsed=float(index)) for index, event in enumerate(events)]


def stopped(run_id: str) -> e.RunStopped:
    summary = r.Summary(
        run_id=run_id, problem="softmax", device="NVIDIA H200", timing="measured", pulls=3, candidates=3, correct=2,
        best=None, baseline_ms=1.0, cost_usd=0.75, tokens=300, stopped_by="user",
    )  # fmt: skip
    return e.RunStopped(t=T0 + 100, elapsed=100.0, stopped_by="user", summary=summary)


def record(run_id: str, events: Iterable[e.Event]) -> None:
    """Append to the run's journal."""
    with JournalWriter(journal_file(run_id)) as writer:
        for event in events:
            writer.append(event)


@pytest.fixture
def make_run() -> Callable[..., list[e.Event]]:
    """`make_run(run_id, timing, problem)`: the events of the small run."""
    return a_run


@pytest.fixture
def stop_event() -> Callable[[str], e.RunStopped]:
    """`stop_event(run_id)`: what ends a run."""
    return stopped


@pytest.fixture
def write_journal() -> Callable[[str, Iterable[e.Event]], None]:
    """`write_journal(run_id, events)`: append to the run's journal."""
    return record
