"""Correctness of a candidate: which cases, against what, and what each finding means for the verdict.

A case counts only where the baseline passes. What the baseline does on a case (its error, the dtypes and strides of its
outputs) is the contract there, and is kept for the next candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kbtui import clock
from kbtui.errors import ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.policy import static_policy
from kbtui.evaluate.process import Answer, Job, JobOrder, Outcome, Responder
from kbtui.state.records import Correctness, KernelFacts, Owner, Verification

Report = Callable[[str, str], None]
RunJob = Callable[[JobOrder, Responder, Report | None], Outcome]
"""Runs one job to its end in a process of its own; restarts what died, else raises EnvironmentFailure."""

ERROR_FACTOR = 3.0
"""A candidate may err by so many times the baseline's own error (or by the floor of its dtype)."""
DEADLINE_S, DEADLINE_FACTOR = 15.0, 10.0
"""A candidate may take so long, plus so many times what the baseline took on the same cases."""
LARGEST_BLOCK = 1 << 16
MOST_OUTPUT_BYTES = 64 << 30
TOO_MUCH = "work"
"""Stage of a case that the interpreter's allowance does not cover."""
NEARLY = 0.9


class Passed(msgspec.Struct, frozen=True, kw_only=True):
    """What the baseline did on a case: the contract for candidates. `error` by output, `seconds` with hand-over."""

    errors: tuple[float, ...]
    floors: tuple[float, ...]
    tensors: tuple[wire.TensorInfo, ...]
    shared: tuple[int, ...]
    own: bool
    own_dtype: bool
    seconds: float

    @property
    def allowed(self) -> list[float]:
        return [max(ERROR_FACTOR * error, floor) for error, floor in zip(self.errors, self.floors, strict=True)]


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change from candidate to candidate: the problem and the kind of lane.

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
    mutates: bool = False
    deadline_s: float = 120.0
    memory_bytes: int = 4 << 30


