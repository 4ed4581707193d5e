"""Correctness of a candidate: which cases, against what, and what each finding means for the verdict.

A case counts only where the baseline passes. What the baseline does on a case (its error, the dtypes and strides of its
outputs) is the contract there, and is kept for the next candidate. A problem without a kernel has no such baseline: there the
contract is what the reference returns, for every candidate alike, so that no verdict hangs on who came first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import ProblemError
from kbtui.evaluate import selftest, wire
from kbtui.evaluate.checks import TOO_MUCH, BaselineCheck, CandidateCheck
from kbtui.evaluate.inlane.calls import AUDITED, ONCE, TWICE
from kbtui.evaluate.inlane.faults import NO_DEVICE
from kbtui.evaluate.job import JobOrder, Outcome, Responder
from kbtui.evaluate.lane import HIDDEN
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.outputs import Passed, by_reference
from kbtui.evaluate.policy import static_policy
from kbtui.evaluate.selftest import SelfTest
from kbtui.state.records import Correctness, KernelFacts, Owner, Verification

Report = Callable[[str, str], None]
RunJob = Callable[[JobOrder, Responder, Report | None], Outcome]
"""Runs one job to its end in a process of its own; restarts what died, else raises EnvironmentFailure."""

DEADLINE_FACTOR = 10.0
"""A candidate may take so many times as long as the baseline on the same cases, beyond `Surroundings.patience_s`."""
COMPILE_FACTOR = 3.0
"""And so many times as long as it took to compile: shapes that were not compiled ahead in time compile on the way, and a compiler
that is slow (registers that spill) is not a candidate that hangs."""
LARGEST_BLOCK = 1 << 16
BEFORE_CASES = ("start", "load", NO_DEVICE)
"""Stages in which a process has not come to any case yet."""
ALL_TOO_MUCH = "every case is too much work for the interpreter"
MOST_CHOICES = 4
"""How often smaller cases are chosen for a candidate without a baseline that would show which are small enough."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change from candidate to candidate: the problem and the kind of lane. `baseline_source` is "" where the
    problem has no kernel.

    `timed` are further cases to check besides the boundary ones, which a fast device can afford. `parameters` go to the
    job as they are. `unchecked` are sentences about what this lane cannot check, `unchecked_dtypes` what it skips.
    """

    entry: str
    folder: Path
    baseline_source: str
    device: str
    readable: tuple[str, ...] = ()
    timed: tuple[wire.CaseKey, ...] = ()
    parameters: Mapping[str, Any] = {}
    baseline_parameters: Mapping[str, Any] = {}
    unchecked: tuple[str, ...] = ()
    unchecked_dtypes: tuple[str, ...] = ()
    audits: tuple[tuple[str, ...], ...] = (AUDITED, TWICE)
    """Kinds of the calls of the first cases (`inlane.calls`); the others are called once."""
    lenient: bool = False
    """Cases are a kernel's own calls, which nobody chose for this: those on which it cannot be judged are left out."""
    deadline_s: float = 120.0
    patience_s: float = 15.0
    """What every candidate may take. Long where others load the same processors: the baseline may have run in a quiet moment."""
    memory_bytes: int = 4 << 30
    disk_bytes: int = 4 << 30


