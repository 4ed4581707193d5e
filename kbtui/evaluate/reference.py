"""What `torch.compile` makes of a problem's reference, timed by the judge that times candidates.

The reference is the problem's own code. It runs in processes of its own with the measures against accidents that hold for
candidates (no file written outside its folder, no network), but it may read the problem, and no rule of the candidates' binds
it: it is asked for the right values, not for kernels of its own. What it stands beside is the problem's kernel; where there is
none, the same reference as PyTorch runs it, eagerly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import msgspec

from kbtui import clock
from kbtui.errors import ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.checks import CandidateCheck
from kbtui.evaluate.cpu import restart
from kbtui.evaluate.cuda import CudaLane
from kbtui.evaluate.gpu import TimingCancelled, timing_lock
from kbtui.evaluate.inlane.bootstrap import PACKAGE
from kbtui.evaluate.job import JobOrder, Outcome
from kbtui.evaluate.lane import Report
from kbtui.evaluate.match import Match
from kbtui.evaluate.outputs import check_memory, rejection
from kbtui.evaluate.pairs import PairPlan
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.profile import unknown
from kbtui.evaluate.turns import AuditTurn, DropTurn, PlayerLost, PreparedTurn
from kbtui.state.records import Correctness, KernelFacts, Signature, Timing, Verification

COMPILE_CASE_S = 300.0
"""Allowed to a process for each case on top of what a candidate's gets: inductor compiles in it, the first time, and a reference
that loops in Python over a hundred heads is a graph of a thousand operators."""
EAGER = "the reference run eagerly"
KERNEL = "the problem's kernel"


class Referenced(msgspec.Struct, frozen=True, kw_only=True):
    """`verification` covers the timed cases alone; `timing` is None where it is not "correct"."""

    verification: Verification
    timing: Timing | None = None


class ReferenceCheck(CandidateCheck):
    """Compares outputs of the reference: their values, dtypes and shapes, whoever computed them and however they are laid out."""

    @classmethod
    def like(cls, check: CandidateCheck) -> ReferenceCheck:
        """With the cases and the limits of a check that has not begun."""
        return cls(check._oracle, check.keys, check._contract)

    def _judge(self, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int]) -> Verification | None:
        check_memory(outputs, descriptors, self.granted)
        reason = rejection(self._oracle, self.drawn(outputs.case), outputs, descriptors, self._contract[key])
        if not reason:
            return None
        return Verification(verdict="wrong", stage="outputs", reason=reason, worst_case=key.name)


class ReferenceLane(CudaLane):
    """A `cuda` lane that also times the reference. After `start`, `own_precision` says whether the reference is a kernel, of
    which torch has nothing to compile: then the methods below must not be called."""

    @property
    def own_precision(self) -> bool:
        return self._own_calls

    @property
    def beside(self) -> str:
        """What the compiled reference is compared with, in words."""
        return KERNEL if self._problem.kernel_source else EAGER

    def baseline(self, report: Report) -> Timing:
        """What it is compared with, verified and measured against itself. Raises ProblemError where that is not right, or has no
        times."""
        found = self._kernel(report) if self._problem.kernel_source else self._eager(report)
        failed = next((case.failed for case in found.cases if case.failed), "")
        if not any(case.ms for case in found.cases):
            raise ProblemError(f"{self._problem.path}: {self.beside} could not be timed: {failed or 'cancelled'}")
        return found

    def _kernel(self, report: Report) -> Timing:
        source = self._problem.kernel_source
        compiled = self.compile(source, report)
        verified = self.verify(source, compiled.kernels, report) if compiled.ok else None
        verdict, reason = (verified.verdict, verified.reason) if verified else (compiled.outcome, compiled.reason)
        if verdict != "correct":
            raise ProblemError(f"{self._problem.path}: its kernel is {verdict}: {reason}")
        return self.time(source, compiled.kernels, None, source, None, report).timing

    def _eager(self, report: Report) -> Timing:
        found = self._referenced(None, report, compiled=False)
        if found.timing is None:
            wrong = found.verification
            raise ProblemError(f"{self._problem.path}: {EAGER} is {wrong.verdict}: {wrong.reason}")
        return found.timing

    def time_reference(self, baseline: Timing, report: Report) -> Referenced:
        """The reference under `torch.compile`: its outputs on the timed cases, and its times in pairs with `baseline`'s.

        Raises EnvironmentFailure, also where the process of what it is compared with did not survive.
        """
        return self._referenced(baseline, report, compiled=True)

    def _referenced(self, baseline: Timing | None, report: Report, *, compiled: bool) -> Referenced:
        began = clock.monotonic()
        self._take(self._text)
        with self._checking(report):
            report("verify", "the reference, compiled" if compiled else EAGER)
            match, plan = self._contest(baseline, compiled=compiled)
            verification = self._verified(match, plan)
        if verification.verdict != "correct":
            return Referenced(verification=verification)
        try:
            with timing_lock(self._info.uuid, lambda text: report("waiting", text), self._cancelled.is_set):
                report("timing", f"in turns with {self.beside}")
                timing = self._timed(match, plan, baseline, None)
        except TimingCancelled:
            match.abandon()
            timing = self._untimed("cancelled", began).timing
        except ProcessGone as gone:
            restart(self._jobs.zygote)
            timing = self._untimed(f"the process that forks died while it was timed ({gone})", began).timing
        except PlayerLost as lost:
            timing = self._lost(lost, match, began, is_baseline=baseline is None).timing
        return Referenced(verification=verification, timing=timing)

    @property
    def _text(self) -> str:
        """Stands for a candidate's source: it names the folder of the cache. The process loads problem.py itself."""
        return f"# the reference of {self._problem.path}, {self._problem.digest}\n"

    def _contest(self, baseline: Timing | None, *, compiled: bool) -> tuple[Match, PairPlan]:
        kernel = self._problem.kernel_source
        noise = baseline.noise if baseline is not None and baseline.noise is not None else 0.0
        match, plan = self.contest(self._text, kernel or None, noise)
        recheck = match.recheck
        beside = match.baseline if kernel else self._order(match.baseline, compiled=False)
        candidate = self._order(match.candidate, compiled=compiled)
        if compiled:  # the other one waits meanwhile
            longer = candidate.deadline_s + COMPILE_CASE_S * len(self._keys)
            beside, candidate = (msgspec.structs.replace(one, deadline_s=longer) for one in (beside, candidate))
        played = dataclasses.replace(
            match, recheck=lambda: ReferenceCheck.like(recheck()), baseline=beside, candidate=candidate
        )
        return played, plan

    def _order(self, order: JobOrder, *, compiled: bool) -> JobOrder:
        return msgspec.structs.replace(
            order,
            kind="time_reference",
            parameters={**order.parameters, "compiled": compiled},
            readable=(*order.readable, str(self._problem.path), str(PACKAGE / "problems" / "suites")),
        )

    def _look(
        self, match: Match, source: str, kernels: tuple[KernelFacts, ...], found: Timing, *, is_baseline: bool
    ) -> Signature:
        """Nobody asks why the kernel is as fast as it is, and ncu takes ten seconds to say so."""
        del match, source, kernels, found, is_baseline
        return unknown("only times were asked for")

    def _verified(self, match: Match, plan: PairPlan) -> Verification:
        """Its outputs on every case that is timed, called and, where its calls can be captured, out of the graph. What inductor
        compiles on the way is there for the pairs."""
        began = clock.monotonic()
        check = match.recheck()
        numbers = [number for number in range(len(self._keys)) if number not in plan.skipped]
        at = ""
        try:
            with dataclasses.replace(match, recheck=_always(check)).alone() as player:
                for number in numbers:
                    at = plan.cases[number].name
                    prepared = player.turn(PreparedTurn, "prepare", number)
                    player.turn(AuditTurn, "audit", number, call=0)
                    if prepared.graph:
                        player.turn(AuditTurn, "audit_graph", number, call=1)
                    player.turn(DropTurn, "drop", number, cases=[number])
        except PlayerLost as lost:
            if lost.outcome.kind in ("crash", "hang", "fault"):
                self._jobs.check()
            found = check.verdict or _verdict(lost.outcome, at)
        except ProcessGone as gone:
            restart(self._jobs.zygote)
            found = _verdict(Outcome(kind="crash", stage="time", reason=f"the process that forks died ({gone})"), at)
        else:
            found = Verification(verdict="correct", stage="timed", cases_checked=len(numbers))
        return msgspec.structs.replace(found, seconds=clock.monotonic() - began)


def _always(check: CandidateCheck) -> Callable[[], CandidateCheck]:
    return lambda: check


def _verdict(outcome: Outcome, case: str) -> Verification:
    """What it means that the process did not come through its turns."""
    verdict: Correctness = "crash"
    if outcome.kind == "hang":
        verdict = "hang"
    elif outcome.kind == "cancelled" or (outcome.fault is not None and outcome.fault.outcome == "unknown"):
        verdict = "unknown"
    elif outcome.fault is not None:
        verdict = outcome.fault.outcome
    return Verification(
        verdict=verdict,
        stage=outcome.stage,
        owner="environment" if verdict == "unknown" else "candidate",
        reason=outcome.reason or outcome.kind,
        detail=outcome.fault.detail if outcome.fault is not None else outcome.output[-4000:],
        worst_case=case,
    )
