"""What a job of a lane is answered, and what its outputs mean: one check per baseline or candidate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kbtui import clock
from kbtui.evaluate import wire
from kbtui.evaluate.job import Answer, Job
from kbtui.evaluate.oracle import Oracle
from kbtui.state.records import Verification

ERROR_FACTOR = 3.0
"""A candidate may err by so many times the baseline's own error (or by the floor of its dtype)."""
MOST_OUTPUT_BYTES = 64 << 30
TOO_MUCH = "work"
"""Stage of a case that the interpreter's allowance does not cover."""


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


class Supplier:
    """Answers what a job asks for: the inputs of its cases. `keys[i]` is the job's case i."""

    def __init__(self, oracle: Oracle, keys: Sequence[wire.CaseKey]) -> None:
        self._oracle = oracle
        self.keys = list(keys)
        self.current = ""
        self.granted = 0

    def respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]
    ) -> Answer | None:
        """A `process.Responder`. Raises wire.Malformed for anything but inputs and their description."""
        del job, descriptors
        if not isinstance(message, wire.Ask):
            raise wire.Malformed("its process hands over outputs that nobody asked for")
        if message.what == "room":
            return self._make_room(message.fields.get("bytes"))
        key = self.key(message.fields.get("case"))
        self.current = key.name
        if message.what == "inputs":
            return self._oracle.inputs(key)
        if message.what == "shaped":
            return self._oracle.shaped(key)
        if message.what == "describe":
            return self._oracle.describe(key), ()
        raise wire.Malformed(f"its process asks for {message.what!r}, which no job of ours does")

    def _make_room(self, size: object) -> Answer:
        """Device memory of the oracle's for outputs of so many bytes, or none: then they go through the host."""
        if type(size) is not int or not 0 < size <= MOST_OUTPUT_BYTES:
            raise wire.Malformed(f"its process asks for room for {size!r} bytes")
        handle = self._oracle.room(size)
        self.granted = 0 if handle is None else size
        return {"memory": handle}, ()

    def key(self, case: object) -> wire.CaseKey:
        """The case of that number. Raises wire.Malformed."""
        if type(case) is not int or not 0 <= case < len(self.keys):
            raise wire.Malformed(f"its process speaks of case {case!r}, which it was not given")
        return self.keys[case]


class BaselineCheck(Supplier):
    """Records what the baseline does; a failure on one case does not end the others."""

    def __init__(self, oracle: Oracle, keys: Sequence[wire.CaseKey]) -> None:
        super().__init__(oracle, keys)
        self.passed: dict[wire.CaseKey, Passed] = {}
        self.failed: dict[wire.CaseKey, Verification] = {}
        self.too_much: wire.CaseKey | None = None
        self._began = clock.monotonic()

    def respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]
    ) -> Answer | None:
        if isinstance(message, wire.Ask):
            if message.what == "inputs":
                self._began = clock.monotonic()
            return super().respond(job, message, descriptors)
        key = self.key(message.case)
        if isinstance(message, wire.Skipped):
            reason = "too much work for the interpreter"
            self.failed[key] = Verification(verdict="unknown", stage=TOO_MUCH, reason=reason, worst_case=key.name)
            self.too_much = key
            return None  # what comes next may well be larger: choose again
        self._record(key, message, descriptors)
        return {"go_on": True}, ()

    def _record(self, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int]) -> None:
        seconds = clock.monotonic() - self._began
        _check_memory(outputs, descriptors, self.granted)
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


class CandidateCheck(Supplier):
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
        _check_memory(outputs, descriptors, self.granted)
        contract = self._contract[key]
        if not outputs.launched or (contract.own and not outputs.own):
            reason = "none of its own Triton kernels was launched" + (f" on {key.name}" if self.checked else "")
            return Verification(verdict="cheat", stage="launches", reason=reason, worst_case=key.name)
        trouble = _contract_trouble(outputs, contract)
        if trouble:
            return Verification(
                verdict="wrong", stage="outputs", reason=f"{trouble} on {key.name}", worst_case=key.name
            )
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


def _check_memory(outputs: wire.Outputs, descriptors: list[int], granted: int) -> None:
    """Outputs are in one memfd, or in the device memory of `granted` bytes that was given for them."""
    if len(descriptors) > 1 or (not descriptors and not 0 < outputs.size <= granted):
        raise wire.Malformed("its outputs came without memory")
    wire.check_outputs(outputs, descriptors[0] if descriptors else None, MOST_OUTPUT_BYTES)


def _compare(
    oracle: Oracle, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int], allowed: Sequence[float]
) -> wire.Compared:
    compared = oracle.compare(key, outputs, descriptors, allowed)
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