class Verifier:
    """Checks candidates of one problem on one lane."""

    def __init__(self, oracle: Oracle, run_job: RunJob, surroundings: Surroundings) -> None:
        self._oracle = oracle
        self._run_job = run_job
        self._given = surroundings
        self._passed: dict[wire.CaseKey, Passed] = {}
        self._failed: dict[wire.CaseKey, Verification] = {}

    def verify(self, source: str, kernels: Sequence[KernelFacts], report: Report) -> Verification:
        """The verdict on a candidate that compiled. Raises EnvironmentFailure and ProblemError."""
        began = clock.monotonic()
        is_baseline = source == self._given.baseline_source
        findings = [] if is_baseline else static_policy(source, self._given.baseline_source, self._given.entry)
        if findings:
            first = findings[0]
            outcome: Correctness = "invalid" if first.outcome == "invalid" else "cheat"
            return Verification(verdict=outcome, stage="policy", reason=first.reason)
        report("verify", "choosing cases")
        plan = self._oracle.plan(_blocks(kernels), self._given.unchecked_dtypes)
        keys = (*plan.keys, *self._given.timed)
        if not keys:
            return self._unknown("no case can be checked here", plan.notes)
        self._judge_baseline([key for key in keys if key not in self._passed and key not in self._failed], report)
        usable = [key for key in keys if key in self._passed]
        if not usable:
            return self._nothing_passes(keys, is_baseline)
        if is_baseline and keys[0] in self._failed and self._failed[keys[0]].verdict != "unknown":
            return self._failed[keys[0]]
        found = self._passed_baseline(usable) if is_baseline else self._check(source, usable, report)
        notes = (*self._given.unchecked, *plan.notes, *self._own_dtype_note(usable), *found.not_checked)
        return msgspec.structs.replace(found, not_checked=notes, seconds=clock.monotonic() - began)

    # the baseline

    def _judge_baseline(self, keys: list[wire.CaseKey], report: Report) -> None:
        """Run the baseline on cases it has not seen; a case that ends its process is passed over and the rest go on."""
        while keys := [key for key in keys if not self._too_large(key)]:
            check = _BaselineCheck(self._oracle, keys, self._given.mutates)
            order = self._order(self._given.baseline_source, [1] * len(keys), self._given.baseline_parameters)
            outcome = self._run_job(order, check.respond, report)
            if outcome.kind == "cancelled":
                return
            self._passed.update(check.passed)
            self._failed.update(check.failed)
            done = len(check.passed) + len(check.failed)
            if done >= len(keys):
                return
            self._failed[keys[done]] = _verdict_of(outcome, keys[done].name)
            keys = keys[done + 1 :]

    def _too_large(self, key: wire.CaseKey) -> bool:
        """Whether a case is no smaller than one that was already too much work; then it counts as that, too."""
        for other, found in list(self._failed.items()):
            if found.stage == TOO_MUCH and _no_smaller(key, other):
                self._failed[key] = msgspec.structs.replace(found, worst_case=key.name)
                return True
        return False

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

    def _own_dtype_note(self, keys: Sequence[wire.CaseKey]) -> tuple[str, ...]:
        if any(self._passed[key].own_dtype for key in keys):
            return ("float64 reference: it cannot compute in float64, its own dtype is the measure",)
        return ()

    def _unknown(self, reason: str, notes: Sequence[str]) -> Verification:
        return Verification(
            verdict="unknown",
            stage="boundary",
            owner="environment",
            reason=reason,
            not_checked=(*self._given.unchecked, *notes),
        )

    # candidates

    def _check(self, source: str, keys: Sequence[wire.CaseKey], report: Report) -> Verification:
        check = _CandidateCheck(self._oracle, keys, self._passed)
        # twice on the first ones: calls must agree, and fresh memory holds another pattern the second time
        calls = [2 if index < 2 else 1 for index in range(len(keys))]
        seconds = sum(self._passed[key].seconds for key in keys)
        order = self._order(source, calls, self._given.parameters)
        order = msgspec.structs.replace(
            order, deadline_s=min(self._given.deadline_s, DEADLINE_S + DEADLINE_FACTOR * seconds)
        )
        outcome = self._run_job(order, check.respond, report)
        if check.verdict is not None:
            return check.verdict
        if outcome.kind != "done":
            return msgspec.structs.replace(
                _verdict_of(outcome, check.current), cases_checked=len(check.checked), error=check.error
            )
        if check.answered != sum(calls):
            return Verification(verdict="cheat", stage="verify", reason="it left the check before all cases were called")
        if not check.checked:
            return self._unknown("every case is too much work for the interpreter", ())
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

    def _order(self, source: str, calls: list[int], parameters: Mapping[str, Any]) -> JobOrder:
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
            readable=given.readable,
        )


def _blocks(kernels: Sequence[KernelFacts]) -> list[int]:
    values = (value for kernel in kernels for value in kernel.constants.values())
    return sorted({value for value in values if type(value) is int and 1 < value <= LARGEST_BLOCK})


def _no_smaller(key: wire.CaseKey, other: wire.CaseKey) -> bool:
    """Whether each integer field of `key` is at least about that of `other`."""
    return all(
        key.fields.get(name, 0) >= NEARLY * value  # type: ignore[operator]  # a field has one type in all cases
        for name, value in other.fields.items()
        if type(value) is int
    )


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
        worst_case=case if outcome.stage not in ("start", "load") else "",
    )


