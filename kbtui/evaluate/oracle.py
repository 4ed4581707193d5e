"""The oracle process seen from the run process: questions and answers, restarted once when it dies."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kbtui.errors import EnvironmentFailure, ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.process import LaneProcess, ProcessGone
from kbtui.state.records import CaseInfo, Record

ANSWER_S = 300.0
"""A float64 reference of a large case on a CPU takes long; longer than this is taken for dead."""
MOST_BOUNDARIES = 18
MOST_UNSEEN = 6
MOST_ELEMENTS = 1 << 16
"""Elements of a boundary case's inputs on the interpreter, which needs about a microsecond for each."""


class Described(Record, frozen=True, kw_only=True):
    """A problem as its oracle describes it, without what only the run process knows (name, path, digest)."""

    entry: str
    cases: tuple[CaseInfo, ...]
    mutates: tuple[str, ...]
    precision: str
    summary: str
    own_precision: bool = False


class Oracle:
    """One oracle process for one problem. `device` is where inputs are made: "cpu" or "cuda:N".

    `pretend` is {"properties", "capability"} of the device that a CPU plays, for references that are kernels.
    `by_device`, set by a lane that tried it (`rehearse`): large tensors go by IPC handle and not through the host.

    Questions may come from several threads; each is answered before the next one is asked.
    """

    def __init__(
        self,
        python: str,
        folder: Path,
        problem: Path,
        device: str,
        seed: int,
        pretend: dict[str, Any] | None = None,
    ) -> None:
        self._process = LaneProcess("oracle", python, folder)
        self._opening = {"open": {"folder": str(problem), "device": device, "seed": seed, "pretend": pretend}}
        self._problem = problem
        self._asking = threading.Lock()
        self._descriptions: dict[wire.CaseKey, dict[str, Any]] = {}
        self.by_device = False
        self.remarks: dict[str, None] = {}
        """What was noticed about the problem's two files, to be said with every verdict."""

    def launch(self) -> None:
        """Start the process without waiting for it. Raises EnvironmentFailure."""
        self._process.launch()

    def open(self) -> Described:
        """Wait for the process and load the problem. Raises EnvironmentFailure or ProblemError."""
        self._process.ready()
        try:
            answer = self._exchange(self._opening, ())[0]
        except ProcessGone as gone:
            self._refuse_leaving("loading it")
            raise ProblemError(
                f"{self._problem / 'problem.py'}: the process that loads it died ({gone}): run it by itself to see why"
            ) from gone
        return msgspec.convert(answer["problem"], Described)

    def plan(
        self,
        constants: Sequence[int],
        unchecked_dtypes: Sequence[str],
        too_much: Sequence[wire.CaseKey] = (),
        salt: int = 0,
    ) -> wire.Plan:
        """Boundary cases for launches with these integer constants, smaller than those of `too_much`; with a `salt` other
        ones, drawn at random by it.

        Raises EnvironmentFailure or ProblemError.
        """
        body = {
            "constants": list(constants),
            "most_elements": MOST_ELEMENTS,
            "most": MOST_UNSEEN if salt else MOST_BOUNDARIES,
            "salt": salt,
            "too_much": [key.fields for key in too_much],
            "unchecked_dtypes": list(unchecked_dtypes),
        }
        return msgspec.convert(self._ask({"plan": body})[0], wire.Plan)

    def describe(self, key: wire.CaseKey) -> dict[str, Any]:
        """{"arguments": [...]} without values, as a candidate is answered. Raises EnvironmentFailure or ProblemError.

        Asked once per case: a compile job must not disturb the device while something is timed on it.
        """
        if key not in self._descriptions:
            self._descriptions[key] = self._ask({"describe": msgspec.to_builtins(key)})[0]
        return self._descriptions[key]

    def inputs(self, key: wire.CaseKey) -> tuple[dict[str, Any], list[int]]:
        """{"arguments", "size"} and a sealed memfd, the caller's to close; or, by way of the device, no memfd and a handle in
        "memory", good until inputs are asked for again. Raises EnvironmentFailure or ProblemError."""
        return self._ask({"lent" if self.by_device else "inputs": msgspec.to_builtins(key)})

    def rehearse(self) -> tuple[dict[str, Any], list[int]]:
        """As `inputs`, by way of the device: the numbers from 0 up, as one int32 tensor."""
        return self._ask({"rehearse": {}})

    def room(self, size: int) -> dict[str, Any] | None:
        """The handle of device memory for a candidate's outputs; None where they have to go through the host."""
        if not self.by_device:
            return None
        handle: dict[str, Any] | None = self._ask({"room": {"bytes": size}})[0]["memory"]
        return handle

    def shaped(self, key: wire.CaseKey) -> tuple[dict[str, Any], list[int]]:
        """Like `inputs`, but large tensors come without values."""
        return self._ask({"shaped": msgspec.to_builtins(key)})

    def compare(
        self, key: wire.CaseKey, outputs: wire.Outputs, memory: Sequence[int], allowed: Sequence[float]
    ) -> wire.Compared:
        """Compare outputs with what is expected; `allowed` empty for a baseline. `memory` is their memfd, which was checked, or
        nothing when they are in the room that was made last."""
        body = {
            "key": msgspec.to_builtins(key),
            "size": outputs.size,
            "names": list(outputs.names),
            "tensors": [msgspec.to_builtins(one) for one in outputs.tensors],
            "changed": [msgspec.to_builtins(one) for one in outputs.changed],
            "allowed": list(allowed),
        }
        return msgspec.convert(self._ask({"compare": body}, memory)[0], wire.Compared)

    def contract(self, key: wire.CaseKey) -> wire.Contract:
        """What outputs on a case have to be like, by the reference alone. Raises EnvironmentFailure or ProblemError."""
        return msgspec.convert(self._ask({"contract": msgspec.to_builtins(key)})[0], wire.Contract)

    def mutants(self) -> list[str]:
        """Names of the wrong outputs that can be made. Raises EnvironmentFailure."""
        return list(map(str, self._ask({"mutants": {}})[0]["mutants"]))

    def mutate(
        self, key: wire.CaseKey, mutant: str, dtypes: Sequence[str]
    ) -> tuple[wire.Outputs | None, Sequence[int]]:
        """A mutant's outputs on a case and their memfd, the caller's to close; None where the mutant is none. `dtypes` are those
        of the outputs. Raises EnvironmentFailure or ProblemError."""
        body = {"key": msgspec.to_builtins(key), "mutant": mutant, "dtypes": list(dtypes)}
        answer, memory = self._ask({"mutate": body})
        if not answer.pop("applies"):
            return None, ()
        shared = [-1] * len(answer["tensors"])
        call = {"case": 0, "call": 0, "shared": shared, "launched": ["mutant"], "own": True}
        return msgspec.convert({"type": "outputs", **answer, **call}, wire.Outputs), memory

    def _ask(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> tuple[dict[str, Any], list[int]]:
        with self._asking:
            try:
                return self._exchange(message, descriptors)
            except ProcessGone:
                self._restart()
            try:
                return self._exchange(message, descriptors)
            except ProcessGone as gone:
                self._refuse_leaving("reference or make_inputs")
                raise EnvironmentFailure(f"the oracle died twice: {gone}") from gone

    def _refuse_leaving(self, what: str) -> None:
        """Raises ProblemError when the problem's own code ended the process."""
        status = self._process.left_with()
        if status is not None:
            raise ProblemError(
                f"{self._problem / 'problem.py'}: {what} ends the process with status {status}: "
                "take out what does, such as os._exit"
            )

    def _restart(self) -> None:
        self._process.launch()
        self.open()

    def _exchange(self, message: dict[str, Any], descriptors: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
        self._process.send(message, descriptors)
        answer, handed = self._process.receive_with_descriptors(ANSWER_S)
        if "problem_error" in answer:
            for descriptor in handed:
                os.close(descriptor)
            raise ProblemError(str(answer["problem_error"]))
        return answer, handed

    def close(self) -> None:
        """End the process. Never raises; may be called twice."""
        self._process.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid
