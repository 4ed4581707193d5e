"""A small finished run, as events: a baseline, a better candidate and a wrong one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from kbtui import paths
from kbtui.state import events as e
from kbtui.state.records import (
    BestSummary,
    CaseInfo,
    CaseTiming,
    Compilation,
    DeviceInfo,
    ProblemInfo,
    Signature,
    Summary,
    Timing,
    TimingKind,
    Verification,
)

HOSTILE = "wrong\x1b]52;c;aGk=\x07 [bold]result[/]"


def timing(kind: TimingKind, figure: float | None) -> Timing:
    measured = kind == "measured"
    case = CaseTiming(case="n=8", ms=0.05 if measured else None, estimate_ms=None if measured else 0.05)
    if figure is None:
        return Timing(kind=kind, verdict="same" if measured else "not worse", cases=(case,))
    if measured:
        return Timing(kind=kind, verdict="faster", cases=(case,), ratio=figure, low=figure - 0.03, high=figure + 0.03)
    return Timing(kind=kind, verdict="not worse", cases=(case,), estimate=figure)


def generated(candidate_id: int, parent_id: int | None, move: str) -> e.Generated:
    return e.Generated(
        candidate_id=candidate_id,
        parent_id=parent_id,
        pull=candidate_id,
        strategy=None if parent_id is None else "tiling",
        generator="rewrite",
        move=move,
        source=f"kernel = {candidate_id}\n",
        source_digest=str(candidate_id),
        syntax_digest=str(candidate_id),
    )


def finished_run(kind: TimingKind, run_id: str = "toy-20260102-0304-abc") -> list[e.Event]:
    """The events of the run, numbered; #1 is the best."""
    problem = ProblemInfo(
        name="toy", path="/p", entry="toy", digest="d" * 64, cases=(CaseInfo(name="n=8", fields={"n": 8}),)
    )
    device = DeviceInfo(lane="cpu", kind="cpu", name="cpu for sm_90", target="sm_90")
    verified = Verification(verdict="correct", stage="boundary", cases_checked=3)
    best = BestSummary(
        candidate_id=1,
        verdict="faster" if kind == "measured" else "not worse",
        speedup=1.42 if kind == "measured" else None,
        low=1.39 if kind == "measured" else None,
        high=1.45 if kind == "measured" else None,
        estimate=None if kind == "measured" else 1.42,
        path="/data/best/kernel.py",
    )
    events: list[e.Event] = [
        e.RunStarted(
            journal_version=1, run_id=run_id, problem=problem, device=device, timing=kind, policy="paper",
            policy_parameters={"c": 2.0}, generator="rewrite", objective="geomean", seed=0, iterations=2, budget_usd=None,
            parallel=1, versions={}, isolation={}, python="python",
        ),
        generated(0, None, "baseline"),
        e.Compiled(candidate_id=0, compilation=Compilation(ok=True)),
        e.Verified(candidate_id=0, verification=verified),
        e.Timed(candidate_id=0, timing=timing(kind, None), signature=Signature()),
        e.BestChanged(candidate_id=0, path="/data/best/kernel.py"),
        generated(1, 0, "BLOCK 64 → 128"),
        e.Compiled(candidate_id=1, compilation=Compilation(ok=True)),
        e.Verified(candidate_id=1, verification=verified),
        e.Timed(candidate_id=1, timing=timing(kind, 1.42), signature=Signature()),
        e.BestChanged(candidate_id=1, path="/data/best/kernel.py"),
        generated(2, 0, HOSTILE),
        e.Compiled(candidate_id=2, compilation=Compilation(ok=True)),
        e.Verified(candidate_id=2, verification=Verification(verdict="wrong", stage="boundary", reason=HOSTILE)),
        e.RunStopped(
            stopped_by="iterations",
            summary=Summary(
                run_id=run_id, problem="toy", device=device.name, timing=kind, pulls=2, candidates=3, correct=2, best=best,
                baseline_ms=0.05 if kind == "measured" else None, cost_usd=0.0, tokens=0, stopped_by="iterations",
            ),
        ),
    ]  # fmt: skip
    return [msgspec.structs.replace(event, seq=i, t=1.7e9 + i) for i, event in enumerate(events, 1)]


@pytest.fixture
def run_events() -> Callable[[TimingKind], list[e.Event]]:
    return finished_run


@pytest.fixture
def recorded(run_events: Callable[[TimingKind], list[e.Event]]) -> Callable[..., str]:
    """`recorded("modelled")`: the run's journal is in the data folder; its id. Fewer events make a crashed run."""

    def record(kind: TimingKind = "modelled", count: int | None = None, run_id: str | None = None) -> str:
        events = run_events(kind) if run_id is None else finished_run(kind, run_id)
        started = events[0]
        assert isinstance(started, e.RunStarted)
        file = paths.journal_file(started.run_id)
        file.parent.mkdir(parents=True)
        file.write_bytes(b"".join(e.encode(event) + b"\n" for event in events[:count]))
        return started.run_id

    return record