class Supplier:
    """Answers what a job asks for: the inputs of its cases. `keys[i]` is the job's case i."""

    def __init__(self, oracle: Oracle, keys: Sequence[wire.CaseKey]) -> None:
        self._oracle = oracle
        self.keys = list(keys)
        self.current = ""

    def respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]
    ) -> Answer | None:
        """A `process.Responder`. Raises wire.Malformed for anything but inputs and their description."""
        del job, descriptors
        if not isinstance(message, wire.Ask):
            raise wire.Malformed("its process hands over outputs that nobody asked for")
        key = self.key(message.fields.get("case"))
        self.current = key.name
        if message.what == "inputs":
            return self._oracle.inputs(key)
        if message.what == "shaped":
            return self._oracle.shaped(key)
        if message.what == "describe":
            return self._oracle.describe(key), ()
        raise wire.Malformed(f"its process asks for {message.what!r}, which no job of ours does")

    def key(self, case: object) -> wire.CaseKey:
        """The case of that number. Raises wire.Malformed."""
        if type(case) is not int or not 0 <= case < len(self.keys):
            raise wire.Malformed(f"its process speaks of case {case!r}, which it was not given")
        return self.keys[case]


class _BaselineCheck(Supplier):
    """Records what the baseline does; a failure on one case does not end the others."""

    def __init__(self, oracle: Oracle, keys: Sequence[wire.CaseKey], mutates: bool) -> None:
        super().__init__(oracle, keys)
        self._mutates = mutates
        self.passed: dict[wire.CaseKey, Passed] = {}
        self.failed: dict[wire.CaseKey, Verification] = {}
        self._began = clock.monotonic()

    def respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]
    ) -> Answer | None:
        if isinstance(message, wire.Ask):
            self._began = clock.monotonic()
            return super().respond(job, message, descriptors)
        key = self.key(message.case)
        if isinstance(message, wire.Skipped):
            reason = "too much work for the interpreter"
            self.failed[key] = Verification(verdict="unknown", stage=TOO_MUCH, reason=reason, worst_case=key.name)
        else:
            self._record(key, message, descriptors)
        return {"go_on": True}, ()

    def _record(self, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int]) -> None:
        seconds = clock.monotonic() - self._began
        compared = _compare(self._oracle, key, outputs, descriptors, ())
        reason = compared.refused or _first_reason(compared, key)
        if not reason and not outputs.launched:
            reason = f"it launches no Triton kernel on {key.name}"
        if reason:
            self.failed[key] = _wrong(key, compared, reason)
            return
        self.passed[key] = Passed(
            errors=tuple(one.error for one in compared.comparisons),
            floors=compared.floors,
            tensors=outputs.tensors,
            shared=outputs.shared,
            own=outputs.own,
            own_dtype=compared.own_dtype,
            seconds=seconds,
        )


class _CandidateCheck(Supplier):
    """Compares each call; the first that is wrong ends the job. The process learns nothing of the comparison."""

    def __init__(self, oracle: Oracle, keys: Sequence[wire.CaseKey], contract: Mapping[wire.CaseKey, Passed]) -> None:
        super().__init__(oracle, keys)
        self._contract = contract
        self.verdict: Verification | None = None
        self.checked: dict[wire.CaseKey, None] = {}
        self.skipped: dict[str, None] = {}
        self.answered = 0
        self.error: float | None = None
        self.allowed: float | None = None
        self.worst = ""
        self._called: set[tuple[int, int]] = set()

    def respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]
    ) -> Answer | None:
        if isinstance(message, wire.Ask):
            return super().respond(job, message, descriptors)
        key = self.key(message.case)
        if (message.case, message.call) in self._called:
            raise wire.Malformed("its process hands the same call over twice")
        self._called.add((message.case, message.call))
        self.answered += 1
        if isinstance(message, wire.Skipped):
            self.skipped[key.name] = None
            return {"go_on": True}, ()
        self.verdict = self._judge(key, message, descriptors)
        if self.verdict is not None:
            self.verdict = msgspec.structs.replace(self.verdict, cases_checked=len(self.checked))
            return None
        self.checked[key] = None
        return {"go_on": True}, ()

    def _judge(self, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int]) -> Verification | None:
        contract = self._contract[key]
        if not outputs.launched or (contract.own and not outputs.own):
            reason = "none of its own Triton kernels was launched" + (f" on {key.name}" if self.checked else "")
            return Verification(verdict="cheat", stage="launches", reason=reason, worst_case=key.name)
        trouble = _contract_trouble(outputs, contract)
        if trouble:
            return Verification(verdict="wrong", stage="outputs", reason=f"{trouble} on {key.name}", worst_case=key.name)
        if len(outputs.changed) != len(contract.allowed) - len(contract.tensors):
            compared = _compare(self._oracle, key, outputs, descriptors, ())
        else:
            compared = _compare(self._oracle, key, outputs, descriptors, contract.allowed)
        reason = f"it {compared.refused} on {key.name}" if compared.refused else _first_reason(compared, key)
        if reason:
            found = _wrong(key, compared, reason)
            repeated = " (on a second call with the same inputs)" if outputs.call else ""
            return msgspec.structs.replace(found, reason=found.reason + repeated)
        for one in compared.comparisons:
            if self.error is None or one.error > self.error:
                self.error, self.allowed, self.worst = one.error, one.allowed, key.name
        return None


