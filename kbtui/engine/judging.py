"""One candidate through the judge, a stage at a time. Each step emits the event that says it was done."""

from __future__ import annotations

import asyncio
from typing import cast

import msgspec

from kbtui.engine import cascade
from kbtui.engine.actions import INJECTED
from kbtui.engine.best import arena, export_best
from kbtui.engine.outcomes import overcounted, unjudged, work_left_out
from kbtui.engine.tools import Tools, at
from kbtui.errors import EnvironmentFailure, ProblemError
from kbtui.evaluate.lane import Evaluated, Lane
from kbtui.evaluate.policy import static_policy
from kbtui.history.evidence import make_card, write_card
from kbtui.history.export import headed_source
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES, Correctness, KernelFacts, Verification
from kbtui.state.run_state import Candidate


async def compile_candidate(tools: Tools, candidate: Candidate, device: str) -> None:
    """What costs no compiler first; then the compiler. Emits Pruned, Verified (against the rules) or Compiled."""
    if candidate.generator == INJECTED and (twin := cascade.duplicate(tools.state, candidate)):
        tools.emitter.emit(twin)
        return
    if candidate.id != tools.state.baseline_id and (against := _against_the_rules(tools, candidate)):
        tools.emitter.emit(e.Verified(candidate_id=candidate.id, verification=against))
        return
    tools.show("compiling", "", candidate.pull, candidate.id)
    compilation = await tools.lanes[device].compile(candidate.source, tools.report(candidate, device))
    tools.emitter.emit(e.Compiled(candidate_id=candidate.id, compilation=compilation, device=device))


async def verify_candidate(tools: Tools, candidate: Candidate, device: str) -> None:
    """Emits Verified."""
    verification = await _verified(tools, candidate, device)
    tools.emitter.emit(e.Verified(candidate_id=candidate.id, verification=verification, device=device))


async def time_candidate(tools: Tools, candidate: Candidate, device: str) -> None:
    """Emits Timed. The GPU counters are left alone meanwhile.

    Without a baseline the candidate is timed as one, and is it from then on if it has a time for every case.
    """
    first = tools.state.baseline is None
    evaluated = await _evaluated(tools, candidate, device)
    timing = evaluated.timing
    if short := work_left_out(timing):
        _refuse_short(tools, candidate, short, device)
        return
    if first and not all(case.ms or case.estimate_ms for case in timing.cases):
        # Nothing could be compared with it on the cases that it lacks: it has no time, and the next one may be the first.
        timing = msgspec.structs.replace(timing, verdict="unknown", ratio=None, low=None, high=None, estimate=None)
    signature = evaluated.signature
    tools.emitter.emit(e.Timed(candidate_id=candidate.id, timing=timing, signature=signature, device=device))
    if first and not unjudged(candidate):
        choose_baseline(tools, candidate)


async def time_baseline(tools: Tools, baseline: Candidate, device: str) -> None:
    """Emits Timed for the baseline on one more device. Raises EnvironmentFailure when it does not pass there what it passed on
    another: then the device is at fault."""
    verification = await _verified(tools, baseline, device)
    if verification.verdict != "correct":
        raise EnvironmentFailure(
            f"the baseline is {verification.verdict} on {device}, and correct elsewhere: {verification.reason}"
        )
    evaluated = await _evaluated(tools, baseline, device)
    elsewhere = {case.case for case in baseline.timing.cases if case.failed} if baseline.timing is not None else set()
    if not all(case.ms or case.estimate_ms for case in evaluated.timing.cases if case.case not in elsewhere):
        why = next((case.failed for case in evaluated.timing.cases if case.failed), evaluated.timing.verdict)
        raise EnvironmentFailure(f"the baseline could not be timed on {device}: {why}")
    tools.emitter.emit(
        e.Timed(candidate_id=baseline.id, timing=evaluated.timing, signature=evaluated.signature, device=device)
    )


