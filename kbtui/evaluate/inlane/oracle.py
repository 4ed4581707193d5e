"""The oracle process: problem.py, input makers, expected outputs, comparison. Trusted code; no candidate ever enters it.

One request, one answer, over the socket of the run process. Outputs of candidates arrive as sealed memfds and are
measured against the description before a byte is read.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kbtui.evaluate.inlane import boundary, gold, gpus, sandbox
from kbtui.evaluate.inlane.as_given import AsGiven, dtypes_of
from kbtui.evaluate.inlane.compare import compare
from kbtui.evaluate.inlane.exchange import Exchange, described
from kbtui.evaluate.inlane.expected import Expectations, Expected, widened
from kbtui.evaluate.inlane.frames import FrameReader, send_frame
from kbtui.evaluate.inlane.memfd import SealError
from kbtui.evaluate.inlane.mutants import mutants
from kbtui.evaluate.inlane.mutate import material, mutate
from kbtui.evaluate.inlane.problem_module import Problem, ProblemFault
from kbtui.evaluate.inlane.shapes import ShapesOnly
from kbtui.evaluate.inlane.tensors import NotPortable, describe
from kbtui.evaluate.inlane.values import vary_values
from kbtui.problems.format import Case

THREADS = 2
MOST_REAL = 1 << 20
"""Elements of a tensor that gets values where only shapes matter: indices and lengths are rarely longer."""


MOST_CHECKED = 1 << 24
"""Elements of the inputs of a check of the problem's own that a fast device verifies."""
MOST_TRIED = 1 << 22
"""Elements of the inputs of a case on which the reference is tried before anything else."""

AUDITS = 2
"""The first cases are called several times each; those should have elements."""


def serve(control: socket.socket, role: str) -> None:
    """Answer requests until the run process closes `control`. The first one is {"open": {...}}."""
    del role
    sandbox.attempt(sandbox.not_dumpable)  # expected outputs lie in this memory; a candidate has the same user
    torch.set_num_threads(THREADS)
    send_frame(control, {"ready": {"pid": os.getpid()}})
    reader = FrameReader(control)
    oracle: Oracle | None = None
    while True:
        request, descriptors = reader.next()
        try:
            if "open" in request:
                opening = dict(request["open"])
                opening["device"] = gpus.only(opening["device"])
                gold.prepare(opening["device"], opening.pop("pretend"))  # before triton is imported with the problem
                oracle = Oracle(**opening)
                answer: tuple[dict[str, Any], list[int]] = (oracle.describe_problem(), [])
            elif oracle is None:
                raise ValueError("no problem is open")
            else:
                answer = oracle.answer(request, descriptors)
        except ProblemFault as fault:
            answer = {"problem_error": str(fault)}, []
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        message, handed = answer
        try:
            send_frame(control, message, handed)
        finally:
            for descriptor in handed:
                os.close(descriptor)