class Verifier:
    """Checks candidates of one problem on one lane."""

    def __init__(self, oracle: Oracle, run_job: RunJob, surroundings: Surroundings) -> None:
        self._oracle = oracle
        self._run_job = run_job
        self._given = surroundings
        self._passed: dict[wire.CaseKey, Passed] = {}
        self._failed: dict[wire.CaseKey, Verification] = {}
        self._boundaries: dict[tuple[int, ...], tuple[wire.CaseKey, ...]] = {}

    def verify(
        self, source: str, kernels: Sequence[KernelFacts], report: Report, *, compile_s: float = 0.0
    ) -> Verification:
        """The verdict on a candidate that compiled, which took `compile_s`. Raises EnvironmentFailure and ProblemError."""
        began = clock.monotonic()
        is_baseline = source == self._given.baseline_source
        findings = [] if is_baseline else static_policy(source, self._given.baseline_source, self._given.entry)
        if findings:
            first = findings[0]
            outcome: Correctness = "invalid" if first.outcome == "invalid" else "cheat"
            return Verification(verdict=outcome, stage="policy", reason=first.reason)
        for _ in range(MOST_CHOICES):
            plan = self._choose(_blocks(kernels), report)
            keys = self._with_timed(plan)
            if not keys:
                return self._unknown("no case can be checked here", plan.notes)
            usable = [key for key in keys if key in self._passed]
            if not usable:
                return self._nothing_passes(keys, is_baseline)
            if is_baseline and keys[0] in self._failed and self._failed[keys[0]].verdict != "unknown":
                return self._failed[keys[0]]
            found = (
                self._passed_baseline(usable)
                if is_baseline
                else self._check(source, kernels, usable, report, compile_s)
            )
            if self._given.baseline_source or found.reason != ALL_TOO_MUCH:
                break
            self._too_much(usable)
        notes = (*self._given.unchecked, *plan.notes, *self._notes(keys), *found.not_checked, *self._oracle.remarks)
        return msgspec.structs.replace(
            found, not_checked=tuple(dict.fromkeys(notes)), seconds=clock.monotonic() - began
        )

    def confirm(
        self, source: str, kernels: Sequence[KernelFacts], salt: int, report: Report, *, compile_s: float = 0.0
    ) -> Verification:
        """The verdict on a candidate that `verify` passed, on shapes and values that nothing has seen: `salt` draws them.

        Raises EnvironmentFailure and ProblemError.
        """
        began = clock.monotonic()
        report("hidden", "drawing cases")
        keys = self.hidden(kernels, salt)
        self._learn(keys, report)
        usable = [key for key in keys if key in self._passed]
        found = (
            self._check(source, (), usable, report, compile_s)
            if usable
            else self._unknown("no hidden case can be checked", ())
        )
        for key in keys:  # they are drawn once
            self._passed.pop(key, None)
            self._failed.pop(key, None)
        return msgspec.structs.replace(
            found, stage=HIDDEN, detail=found.detail or f"seed {salt}", seconds=clock.monotonic() - began
        )

    def hidden(self, kernels: Sequence[KernelFacts], salt: int) -> list[wire.CaseKey]:
        """The cases of the hidden stage that `salt` draws."""
        plan = self._oracle.plan(_blocks(kernels), self._given.unchecked_dtypes, (), salt)
        return [msgspec.structs.replace(key, draw=salt) for key in plan.keys]

    def selftest(self, report: Report) -> SelfTest:
        """Whether the oracle rejects wrong outputs on the cases that the baseline passed so far; without a baseline, on those
        that a first candidate would be checked on. Raises EnvironmentFailure and ProblemError."""
        if not self._given.baseline_source:
            self._choose([], report)
        timed = set(self._given.timed)
        small = {key: passed for key, passed in self._passed.items() if key not in timed}
        return selftest.run(self._oracle, small or self._passed, report)

    def untimeable(self, keys: Sequence[wire.CaseKey]) -> dict[int, str]:
        """Numbers of the cases that cannot be timed, since the baseline is not right there, with the reason of each.

        A lane that is new has seen none of them yet, since a candidate may have been verified before a crash or on another
        device. Raises ProblemError where whoever wrote the problem can mend it: for all cases of his own, and where none
        is left of the calls that a kernel's own tests make.
        """
        self._learn([key for key in keys if key not in self._passed and key not in self._failed], _unheard)
        found = {
            number: self._failed[key].reason if key in self._failed else "it was not checked"
            for number, key in enumerate(keys)
            if key not in self._passed
        }
        if found and (not self._given.lenient or len(found) == len(keys)):
            number, why = next(iter(found.items()))
            raise ProblemError(
                f"{self._given.folder}: the baseline is not right on {keys[number].name} ({why}): mend kernel.py or that case"
            )
        return {number: f"the baseline is not right here: {why}" for number, why in found.items()}

    def recheck(self, keys: Sequence[wire.CaseKey]) -> CandidateCheck:
        """A check of the outputs of another job on those of the cases that the baseline passed, for a lane that runs
        candidates again."""
        return CandidateCheck(self._oracle, keys, {key: self._passed[key] for key in keys if key in self._passed})

    def boundary(self, kernels: Sequence[KernelFacts]) -> tuple[wire.CaseKey, ...]:
        """The boundary cases for a candidate with these kernels. May be called from any thread; raises as `verify`."""
        blocks = tuple(_blocks(kernels))
        if blocks not in self._boundaries:
            self._boundaries[blocks] = tuple(self._oracle.plan(blocks, self._given.unchecked_dtypes).keys)
        return self._boundaries[blocks]

    # the baseline

    def _choose(self, blocks: list[int], report: Report) -> wire.Plan:
        """The cases for launches with these blocks, with the baseline's doings on them known. A case that turns out to be too
        much work makes room for others."""
        while True:
            report("verify", "choosing cases")
            too_much = [key for key, found in self._failed.items() if found.stage == TOO_MUCH]
            plan = self._oracle.plan(blocks, self._given.unchecked_dtypes, too_much)
            keys = self._with_timed(plan)
            self._learn([key for key in keys if key not in self._passed and key not in self._failed], report)
            if all(found.stage != TOO_MUCH for key in plan.keys if (found := self._failed.get(key)) is not None):
                return plan

    def _with_timed(self, plan: wire.Plan) -> tuple[wire.CaseKey, ...]:
        """The cases to check, each once: what is timed may be small enough to be among the plan's."""
        return tuple(dict.fromkeys((*plan.keys, *self._given.timed)))

    def _learn(self, keys: list[wire.CaseKey], report: Report) -> None:
        """Find out what the contract is on cases that are new: from the baseline, or from the reference without one."""
        if self._given.baseline_source:
            self._judge_baseline(keys, report)
        else:
            self._passed.update((key, by_reference(self._oracle.contract(key))) for key in keys)

    def _too_much(self, keys: Sequence[wire.CaseKey]) -> None:
        """Have smaller cases chosen than these."""
        for key in keys:
            del self._passed[key]
            reason = "too much work for the interpreter"
            self._failed[key] = Verification(verdict="unknown", stage=TOO_MUCH, reason=reason, worst_case=key.name)

    def _judge_baseline(self, keys: list[wire.CaseKey], report: Report) -> None:
        """Run the baseline on cases it has not seen; a case that ends its process is passed over and the rest go on."""
        while keys:
            check = BaselineCheck(self._oracle, keys)
            order = self._order(self._given.baseline_source, [ONCE] * len(keys), self._given.baseline_parameters)
            outcome = self._run(order, check.respond, report)
            if outcome.kind == "cancelled":
                return
            self._passed.update(check.passed)
            self._failed.update(check.failed)
            done = len(check.passed) + len(check.failed)
            if done >= len(keys) or check.too_much is not None:
                return
            found = _verdict_of(outcome, keys[done].name)
            if outcome.stage in BEFORE_CASES:
                self._failed.update(dict.fromkeys(keys[done:], found))
                return
            self._failed[keys[done]] = found
            keys = keys[done + 1 :]

    def _passed_baseline(self, keys: Sequence[wire.CaseKey]) -> Verification:
        worst = max(keys, key=lambda key: max(self._passed[key].errors, default=0.0))
        passed = self._passed[worst]
        return Verification(
            verdict="correct",
            stage="boundary",
            cases_checked=len(keys),
            error=max(passed.errors, default=0.0),
            allowed=10 * max(passed.floors, default=0.0),
            worst_case=worst.name,
        )

    def _nothing_passes(self, keys: Sequence[wire.CaseKey], is_baseline: bool) -> Verification:
        first = next((self._failed[key] for key in keys if key in self._failed), None)
        if first is None:
            return self._unknown("cancelled", ())
        if is_baseline:
            return first
        return self._unknown(f"the baseline passes none of the {len(keys)} cases: {first.reason}", ())

    def _notes(self, keys: Sequence[wire.CaseKey]) -> list[str]:
        """What has to be said about the cases that a verdict rests on, or does not."""
        notes = []
        if any(self._passed[key].own_dtype for key in keys if key in self._passed):
            notes.append("float64 reference: it does not compute in float64, what it computes in is the measure")
        failed = [key for key in keys if key in self._failed]
        notes += [f"{key.name}: not counted, the baseline fails there ({self._failed[key].reason})" for key in failed]
        return notes

    def _unknown(self, reason: str, notes: Sequence[str]) -> Verification:
        return Verification(
            verdict="unknown",
            stage="boundary",
            owner="environment",
            reason=reason,
            not_checked=(*self._given.unchecked, *notes),
        )

    # candidates

    def _check(
        self,
        source: str,
        kernels: Sequence[KernelFacts],
        keys: Sequence[wire.CaseKey],
        report: Report,
        compile_s: float,
    ) -> Verification:
        # several calls on the first ones: they must agree, and show what keeps results or never wrote them
        calls = [*self._given.audits, *[ONCE] * len(keys)][: len(keys)]
        check = CandidateCheck(self._oracle, keys, self._passed, calls)
        seconds = sum(self._passed[key].seconds for key in keys)
        order = self._order(source, calls, self._given.parameters)
        allowed = self._given.patience_s + DEADLINE_FACTOR * seconds + COMPILE_FACTOR * compile_s
        order = msgspec.structs.replace(order, deadline_s=min(self._given.deadline_s, allowed))
        outcome = self._run(order, check.respond, report)
        if check.verdict is not None:
            return check.verdict
        if outcome.kind != "done":
            return msgspec.structs.replace(
                _verdict_of(outcome, check.current), cases_checked=len(check.checked), error=check.error
            )
        if check.answered != sum(map(len, calls)):
            return Verification(
                verdict="cheat", stage="verify", reason="it left the check before all cases were called"
            )
        if not check.checked:
            return self._unknown(ALL_TOO_MUCH, ())
        if not self._given.timed and (unseen := _unseen(kernels, check.launched)):
            reason = f"the timed cases launch {unseen}, which no case that is small enough to be checked here does"
            return self._unknown(reason, ())
        notes = tuple(f"{name}: not checked, too much work for the interpreter" for name in check.skipped)
        return Verification(
            verdict="correct",
            stage="boundary",
            cases_checked=len(check.checked),
            error=check.error,
            allowed=check.allowed,
            worst_case=check.worst,
            not_checked=notes,
        )

    def _run(self, order: JobOrder, respond: Responder, report: Report) -> Outcome:
        """Run a job, once more when CUDA did not start in its process: nothing of the candidate had run then."""
        outcome = self._run_job(order, respond, report)
        if outcome.kind == "fault" and outcome.stage == NO_DEVICE:
            outcome = self._run_job(order, respond, report)
        return outcome

    def _order(self, source: str, calls: Sequence[Sequence[str]], parameters: Mapping[str, Any]) -> JobOrder:
        given = self._given
        return JobOrder(
            kind="verify",
            source=source,
            entry=given.entry,
            problem_folder=given.folder,
            parameters={**parameters, "calls": calls},
            device=given.device,
            deadline_s=given.deadline_s,
            memory_bytes=given.memory_bytes,
            disk_bytes=given.disk_bytes,
            readable=given.readable,
        )


