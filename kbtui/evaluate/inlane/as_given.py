"""What the reference returns for the inputs as they are, not widened: the dtypes and shapes that outputs should have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kbtui.evaluate.inlane.expected import Expectations, Expected
from kbtui.evaluate.inlane.problem_module import Problem, ProblemFault
from kbtui.evaluate.inlane.tensors import describe
from kbtui.problems.format import Case


class AsGiven:
    """Calls the reference of one problem with inputs in their own dtypes."""

    def __init__(self, problem: Problem, expectations: Expectations) -> None:
        self._problem, self._expectations = problem, expectations
        self._returned: dict[tuple[Any, ...], list[str]] = {}

    def contract(self, key: dict[str, Any], expected: Expected, arguments: tuple[Any, ...]) -> dict[str, Any]:
        """What outputs have to be like where no baseline shows it: of the dtypes that the reference gives for the inputs as
        they are, with its shapes, in memory of their own unless the reference returns an input.

        Answer: {"dtypes", "shapes", "shared", "floors", "own_dtype"}, the floors of outputs, then of mutated arguments.
        """
        given = {at: value for at, value in enumerate(arguments) if isinstance(value, torch.Tensor) and value.numel()}
        memory = {value.untyped_storage().data_ptr(): at for at, value in given.items()}
        try:
            outputs = [tensor for _, tensor in self._problem.expected(arguments, Case(**key["fields"]))]
        except ProblemFault:
            # It computes in float64 only (half precision on a CPU, say): the inputs' dtype is what is wanted.
            floating = next((one.dtype for one in given.values() if one.is_floating_point()), torch.float32)
            outputs = [
                torch.empty_like(tensor, dtype=floating if tensor.is_floating_point() else tensor.dtype)
                for _, tensor in expected.outputs
            ]
        compared = [*outputs, *(arguments[at] for at in expected.mutated)]
        return {
            "dtypes": [describe(tensor)["dtype"] for tensor in outputs],
            "shapes": [list(tensor.shape) for tensor in outputs],
            "shared": [memory.get(tensor.untyped_storage().data_ptr(), -1) for tensor in outputs],
            "floors": [self._expectations.floor(tensor.dtype) for tensor in compared],
            "own_dtype": expected.own_dtype or expected.narrowed,
        }

    def dtypes(
        self,
        key: dict[str, Any],
        expected: Expected,
        arguments: Callable[[dict[str, Any]], tuple[Any, ...]],
        *,
        affordable: bool,
    ) -> list[str]:
        """Dtypes of the outputs, found once for each `dtype` of a case and others of its texts; [] where the reference cannot
        compute in the inputs' own, or where it was not tried before and this case is not `affordable`."""
        if expected.own_dtype:
            return [describe(tensor)["dtype"] for _, tensor in expected.outputs]
        case = Case(**key["fields"])
        kind = tuple((name, value) for name, value in case.fields.items() if isinstance(value, str | bool))
        if kind not in self._returned:
            if not affordable:
                return []
            try:
                outputs = self._problem.expected(arguments(key), case)
            except ProblemFault:
                outputs = []
            self._returned[kind] = [describe(tensor)["dtype"] for _, tensor in outputs]
        return self._returned[kind]


def dtypes_of(arguments: Sequence[Any]) -> list[str]:
    """Dtypes of the tensors among arguments, each once."""
    return sorted({describe(value)["dtype"] for value in arguments if isinstance(value, torch.Tensor)})
