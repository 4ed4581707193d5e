"""Two or more runs side by side: what each found, what that cost, and what differs between them.

A measured ratio is compared with measured ones only, and only on the same problem and device: `Group`s say which runs
may be, `notes` why others may not. Nothing here reads the database: the runs' own states are enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kbtui.errors import UsageError
from kbtui.state.records import BASELINE_ID, STRATEGIES, TimingKind
from kbtui.state.run_state import Candidate, RunState

MOST = 8
"""Runs at a time: as many columns as a wide terminal has room for."""


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The best candidate on one case: measured `ms` and `ratio`, or modelled `estimate_ms` and `estimate_ratio`."""

    case: str
    ms: float | None = None
    ratio: float | None = None
    estimate_ms: float | None = None
    estimate_ratio: float | None = None


class StrategyYield(msgspec.Struct, frozen=True, kw_only=True):
    """What a strategy gave: pulls the bandit saw, those that earned a reward, and their mean reward (None: no pull)."""

    strategy: str
    pulls: int
    rewarded: int
    mean_reward: float | None


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a comparison. `speedup` with its interval is measured, `estimate` modelled; at most one is set."""

    run_id: str
    problem: str
    problem_digest: str
    device: str
    target: str
    timing: TimingKind
    status: str
    stopped_by: str
    best_id: int | None
    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    estimate: float | None
    best_move: str
    pulls: int
    best_at_pull: int | None
    candidates: int
    correct: int
    elapsed_s: float
    cost_usd: float
    tokens: int
    cases: tuple[CaseResult, ...]
    strategies: tuple[StrategyYield, ...]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that is not the same in all runs: one value per run, "" where a run has none."""

    setting: str
    values: tuple[str, ...]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs whose ratios may be compared: one problem, one device, one kind of timing.

    `ahead` is the run whose best is ahead of all others of the group, "" when none can be told; `why` says it in a
    sentence.
    """

    run_ids: tuple[str, ...]
    timing: TimingKind
    ahead: str
    why: str


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[RunResult, ...]
    groups: tuple[Group, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def compare(states: Sequence[RunState]) -> Comparison:
    """Compare runs in the order given. Raises UsageError for fewer than two, too many, or the same one twice."""
    if not 2 <= len(states) <= MOST:
        raise UsageError(f"a comparison needs 2 to {MOST} runs, not {len(states)}")
    runs = tuple(_result(state) for state in states)
    ids = [run.run_id for run in runs]
    if len(set(ids)) < len(ids):
        twice = next(run_id for run_id in ids if ids.count(run_id) > 1)
        raise UsageError(f"run {twice} is named twice: name two different runs")
    return Comparison(runs=runs, groups=_groups(runs), differences=_differences(states), notes=_notes(runs))


# ---------------------------------------------------------------- one run


def _result(state: RunState) -> RunResult:
    started = state.started
    if started is None:
        raise UsageError("one of the journals holds no start of a run: there is nothing to compare")
    best = state.best
    timing = best.timing if best is not None else None
    return RunResult(
        run_id=started.run_id,
        problem=started.problem.name,
        problem_digest=started.problem.digest,
        device=started.device.name,
        target=started.device.target,
        timing=started.timing,
        status=state.status,
        stopped_by=state.stopped_by,
        best_id=state.best_id,
        verdict=timing.verdict if timing is not None else "",
        speedup=timing.ratio if timing is not None else None,
        low=timing.low if timing is not None else None,
        high=timing.high if timing is not None else None,
        estimate=timing.estimate if timing is not None else None,
        best_move=best.move if best is not None and best.id != BASELINE_ID else "",
        pulls=state.pulls_ended,
        best_at_pull=state.curve[-1][0] if state.curve else None,
        candidates=len(state.candidates),
        correct=len(state.frontier),
        elapsed_s=state.elapsed,
        cost_usd=state.cost_usd,
        tokens=state.tokens,
        cases=_cases(best),
        strategies=_strategies(state),
    )


def _cases(best: Candidate | None) -> tuple[CaseResult, ...]:
    if best is None or best.timing is None:
        return ()
    return tuple(
        CaseResult(
            case=case.case,
            ms=case.ms,
            ratio=case.ratio,
            estimate_ms=case.estimate_ms,
            estimate_ratio=case.estimate_ratio,
        )
        for case in best.timing.cases
    )


def _strategies(state: RunState) -> tuple[StrategyYield, ...]:
    out = []
    for strategy in STRATEGIES:
        rewards = [p.reward or 0.0 for p in state.pulls.values() if p.seen and p.strategy == strategy]
        out.append(
            StrategyYield(
                strategy=strategy,
                pulls=len(rewards),
                rewarded=sum(reward > 0 for reward in rewards),
                mean_reward=sum(rewards) / len(rewards) if rewards else None,
            )
        )
    return tuple(out)


# ---------------------------------------------------------------- between runs


def _groups(runs: Sequence[RunResult]) -> tuple[Group, ...]:
    found: dict[tuple[str, str, str, str], list[RunResult]] = {}
    for run in runs:
        found.setdefault((run.problem_digest, run.device, run.target, run.timing), []).append(run)
    return tuple(_group(members) for members in found.values())


def _group(members: Sequence[RunResult]) -> Group:
    ids, timing = tuple(run.run_id for run in members), members[0].timing
    ahead, why = ("", "no other run here may be compared with it") if len(members) == 1 else _judged(members, timing)
    return Group(run_ids=ids, timing=timing, ahead=ahead, why=why)


def _judged(members: Sequence[RunResult], timing: TimingKind) -> tuple[str, str]:
    """(the run ahead or "", the sentence). Each ratio is to its run's own baseline, timed in that run."""
    values = {run.run_id: run.speedup if timing == "measured" else run.estimate for run in members}
    timed = sorted(
        (run for run in members if values[run.run_id] is not None), key=lambda run: -(values[run.run_id] or 0.0)
    )
    if len(timed) < len(members):
        missing = next(run.run_id for run in members if values[run.run_id] is None)
        return "", f"{missing} has no timed best yet"
    first, second = timed[0], timed[1]
    if timing == "modelled":
        if values[first.run_id] == values[second.run_id]:
            return "", "the modelled estimates are equal"
        return (
            "",
            f"{first.run_id} has the higher estimate, which is modelled: only a measurement can say that it is faster",
        )
    if first.low is None or second.high is None:
        return "", "a best has no interval, so nothing can be told apart"
    if first.low > second.high:
        return first.run_id, f"{first.run_id} is ahead: its interval lies above that of every other run"
    return "", f"{first.run_id} and {second.run_id} cannot be told apart: their intervals overlap"