def _unheard(stage: str, text: str) -> None:
    """The report of work that nobody watches."""
    del stage, text


def _blocks(kernels: Sequence[KernelFacts]) -> list[int]:
    values = (value for kernel in kernels for value in kernel.constants.values())
    return sorted({value for value in values if type(value) is int and 1 < value <= LARGEST_BLOCK})


def _unseen(kernels: Sequence[KernelFacts], launched: Collection[str]) -> str:
    """A compiled kernel whose source none of the checked launches had, by name; "" when there is none."""
    names, digests = {one.partition("@")[0] for one in launched}, {one.partition("@")[2] for one in launched}
    for kernel in kernels:
        if kernel.name not in names or (kernel.source_digest and not digests & {kernel.source_digest, ""}):
            return kernel.name
    return ""


def _verdict_of(outcome: Outcome, case: str) -> Verification:
    """What an outcome other than a finished check means."""
    verdict: Correctness = "crash"
    owner: Owner = "candidate"
    if outcome.kind == "fault" and outcome.fault is not None:
        verdict = outcome.fault.outcome
        owner = "environment" if verdict == "unknown" else "candidate"
    elif outcome.kind == "hang":
        verdict = "hang"
    elif outcome.kind == "malformed":
        verdict = "cheat"
    elif outcome.kind == "cancelled":
        verdict, owner = "unknown", "environment"
    return Verification(
        verdict=verdict,
        stage=outcome.stage,
        owner=owner,
        reason=outcome.reason,
        detail=outcome.fault.detail if outcome.fault is not None else outcome.output[-4000:],
        worst_case=case if outcome.stage not in BEFORE_CASES else "",
    )
