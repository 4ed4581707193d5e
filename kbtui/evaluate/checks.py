"""What a job of a lane is answered, and what its outputs mean: one check per baseline or candidate process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kbtui import clock
from kbtui.evaluate import wire
from kbtui.evaluate.inlane.calls import AGAIN, DRAWS, FRESH, IDLE
from kbtui.evaluate.job import Answer, Job
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.outputs import (
    MOST_OUTPUT_BYTES,
    Passed,
    check_memory,
    compared_with,
    contract_trouble,
    dtype_remarks,
    first_reason,
    nothing_in,
    wrong,
)
from kbtui.state.records import Verification

TOO_MUCH = "work"
"""Stage of a case that the interpreter's allowance does not cover."""


class Supplier:
    """Answers what a job asks for: the inputs of its cases. `keys[i]` is the job's case i.

    Who asks again for the inputs of a case gets other values, those of its next draw, unless `draws[i]` says which.
    """

    def __init__(self, oracle: Oracle, keys: Sequence[wire.CaseKey], draws: Sequence[Sequence[int]] = ()) -> None:
        self._oracle = oracle
        self.keys = list(keys)
        self.current = ""
        self.granted = 0
        self._draws = draws
        self._asked: dict[int, int] = {}
        self._drawn: dict[int, wire.CaseKey] = {}

    def respond(
        self, job: Job, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]
    ) -> Answer | None:
        """A `process.Responder`. Raises wire.Malformed for anything but inputs and their description."""
        del job, descriptors
        if not isinstance(message, wire.Ask):
            raise wire.Malformed("its process hands over outputs that nobody asked for")
        if message.what == "room":
            return self._make_room(message.fields.get("bytes"))
        case = self.number(message.fields.get("case"))
        key = self.keys[case]
        self.current = key.name
        if message.what == "inputs":
            return self._oracle.inputs(self._draw(case))
        if message.what == "shaped":
            return self._oracle.shaped(key)
        if message.what == "describe":
            return self._oracle.describe(key), ()
        raise wire.Malformed(f"its process asks for {message.what!r}, which no job of ours does")

    def _draw(self, case: int) -> wire.CaseKey:
        """The key of the values that the case's inputs have this time."""
        asked = self._asked.get(case, 0)
        self._asked[case] = asked + 1
        planned = self._draws[case] if case < len(self._draws) else ()
        draw = planned[asked] if asked < len(planned) else asked
        self._drawn[case] = msgspec.structs.replace(self.keys[case], draw=self.keys[case].draw + draw)
        return self._drawn[case]

    def drawn(self, case: int) -> wire.CaseKey:
        """The key of the values that were handed out for the case last. Raises wire.Malformed when none were."""
        if case not in self._drawn:
            raise wire.Malformed(f"its process hands over case {case} without its inputs")
        return self._drawn[case]

    def _make_room(self, size: object) -> Answer:
        """Device memory of the oracle's for outputs of so many bytes, or none: then they go through the host."""
        if type(size) is not int or not 0 < size <= MOST_OUTPUT_BYTES:
            raise wire.Malformed(f"its process asks for room for {size!r} bytes")
        handle = self._oracle.room(size)
        self.granted = 0 if handle is None else size
        return {"memory": handle}, ()

    def key(self, case: object) -> wire.CaseKey:
        """The case of that number. Raises wire.Malformed."""
        return self.keys[self.number(case)]

    def number(self, case: object) -> int:
        """The number, if there is a case of it. Raises wire.Malformed."""
        if type(case) is not int or not 0 <= case < len(self.keys):
            raise wire.Malformed(f"its process speaks of case {case!r}, which it was not given")
        return case


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
        check_memory(outputs, descriptors, self.granted)
        compared = compared_with(self._oracle, self.drawn(outputs.case), outputs, descriptors, ())
        self._oracle.remarks.update(dict.fromkeys(dtype_remarks(outputs, compared.reference_dtypes)))
        reason = compared.refused or first_reason(compared, key)
        if not reason and not outputs.launched and not nothing_in(outputs):
            reason = f"it launches no Triton kernel on {key.name}"
        if reason:
            self.failed[key] = wrong(key, compared, reason)
            return
        self.passed[key] = Passed(
            errors=tuple(one.error for one in compared.comparisons),
            floors=compared.floors,
            tensors=outputs.tensors,
            shared=outputs.shared,
            own=outputs.own,
            handed=frozenset(outputs.handed),
            own_dtype=compared.own_dtype,
            seconds=seconds,
        )