def _notes(runs: Sequence[RunResult]) -> tuple[str, ...]:
    out = []
    if len({run.timing for run in runs}) > 1:
        modelled = ", ".join(run.run_id for run in runs if run.timing == "modelled")
        out.append(f"the times of {modelled} are modelled: they are not compared with measured ones")
    if len({run.problem_digest for run in runs}) > 1:
        names = {run.problem for run in runs}
        what = "different problems" if len(names) > 1 else f"different versions of {names.pop()}"
        out.append(f"the runs are of {what}: ratios are compared within one only")
    if len({(run.device, run.target) for run in runs}) > 1:
        out.append("the runs were on different devices: ratios are compared within one only")
    return tuple(out)


def _differences(states: Sequence[RunState]) -> tuple[Difference, ...]:
    settings = [_settings(state) for state in states]
    names = list(dict.fromkeys(name for each in settings for name in each))
    rows = ((name, tuple(each.get(name, "") for each in settings)) for name in names)
    return tuple(Difference(setting=name, values=values) for name, values in rows if len(set(values)) > 1)


def _settings(state: RunState) -> dict[str, str]:
    started = state.started
    assert started is not None
    plain: dict[str, object] = {
        "problem": started.problem.name,
        "problem digest": started.problem.digest[:12],
        "device": started.device.name,
        "target": started.device.target,
        "timing": started.timing,
        "generator": started.generator,
        "model": started.model,
        "policy": started.policy,
        "objective": started.objective,
        "seed": started.seed,
        "iterations": state.iterations,
        "budget_usd": state.budget_usd,
        "budget_tokens": state.budget_tokens,
        "budget_s": state.budget_s,
        "patience": state.patience,
        "speed_of_light_percent": started.speed_of_light_percent,
        "parallel": started.parallel,
        "repairs": started.repairs,
        "python": started.python,
        "host": started.host,
    }
    for prefix, values in (
        ("policy", started.policy_parameters),
        ("generator", started.generator_parameters),
        ("version of", started.versions),
        ("isolation", started.isolation),
    ):
        plain |= {f"{prefix} {key}": value for key, value in values.items()}
    return {name: "" if value is None else str(value) for name, value in plain.items()}
