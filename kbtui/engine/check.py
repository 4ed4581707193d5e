"""One source before a lane and its oracle, outside any run: what `kbtui check` does."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Literal

import msgspec

from kbtui import clock
from kbtui.engine.devices import choose_device
from kbtui.engine.outcomes import overcounted, work_left_out
from kbtui.engine.scratch import scratch, sweep
from kbtui.errors import ProblemError
from kbtui.evaluate import isolation
from kbtui.evaluate.allowances import allowances
from kbtui.evaluate.estimate import UNCERTAINTY
from kbtui.evaluate.lane import Lane, LaneSpec, Report
from kbtui.evaluate.lanes import open_lane
from kbtui.evaluate.selftest import SelfTest
from kbtui.history.evidence import Card, figure
from kbtui.problems.folder import find_problem
from kbtui.state.records import (
    Correctness,
    KernelFacts,
    Owner,
    Signature,
    Timing,
    TimingKind,
)


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one source.

    `subject` is the baseline when the baseline itself failed, whatever was asked; the reference when a problem has no kernel
    and none was given, so that only the oracle was tried. `timing` and `signature` are None unless
    it is correct; the other fields are those of Compilation or Verification, whichever came last. `selftest` is None when
    the baseline did not pass. `machine` says what a lane may do here. `seconds` include the start of the lane.
    """

    subject: Literal["baseline", "candidate", "reference"]
    problem: str
    device: str
    timing_kind: TimingKind
    verdict: Correctness
    owner: Owner
    stage: str
    reason: str
    detail: str
    cases_checked: int = 0
    error: float | None = None
    allowed: float | None = None
    worst_case: str = ""
    first_wrong_index: tuple[int, ...] | None = None
    not_checked: tuple[str, ...] = ()
    kernels: tuple[KernelFacts, ...] = ()
    timing: Timing | None = None
    signature: Signature | None = None
    isolation: dict[str, str] = {}
    versions: dict[str, str] = {}
    selftest: SelfTest | None = None
    machine: dict[str, str] = {}
    seconds: float = 0.0


class Repeated(msgspec.Struct, frozen=True, kw_only=True):
    """An evidence card's candidate, judged anew. `agrees`: it is correct, and what is claimed of its time came out again."""

    said: str
    agrees: bool
    checked: Checked


def repeat(card: Card, *, python: str, report: Report) -> Repeated:
    """Judge the card's source as any candidate's, on the card's device and with other values than the card's. No model is asked.

    Raises ProblemError when the problem is not the card's any more, EnvironmentFailure, UsageError.
    """
    folder = find_problem(card.problem_path if Path(card.problem_path).is_dir() else card.problem)
    if folder.digest != card.problem_digest:
        raise ProblemError(f"{folder.path} is not the problem of the card: its files have changed since")
    checked = check_source(
        str(folder.path),
        card.source,
        device=card.device.lane,
        target=card.device.target,
        python=python,
        seed=card.seed + 1,
        report=report,
        baseline=card.baseline_source,
    )
    return Repeated(
        said=f"{card.timing.verdict}: {figure(card)}", agrees=_agrees(card.timing, checked), checked=checked
    )


def _agrees(said: Timing, checked: Checked) -> bool:
    found = checked.timing
    if checked.subject != "candidate" or checked.verdict != "correct" or found is None or found.kind != said.kind:
        return False
    if said.estimate is not None and found.estimate is not None:
        return abs(math.log(found.estimate / said.estimate)) < UNCERTAINTY
    return found.verdict == said.verdict


def check_source(
    problem: str,
    source: str | None,
    *,
    device: str,
    target: str,
    python: str,
    seed: int,
    report: Report,
    baseline: str = "",
) -> Checked:
    """Compile, verify and time `source`, or the problem's own kernel when None.

    A problem without a kernel has nothing to compare with unless `baseline` says what. Raises ProblemError or
    EnvironmentFailure; a failure of the source is a result.
    """
    folder = find_problem(problem)
    device = choose_device(device)
    began = clock.monotonic()
    sweep()
    with scratch(f"check-{os.getpid()}") as place:
        spec = LaneSpec(problem=folder.path, device=device, target=target, python=python, scratch=place, seed=seed)
        lane = open_lane(spec)
        hidden = isolation.harden_run_process()
        try:
            report("starting", f"a lane on {device}")
            lane.start()
            checked = _judged(lane, folder.kernel_source or baseline, source, report)
            held = {**checked.isolation, "run process not readable": hidden}
            checked = msgspec.structs.replace(checked, isolation=held, machine=allowances(lane.facts.device))
        finally:
            lane.close()
    return msgspec.structs.replace(checked, seconds=clock.monotonic() - began)


def _judged(lane: Lane, baseline: str, source: str | None, report: Report) -> Checked:
    if not baseline:
        found = _reference(lane) if source is None else _judge(lane, source, None, source, report, "candidate")
        return msgspec.structs.replace(found, selftest=lane.selftest(report))
    base = _judge(lane, baseline, None, baseline, report, "baseline")
    if base.timing is None:
        # Without a baseline that holds nothing can be compared with it: its fault is the answer either way.
        return base
    found = base if source is None else _judge(lane, source, base.timing, baseline, report, "candidate")
    return msgspec.structs.replace(found, selftest=lane.selftest(report))


def _reference(lane: Lane) -> Checked:
    """The oracle opened the problem, made inputs and computed what is expected; there is no source to judge."""
    return msgspec.structs.replace(_unjudged(lane, "reference"), verdict="correct", stage="reference")


def _unjudged(lane: Lane, subject: Literal["baseline", "candidate", "reference"]) -> Checked:
    facts = lane.facts
    return Checked(
        subject=subject,
        problem=facts.problem.name,
        device=facts.device.name,
        timing_kind=facts.timing,
        verdict="unknown",
        owner="candidate",
        stage="",
        reason="",
        detail="",
        isolation=facts.isolation,
        versions=facts.versions,
    )


def _judge(
    lane: Lane,
    source: str,
    against: Timing | None,
    baseline: str,
    report: Report,
    subject: Literal["baseline", "candidate"],
) -> Checked:
    judged = _unjudged(lane, subject)
    compiled = lane.compile(source, report)
    judged = msgspec.structs.replace(
        judged,
        verdict=compiled.outcome,
        owner=compiled.owner,
        stage=compiled.stage,
        reason=compiled.reason,
        detail=compiled.detail,
        kernels=compiled.kernels,
    )
    if not compiled.ok:
        return judged
    verified = lane.verify(source, compiled.kernels, report)
    judged = msgspec.structs.replace(
        judged,
        verdict=verified.verdict,
        owner=verified.owner,
        stage=verified.stage,
        reason=verified.reason,
        detail=verified.detail,
        cases_checked=verified.cases_checked,
        error=verified.error,
        allowed=verified.allowed,
        worst_case=verified.worst_case,
        first_wrong_index=verified.first_wrong_index,
        not_checked=verified.not_checked,
    )
    if verified.verdict != "correct":
        return judged
    evaluated = lane.time(source, compiled.kernels, against, baseline, against, report)
    if short := work_left_out(evaluated.timing):
        if subject == "baseline":
            raise ProblemError(overcounted(judged.problem, short))
        return msgspec.structs.replace(judged, verdict="wrong", stage="traffic", reason=short)
    return msgspec.structs.replace(judged, timing=evaluated.timing, signature=evaluated.signature)
