"""The estimate of the `cpu` lane: modelled times of a candidate's cases, never called a speedup.

An estimate compares candidates of one problem. What it does not see: bank conflicts, instruction scheduling, cache
replacement, clocks. Two candidates whose estimates differ by less than `UNCERTAINTY` are not told apart, hence the
verdict "not worse"; how well the order agrees with measured times is published with the benchmarks, not assumed here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kbtui.evaluate.counts import CountedCase, CountedLaunch, find_kernel, read_counts
from kbtui.evaluate.lane import Evaluated
from kbtui.evaluate.model import LaunchTime, launch_time
from kbtui.evaluate.objective import CasePair, combine
from kbtui.evaluate.roofline import REFUSED_BELOW, floor_ms
from kbtui.evaluate.targets import Target, find_target
from kbtui.state.records import (
    CaseInfo,
    CaseTiming,
    DeviceInfo,
    KernelFacts,
    ProblemInfo,
    Reading,
    Signature,
    SpeedVerdict,
    Timing,
)
from kbtui.text import size_text

UNCERTAINTY = 0.02
"""An estimate of 1 - this or more is "not worse"."""


def model_candidate(
    counts_reply: dict[str, Any],
    kernels: tuple[KernelFacts, ...],
    device: DeviceInfo,
    problem: ProblemInfo,
    baseline: Timing | None,
    parent: Timing | None,
    objective: str,
) -> Evaluated:
    """Modelled timing and signature of a candidate from the reply of the job "count" and its compiled kernels.

    `baseline` None: this candidate is the baseline (estimate 1.0). A case that could not be counted has its reason in
    `failed`, counts as 1.0, and makes the verdict "unknown". Raises UsageError for a device whose target is not known.
    """
    card = find_target(device.target)
    try:
        counted = read_counts(counts_reply).cases
        trouble = "" if len(counted) == len(problem.cases) else "the counted cases are not the problem's"
    except msgspec.ValidationError as error:
        counted, trouble = [], f"the candidate's process sent a malformed reply: {error}"
    if trouble:
        counted = [CountedCase(failed=trouble[:500], launches=[]) for _ in problem.cases]
    modelled = [_case(case, count, kernels, card) for case, count in zip(problem.cases, counted, strict=True)]
    timings = tuple(
        CaseTiming(
            case=case.name,
            estimate_ms=run.ms,
            estimate_ratio=_ratio(_estimate(baseline, case.name), run.ms) if baseline is not None else _own_ratio(run),
            floor_ms=floor_ms(case, device),
            bound=run.bound,
            failed=run.failed,
            work_left_out=run.work_left_out,
        )
        for case, run in zip(problem.cases, modelled, strict=True)
    )
    estimate = _against(baseline, timings, problem, objective) if baseline is not None else 1.0
    timing = Timing(
        kind="modelled",
        verdict=_verdict(estimate, timings, baseline),
        cases=timings,
        estimate=estimate,
        parent_estimate=_against(parent, timings, problem, objective) if parent is not None else None,
    )
    return Evaluated(timing=timing, signature=_signature([part for run in modelled for part in run.launches]))


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    ms: float | None
    bound: str
    failed: str
    work_left_out: bool = False
    launches: tuple[LaunchTime, ...]


def _case(case: CaseInfo, counted: CountedCase, kernels: tuple[KernelFacts, ...], card: Target) -> _Case:
    failed = counted.failed or ("" if counted.launches else "no kernel was counted")
    if not failed and (impossible := _impossible(case, counted)):
        return _Case(ms=None, bound="", failed=impossible, work_left_out=True, launches=())
    launches = [] if failed else [_fastest(choices, case.name, kernels, card) for choices in counted.launches]
    known = tuple(launch for launch in launches if launch is not None)
    if len(known) < len(launches):
        failed = "a launch under the interpreter is none of the compiled kernels, or does not fit the target"
    if failed:
        return _Case(ms=None, bound="", failed=failed, launches=())
    slowest = max(known, key=lambda launch: launch.seconds)
    return _Case(ms=1e3 * sum(launch.seconds for launch in known), bound=slowest.bound, failed="", launches=known)


def _impossible(case: CaseInfo, counted: CountedCase) -> str:
    """Why the counted traffic cannot do the case's work, "" when it can: each byte that has to move was loaded or stored."""
    moved = sum(max(map(_moved, choices)) for choices in counted.launches)
    if moved >= REFUSED_BELOW * case.bytes_moved:
        return ""
    return f"it moves {size_text(moved)} where the case needs {size_text(case.bytes_moved)}: work is left out"


def _moved(launch: CountedLaunch) -> float:
    return launch.programs * sum(tensor.loaded + tensor.stored for tensor in launch.tensors)


def _fastest(
    choices: list[CountedLaunch], case: str, kernels: tuple[KernelFacts, ...], card: Target
) -> LaunchTime | None:
    """The best of what an autotuner may choose from, as its tuning would find it; the launch itself where none tunes.

    Every compiled configuration with the launch's constants is a choice: configurations may differ in warps and stages
    only, which the interpreter does not see.
    """
    times = []
    for choice in choices:
        first = find_kernel(choice, case, kernels)
        alike = [kernel for kernel in kernels if first is not None and _tuned_alike(kernel, first, case)]
        for kernel in [first, *alike]:
            time = launch_time(choice, kernel, card) if kernel is not None else None
            if time is not None:
                times.append(time)
    return min(times, key=lambda time: time.seconds) if times else None


def _tuned_alike(kernel: KernelFacts, other: KernelFacts, case: str) -> bool:
    return (
        kernel.autotuned
        and case in kernel.cases
        and (kernel.name, kernel.grid, kernel.constants) == (other.name, other.grid, other.constants)
    )


def _own_ratio(run: _Case) -> float | None:
    return 1.0 if run.ms is not None else None


def _ratio(reference: float | None, ms: float | None) -> float | None:
    return reference / ms if reference is not None and ms is not None else None


def _estimate(timing: Timing, case: str) -> float | None:
    return next((one.estimate_ms for one in timing.cases if one.case == case), None)


def _against(other: Timing, timings: tuple[CaseTiming, ...], problem: ProblemInfo, objective: str) -> float | None:
    """The modelled ratio to `other` by the objective; None when no case has an estimate on both sides."""
    pairs = [
        CasePair(case.weight, _estimate(other, case.name), one.estimate_ms)
        for case, one in zip(problem.cases, timings, strict=True)
    ]
    if all(pair.reference_ms is None or pair.ms is None for pair in pairs):
        return None
    return combine(pairs, objective)


def _verdict(estimate: float | None, timings: tuple[CaseTiming, ...], baseline: Timing | None) -> SpeedVerdict:
    missing = any(one.estimate_ms is None for one in timings)
    if estimate is None or missing or (baseline is not None and any(one.estimate_ratio is None for one in timings)):
        return "unknown"
    return "not worse" if estimate >= 1 - UNCERTAINTY else "worse"


def _signature(launches: list[LaunchTime]) -> Signature:
    """Shares of peak weighted by modelled time, as a profiler's would be by measured time."""
    total = sum(launch.seconds for launch in launches)
    if not total:
        unknown = Reading(None, "unknown", "no case could be counted")
        return Signature(sm=unknown, dram=unknown, l2=unknown)

    def reading(share: Any) -> Reading:
        return Reading(round(100 * sum(share(one) * one.seconds for one in launches) / total, 1), "model")

    return Signature(
        sm=reading(lambda one: one.sm_share),
        dram=reading(lambda one: one.dram_share),
        l2=reading(lambda one: one.l2_share),
    )
