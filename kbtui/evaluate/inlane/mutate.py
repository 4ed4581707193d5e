"""A mutant's outputs as a candidate would hand them over: in the oracle process, for the self-test of the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kbtui.evaluate.inlane.mutants import HIDES_NAN, KEEPS_SHAPE, Material, mutants
from kbtui.evaluate.inlane.problem_module import Problem, ProblemFault
from kbtui.evaluate.inlane.tensors import dtype_named, pack
from kbtui.problems.format import Case

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.expected import Expected

Answer = tuple[dict[str, Any], list[int]]
_NONE: Answer = ({"applies": False}, [])


def material(
    problem: Problem,
    case: Case,
    parameters: tuple[str, ...],
    arguments: tuple[Any, ...],
    right: Expected,
    other: Expected,
) -> Material:
    """What the mutants of a case are made from. `arguments` are as `right` was computed with; `other` is of other values."""

    def reference(changed: tuple[Any, ...]) -> list[torch.Tensor] | None:
        given = tuple(value.clone() if isinstance(value, torch.Tensor) else value for value in changed)
        try:
            outputs = [tensor for _, tensor in problem.expected(given, case)]
        except ProblemFault:
            return None
        return [*outputs, *(given[at] for at in right.mutated)]

    return Material(_tensors(right), _tensors(other), arguments, parameters, reference)


def mutate(
    name: str, given: Material, right: Expected, dtypes: Sequence[str], changed: Sequence[torch.dtype]
) -> Answer:
    """{"applies": True, "names", "tensors", "changed", "size"} and a memfd; {"applies": False} where the mutant is none.

    `dtypes` are those of the outputs, `changed` those of the arguments that are changed in place. Raises KeyError for a
    mutant that there is not.
    """
    if name != HIDES_NAN and not all(bool(tensor.isfinite().all()) for tensor in given.right):
        return _NONE  # masks of NaN and Inf would reject what values do not
    if not given.right:
        return _NONE
    made = mutants(given.names)[name](given)
    left_out = name.endswith(" left out")
    if made is None or (right.mutated and not left_out and name not in KEEPS_SHAPE):
        return _NONE
    wanted = [*map(dtype_named, dtypes), *changed]
    expected = [tensor.to(dtype) for tensor, dtype in zip(given.right, wanted, strict=True)]
    if name == "wrong dtype":
        wanted = list(map(_another, wanted))
    wanted += wanted[:1] * max(0, len(made) - len(wanted))
    tensors = [tensor.detach().to(dtype).contiguous() for tensor, dtype in zip(made, wanted, strict=False)]
    if len(tensors) == len(expected) and all(map(identical, tensors, expected)):
        return _NONE
    return _handed_over(right, tensors)


def _handed_over(right: Expected, tensors: list[torch.Tensor]) -> Answer:
    descriptions, memory, size = pack(tensors)
    outputs = len(tensors) - len(right.mutated)
    names = [*(name for name, _ in right.outputs), *map(str, range(len(right.outputs), outputs))][:outputs]
    changed = [{"input": at, "tensor": one} for at, one in zip(right.mutated, descriptions[outputs:], strict=True)]
    answer = {"applies": True, "names": names, "tensors": descriptions[:outputs], "changed": changed, "size": size}
    return answer, [memory]


def _tensors(expected: Expected) -> list[torch.Tensor]:
    return [*(tensor for _, tensor in expected.outputs), *expected.mutated.values()]


def _another(dtype: torch.dtype) -> torch.dtype:
    """The dtype that a careless kernel would return instead."""
    if not dtype.is_floating_point:
        return torch.int64 if dtype != torch.int64 else torch.int32
    return torch.float32 if dtype != torch.float32 else torch.float64


def identical(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal in shape, dtype and every element, NaN where there is NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(one.isnan(), other.isnan()) and torch.equal(one.nan_to_num(), other.nan_to_num()))