class CandidateCheck(Supplier):
    """Compares each call; the first that is wrong ends the job. The process learns nothing of the comparison.

    `calls[i]` are the kinds of the calls of case i (`inlane.calls`); a call beyond them is an ordinary one.
    """

    def __init__(
        self,
        oracle: Oracle,
        keys: Sequence[wire.CaseKey],
        contract: Mapping[wire.CaseKey, Passed],
        calls: Sequence[Sequence[str]] = (),
    ) -> None:
        super().__init__(oracle, keys, [[DRAWS[kind] for kind in kinds] for kinds in calls])
        self._contract = contract
        self._calls = calls
        self.verdict: Verification | None = None
        self.checked: dict[wire.CaseKey, None] = {}
        self.skipped: dict[str, None] = {}
        self.launched: set[str] = set()
        self.answered = 0
        self.error: float | None = None
        self.allowed: float | None = None
        self.worst = ""
        self._called: set[tuple[int, int]] = set()
        self._work: dict[int, list[int]] = {}

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
        idle = self._kind(message) == IDLE
        if isinstance(message, wire.Skipped):
            if not idle:
                self.skipped[key.name] = None
            return {"go_on": True}, ()
        self.verdict = (self._judge_idle if idle else self._judge)(key, message, descriptors)
        if self.verdict is not None:
            self.verdict = msgspec.structs.replace(self.verdict, cases_checked=len(self.checked))
            return None
        self.checked[key] = None
        self.launched.update(message.launched)
        return {"go_on": True}, ()

    def _kind(self, message: wire.Outputs | wire.Skipped) -> str:
        kinds = self._calls[message.case] if message.case < len(self._calls) else ()
        return kinds[message.call] if message.call < len(kinds) else FRESH

    def _judge(self, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int]) -> Verification | None:
        check_memory(outputs, descriptors, self.granted)
        contract = self._contract[key]
        evaded = self._evasion(key, outputs, contract)
        if evaded:
            return Verification(verdict="cheat", stage="launches", reason=evaded, worst_case=key.name)
        trouble = contract_trouble(outputs, contract)
        if trouble:
            return Verification(
                verdict="wrong", stage="outputs", reason=f"{trouble} on {key.name}", worst_case=key.name
            )
        compared = compared_with(self._oracle, self.drawn(outputs.case), outputs, descriptors, contract.allowed)
        reason = f"it {compared.refused} on {key.name}" if compared.refused else first_reason(compared, key)
        if reason:
            found = wrong(key, compared, reason)
            return msgspec.structs.replace(found, reason=found.reason + _REPEATED.get(self._kind(outputs), ""))
        for one in compared.comparisons:
            if self.error is None or one.error > self.error:
                self.error, self.allowed, self.worst = one.error, one.allowed, key.name
        return None

    def _evasion(self, key: wire.CaseKey, outputs: wire.Outputs, contract: Passed) -> str:
        """How the work was not done by the candidate's own kernels in this call, "" when it was."""
        if not nothing_in(outputs) and (not outputs.launched or (contract.own and not outputs.own)):
            return "none of its own Triton kernels was launched" + (f" on {key.name}" if self.checked else "")
        handed = sorted(set(outputs.handed) - contract.handed)
        if handed:
            return f"it has {handed[0]} do work on {key.name}, which the baseline does not"
        before = self._work.setdefault(outputs.case, [])
        before.append(outputs.work)
        if self._kind(outputs) == AGAIN and outputs.work < min(before[:-1]):
            return f"it does less when it is called with the same values again, on {key.name}: it keeps results"
        return ""

    def _judge_idle(self, key: wire.CaseKey, outputs: wire.Outputs, descriptors: list[int]) -> Verification | None:
        """A call whose launches did nothing: its outputs cannot be right."""
        check_memory(outputs, descriptors, self.granted)
        contract = self._contract[key]
        if not outputs.tensors or nothing_in(outputs) or contract_trouble(outputs, contract):
            return None
        compared = compared_with(self._oracle, self.drawn(outputs.case), outputs, descriptors, contract.allowed)
        if compared.refused or any(one.reason for one in compared.comparisons):
            return None
        reason = f"its outputs on {key.name} are right even when its kernels do nothing: the work is done elsewhere"
        return Verification(verdict="cheat", stage="launches", reason=reason, worst_case=key.name)


_REPEATED = {
    FRESH: " (on a further call with other values at the same addresses)",
    AGAIN: " (on a further call with the first values)",
}