async def _verified(tools: Tools, candidate: Candidate, device: str) -> Verification:
    tools.show("verifying", device, candidate.pull, candidate.id)
    report, kernels = tools.report(candidate, device), _kernels(candidate)
    lane = tools.lanes[device]
    return await lane.call(lambda lane: lane.verify(candidate.source, kernels, report), candidate.source)


async def _evaluated(tools: Tools, candidate: Candidate, device: str) -> Evaluated:
    """The candidate's time beside the baseline's on that device."""
    tools.show("timing", device, candidate.pull, candidate.id)
    report, kernels = tools.report(candidate, device), _kernels(candidate)
    state = tools.state
    is_other = state.baseline is not None and state.baseline.id != candidate.id
    baseline = state.baseline.timing_on(device) if state.baseline is not None and is_other else None
    parent = state.candidates[candidate.parent_id].timing_on(device) if candidate.parent_id is not None else None
    beside = tools.baseline_source or candidate.source

    def job(lane: Lane) -> Evaluated:
        with tools.sampling_paused(device):
            return lane.time(candidate.source, kernels, baseline, beside, parent, report)

    return await tools.lanes[device].call(job, candidate.source)


def _refuse_short(tools: Tools, candidate: Candidate, short: str, device: str) -> None:
    """What moves less than its case needs is wrong there, whatever it was on the shapes that were compared. Raises ProblemError
    when it is the problem's own kernel: then the problem's count is at fault."""
    if candidate.id == tools.state.baseline_id and tools.kernel_source:
        raise ProblemError(overcounted(tools.started.problem.name, short))
    assert candidate.verification is not None, "verified before it is timed"
    verification = msgspec.structs.replace(candidate.verification, verdict="wrong", stage="traffic", reason=short)
    tools.emitter.emit(e.Verified(candidate_id=candidate.id, verification=verification, device=device))


def choose_baseline(tools: Tools, candidate: Candidate) -> None:
    """Emits BaselineChosen, once in a run."""
    if tools.state.baseline is None:
        tools.emitter.emit(e.BaselineChosen(candidate_id=candidate.id))


async def find_moves(tools: Tools, candidate: Candidate) -> None:
    """Emits MovesFound with a number for every strategy, 0 where there is none."""
    entry = tools.started.problem.entry
    offered = await asyncio.to_thread(tools.generator.moves, candidate.source, entry)
    moves: dict[str, int] = {strategy: offered.get(strategy, 0) for strategy in STRATEGIES}
    tools.emitter.emit(e.MovesFound(candidate_id=candidate.id, moves=moves))


async def confirm_candidate(tools: Tools, candidate: Candidate, device: str) -> None:
    """Emits Confirmed."""
    tools.show("verifying", at("on what nothing has seen", device), candidate.pull, candidate.id)
    report, kernels = tools.report(candidate, device), _kernels(candidate)
    lane = tools.lanes[device]
    found = await lane.call(lambda lane: lane.confirm(candidate.source, kernels, report), candidate.source)
    tools.emitter.emit(e.Confirmed(candidate_id=candidate.id, verification=found, device=device))


def promote(tools: Tools, candidate: Candidate) -> None:
    """Export the candidate, then say so: a crash in between exports it once more."""
    device = arena(tools.state)
    path = export_best(tools.started.run_id, headed_source(tools.state, candidate))
    write_card(make_card(tools.state, candidate), path.with_name("evidence.json"))
    tools.emitter.emit(e.BestChanged(candidate_id=candidate.id, path=str(path), device=device))


def _against_the_rules(tools: Tools, candidate: Candidate) -> Verification | None:
    """What the source alone proves against the candidate; None when nothing."""
    findings = static_policy(candidate.source, tools.kernel_source, tools.started.problem.entry)
    if not findings:
        return None
    return Verification(
        verdict=cast(Correctness, findings[0].outcome),
        stage="static",
        reason=findings[0].reason,
        detail="\n".join(finding.reason for finding in findings),
    )


def _kernels(candidate: Candidate) -> tuple[KernelFacts, ...]:
    assert candidate.compilation is not None, "compiled before it is verified or timed"
    return candidate.compilation.kernels