class Oracle:
    """`device` is where inputs are made and compared: "cpu" or "cuda:N"."""

    def __init__(self, folder: str, device: str, seed: int) -> None:
        self._problem = Problem(Path(folder))
        self._device = device
        self._seed = seed
        self._expectations = Expectations(self._problem, device)
        self._exchange = Exchange(device)
        self._as_given = AsGiven(self._problem, self._expectations)

    def describe_problem(self) -> dict[str, Any]:
        """What the run process makes a ProblemInfo of. Tries the smallest case, so that a broken problem shows at once."""
        problem = self._problem
        cases = []
        for case in problem.cases:
            arguments = self._arguments_without_values(case)
            if self._is_empty(case, arguments):
                problem.refuse_empty(case)
            bytes_moved, operations = problem.least_traffic(case)
            cases.append(
                {
                    "name": case.name,
                    "fields": case.fields,
                    "weight": case.weight,
                    "bytes_moved": bytes_moved,
                    "operations": operations,
                    "dtypes": dtypes_of(arguments),
                    "shapes": [list(one.shape) if isinstance(one, torch.Tensor) else None for one in arguments],
                }
            )
        self._try_out()
        return {
            "problem": {
                "entry": problem.entry,
                "cases": cases,
                "mutates": list(problem.mutates),
                "precision": problem.precision,
                "own_precision": problem.own_precision,
                "summary": problem.summary,
            },
            "versions": {"python": sys.version.split()[0], "torch": torch.__version__},
        }

    def _is_empty(self, case: Case, arguments: Sequence[Any]) -> bool:
        """Whether there is nothing to compute: no input has elements, or, where only some have none, no output either."""
        sizes = [value.numel() for value in arguments if isinstance(value, torch.Tensor)]
        if all(sizes) or (any(sizes) and (sum(sizes) > MOST_TRIED or self._problem.own_precision)):
            return False
        found = self._expected({"fields": case.fields, "variant": ""}).tensors if any(sizes) else []
        return not any(tensor.numel() for tensor in found)

    def _try_out(self) -> None:
        problem = self._problem
        for case in (*problem.cases, *problem.checks):
            self._arguments_without_values(case)
        case = min((*problem.cases, *problem.checks), key=self._elements)
        if problem.vary:
            # what `vary` admits has to work; without it a problem need not take every small shape
            case = boundary.smallest(case, problem.vary)
        interpreted = problem.own_precision and self._device == "cpu"
        if (
            self._elements(case) <= MOST_TRIED and not interpreted
        ):  # the baseline's own job shows what is too much there
            self._expected({"fields": case.fields, "variant": ""})

    def answer(self, request: dict[str, Any], descriptors: list[int]) -> tuple[dict[str, Any], list[int]]:
        """One request, {"plan" | "describe" | "inputs" | "lent" | "shaped" | "room" | "rehearse" | "compare" |
        "contract" | "mutants" | "mutate": {...}}.

        "lent" is "inputs" by way of the device. Raises ProblemFault.
        """
        ((what, body),) = request.items()
        if what == "plan":
            return self._plan(body), []
        if what == "describe":
            arguments = self._arguments_without_values(Case(**body["fields"]))
            return {"arguments": [described(value) for value in arguments]}, []
        if what == "inputs":
            return self._exchange.hand_out(self._arguments(body))
        if what == "lent":
            return self._exchange.lend(self._arguments(body))
        if what == "room":
            return {"memory": self._exchange.room(int(body["bytes"]))}, []
        if what == "rehearse":
            return self._exchange.rehearse()
        if what == "shaped":
            return self._exchange.hand_out(self._arguments_without_values(Case(**body["fields"]), MOST_REAL))
        if what == "compare":
            return self._compare(body, descriptors), []
        if what == "contract":
            return self._as_given.contract(body, self._expected(body), self._arguments(body)), []
        if what == "mutants":
            return {"mutants": list(mutants(self._expectations.parameters))}, []
        if what == "mutate":
            return self._mutate(body)
        raise ValueError(f"the oracle does not know {what!r}")

    # inputs

    def _arguments(self, key: dict[str, Any]) -> tuple[Any, ...]:
        case = Case(**key["fields"])
        text = json.dumps(key, sort_keys=True)
        seed = (self._seed * 1_000_003 + sum(ord(one) * 31**at for at, one in enumerate(text))) % (1 << 62)
        generator = torch.Generator(self._device).manual_seed(seed)
        return vary_values(self._problem.arguments(case, generator, self._device), key["variant"], generator)

    def _arguments_without_values(self, case: Case, most_real: int = 0) -> tuple[Any, ...]:
        """Arguments whose tensors, those of more than `most_real` elements, may have no memory behind them: for shapes,
        without the cost of filling gigabytes."""
        generator = torch.Generator(self._device).manual_seed(self._seed)
        try:
            with ShapesOnly(most_real):
                return self._problem.arguments(case, generator, self._device)
        except ProblemFault:
            # what needs values (`.item()`, `bool(tensor.any())`) cannot be told from shapes: make them
            return self._problem.arguments(case, generator, self._device)

    def _elements(self, case: Case) -> int:
        return sum(value.numel() for value in self._arguments_without_values(case) if isinstance(value, torch.Tensor))

    def _expected(self, key: dict[str, Any]) -> Expected:
        return self._expectations.of(key, self._arguments)

    # comparison

    def _compare(self, body: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        """Compare {"key", "size", "names", "tensors", "changed", "allowed"} with what is expected. The outputs are in a memfd,
        or, where none comes along, in the room that was made for them.

        `allowed` is a list of limits by output, then by mutated argument, or empty: then the floors times ten hold, as
        they do for a baseline. Answer: {"refused": sentence} or {"comparisons": [...], "floors": [...], "own_dtype"}.
        """
        expected = self._expected(body["key"])
        if not expected.tensors:
            return {"refused": "shows nothing here: the reference returns nothing and changes nothing"}
        descriptions = [*body["tensors"], *(one["tensor"] for one in body["changed"])]
        refused = self._shape_trouble(expected, body)
        if refused:
            return {"refused": refused}
        try:
            tensors = self._exchange.received(descriptions, descriptors, body["size"])
        except (SealError, NotPortable, ValueError) as error:
            return {"forged": str(error)}
        changed = dict(zip((one["input"] for one in body["changed"]), tensors[len(body["tensors"]) :], strict=True))
        pairs = [(actual, right) for actual, (_, right) in zip(tensors, expected.outputs, strict=False)]
        pairs += [(changed[at], right) for at, right in expected.mutated.items()]
        floors = [self._expectations.floor(actual.dtype) for actual, _ in pairs]
        if expected.spread:
            if any(one > 1e3 for one in expected.spread):
                return {"refused": "cannot be judged here: the reference, run again, gives other outputs"}
            floors = [
                max(floor, 3 * spread, expected.coarsest if actual.is_floating_point() else 0.0)
                for floor, spread, (actual, _) in zip(floors, expected.spread, pairs, strict=True)
            ]
        limits = body["allowed"] or [10 * floor for floor in floors]
        compared = [
            compare(actual.to(right.device), right, limit).plain()
            for (actual, right), limit in zip(pairs, limits, strict=True)
        ]
        del tensors, changed, pairs
        self._exchange.give_back()
        answer = {"comparisons": compared, "floors": floors, "own_dtype": expected.own_dtype or expected.narrowed}
        return answer if body["allowed"] else {**answer, "reference_dtypes": self._own_dtypes(body["key"], expected)}

    def _own_dtypes(self, key: dict[str, Any], expected: Expected) -> list[str]:
        affordable = self._elements(Case(**key["fields"])) <= MOST_TRIED
        return self._as_given.dtypes(key, expected, self._arguments, affordable=affordable)

    def _shape_trouble(self, expected: Expected, body: dict[str, Any]) -> str:
        if len(body["tensors"]) != len(expected.outputs):
            return f"returns {len(body['tensors'])} tensors where {len(expected.outputs)} are expected"
        for name, description, (right, tensor) in zip(body["names"], body["tensors"], expected.outputs, strict=True):
            if name != right:
                return f"output {name} where {right} is expected"
            if list(description["shape"]) != list(tensor.shape):
                return (
                    f"output {name} has shape {_shape(description['shape'])} where {_shape(tensor.shape)} is expected"
                )
            if ("float" in description["dtype"]) != tensor.is_floating_point():
                return f"output {name} is {description['dtype']} where {_kind(tensor)} is expected"
        given = {one["input"] for one in body["changed"]}
        left = next((at for at in expected.mutated if at not in given), None)
        if left is not None:
            return f"argument {left} was not changed, though the reference changes it"
        allowed = expected.mutated if self._problem.own_precision else self._expectations.mutable
        stray = next((at for at in sorted(given) if at not in allowed), None)
        return "" if stray is None else f"writes to its input {stray}"

    # self-test

    def _mutate(self, body: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """{"key", "mutant", "dtypes"}: see `mutate`."""
        key = body["key"]
        right, other = self._expected(key), self._expected({**key, "draw": int(key.get("draw", 0)) + 1})
        values = self._arguments(key)
        arguments = values if right.own_dtype else tuple(widened(value) for value in values)
        given = material(self._problem, Case(**key["fields"]), self._expectations.parameters, arguments, right, other)
        changed = [values[at].dtype for at in right.mutated]
        return mutate(body["mutant"], given, right, body["dtypes"], changed)

    # boundary cases

    def _most_elements(self, case: Case, most: int) -> int:
        """Of the inputs of a case to check. A problem's own checks are what there is, and get more room: on a CPU the
        interpreter's allowance of accesses bounds the work."""
        if self._device == "cpu":
            return MOST_TRIED if self._problem.own_precision else most
        return MOST_CHECKED if case in self._problem.checks else most

    def _plan(self, body: dict[str, Any]) -> dict[str, Any]:
        """{"constants", "most_elements", "most", "unchecked_dtypes", "too_much", "salt"} -> {"keys": [...], "notes": [...]}."""
        problem = self._problem
        skipped: set[str] = set()
        too_large = 0

        def admit(case: Case) -> bool:
            nonlocal too_large
            if any(boundary.no_smaller(case, fields) for fields in body["too_much"]):
                too_large += 1
                return False
            try:
                arguments = self._arguments_without_values(case)
            except ProblemFault:
                return False  # a shape that the problem cannot make is no shape to check
            tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
            unchecked = {describe(tensor)["dtype"] for tensor in tensors} & set(body["unchecked_dtypes"])
            skipped.update(unchecked)
            if sum(tensor.numel() for tensor in tensors) > self._most_elements(case, body["most_elements"]):
                too_large += 1
                return False
            return not unchecked

        cases = (*problem.checks, *problem.cases)
        if problem.own_precision:
            # a kernel cannot say what is right for awkward shapes and values: its own calls are what it was written for
            found = [boundary.Boundary(case) for case in cases if admit(case)][: body["most"]]
        else:
            shapes = (cases, problem.vary, problem.dtypes, body["constants"], admit, body["most"])
            found = boundary.unseen(*shapes, salt) if (salt := body.get("salt", 0)) else boundary.plan(*shapes)
            if not salt:  # what the problem says is to be checked is, also as it stands there
                stated = [boundary.Boundary(case) for case in problem.checks if admit(case)][: body["most"]]
                found = list(dict.fromkeys([*found[:AUDITS], *stated, *found[AUDITS:]]))
        notes = [f"{name}: not checked here" for name in sorted(skipped)]
        if too_large:
            notes.append(f"{too_large} larger shapes: not checked here")
        return {"keys": [{"fields": one.case.fields, "variant": one.variant} for one in found], "notes": notes}


def _shape(shape: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _kind(tensor: torch.Tensor) -> str:
    return "a floating dtype" if tensor.is_floating_point() else str(tensor.dtype).removeprefix("torch.")