def _contract_trouble(outputs: wire.Outputs, contract: Passed) -> str:
    """Where the outputs are not of the kind that the baseline returns; values aside."""
    if len(outputs.tensors) != len(contract.tensors):
        return f"it returns {len(outputs.tensors)} tensors where {len(contract.tensors)} are expected"
    for at, (tensor, right) in enumerate(zip(outputs.tensors, contract.tensors, strict=True)):
        if tensor.dtype != right.dtype:
            return f"output {at} is {tensor.dtype} where {right.dtype} is expected"
        if tensor.shape != right.shape:
            return f"output {at} has shape {tensor.shape} where {right.shape} is expected"
        if _steps(tensor) != _steps(right):
            return f"output {at} has strides {tensor.strides} where {right.strides} are expected"
        if outputs.shared[at] >= 0 and outputs.shared[at] != contract.shared[at]:
            return f"output {at} shares memory with input {outputs.shared[at]}"
    return ""


def _steps(tensor: wire.TensorInfo) -> list[int]:
    """Strides that matter: those of axes with more than one place."""
    return [stride for length, stride in zip(tensor.shape, tensor.strides, strict=True) if length > 1]


def _compare(
    oracle: Oracle, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int], allowed: Sequence[float]
) -> wire.Compared:
    if len(descriptors) != 1:
        raise wire.Malformed("its outputs came without memory")
    wire.check_outputs(outputs, descriptors[0], MOST_OUTPUT_BYTES)
    compared = oracle.compare(key, outputs, descriptors[0], allowed)
    if compared.forged:
        raise wire.Malformed(f"its outputs cannot be trusted: {compared.forged}")
    return compared


def _first_reason(compared: wire.Compared, key: wire.CaseKey) -> str:
    """The sentence about the first output that is wrong, "" if none is."""
    for at, one in enumerate(compared.comparisons):
        if not one.reason:
            continue
        what = f"error {one.error:.2g} where {one.allowed:.2g} is allowed" if one.reason == "error" else one.reason
        share = f"{one.wrong} of {one.elements} elements" if one.wrong > 1 else "one element"
        return f"output {at}[{', '.join(map(str, one.index or ()))}] {what} ({share} wrong) on {key.name}"
    return ""


def _wrong(key: wire.CaseKey, compared: wire.Compared, reason: str) -> Verification:
    bad = next((one for one in compared.comparisons if one.reason), None)
    return Verification(
        verdict="wrong",
        stage="boundary",
        reason=reason,
        worst_case=key.name,
        error=bad.error if bad is not None else None,
        allowed=bad.allowed if bad is not None else None,
        first_wrong_index=bad.index if bad is not None else None,
    )


__all__ = ["ProblemError", "Supplier", "Surroundings", "Verifier"]
