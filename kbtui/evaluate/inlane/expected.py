"""What the reference gives for a case: in float64 where it can, else in the inputs' own precision; and what it writes into."""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kbtui.evaluate.inlane import gold
from kbtui.evaluate.inlane.compare import floor_for
from kbtui.evaluate.inlane.mutate import identical
from kbtui.evaluate.inlane.problem_module import Problem, ProblemFault
from kbtui.evaluate.inlane.tensors import span_of
from kbtui.problems.format import Case

KEPT_BYTES = 1 << 29
"""Expected outputs that are kept for the next candidate, in bytes; at least one case's are."""
MOST_PARAMETERS = 256
Called = tuple[list[tuple[str, torch.Tensor]], dict[int, torch.Tensor]]


@dataclass
class Expected:
    """The oracle's outputs of one case: float64 where the reference can, and the arguments it mutated, by position."""

    outputs: list[tuple[str, torch.Tensor]]
    mutated: dict[int, torch.Tensor]
    own_dtype: bool
    """The reference did not compute in float64 and was called in the inputs' own dtypes."""
    spread: list[float] = field(default_factory=list)
    """How far further runs of a reference that is a kernel were off, by output and then by mutated argument."""
    coarsest: float = 0.0
    """The floor of the coarsest floating input of such a reference: what it computes in."""
    narrowed: bool = False
    """The reference was given float64 and gave something narrower back: `.float()` on the way, say."""
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nbytes = sum(tensor.numel() * tensor.element_size() for tensor in self.tensors)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Outputs, then mutated arguments."""
        return [*(tensor for _, tensor in self.outputs), *self.mutated.values()]


class Expectations:
    """Computes what is expected, and keeps the last of it. `mutable` are the positions of the arguments that may be written."""

    def __init__(self, problem: Problem, device: str) -> None:
        self._problem, self._device = problem, device
        self._kept: OrderedDict[str, Expected] = OrderedDict()
        self.parameters = tuple(inspect.signature(problem.reference).parameters)
        # A kernel writes where it likes, and what it writes shows when it runs: any argument may be an output.
        any_position = set(range(MOST_PARAMETERS))
        declared = {self.parameters.index(name) for name in problem.mutates}
        self.mutable = any_position if problem.own_precision else declared

    def of(self, key: dict[str, Any], arguments: Callable[[dict[str, Any]], tuple[Any, ...]]) -> Expected:
        """What is expected of a case, whose arguments `arguments(key)` makes. Raises ProblemFault."""
        name = json.dumps(key, sort_keys=True)
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        found = self._kept[name] = self._computed(Case(**key["fields"]), arguments(key))
        while len(self._kept) > 1 and sum(one.nbytes for one in self._kept.values()) > KEPT_BYTES:
            self._kept.popitem(last=False)
        return found

    def floor(self, dtype: torch.dtype) -> float:
        """The least error that is allowed of an output of that dtype."""
        return floor_for(dtype, self._problem.precision, self._problem.tolerance)

    def _computed(self, case: Case, arguments: tuple[Any, ...]) -> Expected:
        if self._problem.own_precision:
            return self._of_a_kernel(case, arguments)
        try:
            outputs, mutated = self._called(tuple(widened(value) for value in arguments), case)
        except ProblemFault:
            return Expected(*self._called(arguments, case), own_dtype=True)
        return Expected(outputs, mutated, own_dtype=False, narrowed=_narrowed(arguments, outputs))

    def _called(self, arguments: tuple[Any, ...], case: Case) -> Called:
        """The reference's outputs, and the arguments that it wrote to, by position."""
        before = {
            at: value.clone()
            for at, value in enumerate(arguments)
            if at in self.mutable and isinstance(value, torch.Tensor)
        }
        outputs = self._problem.expected(arguments, case)
        mutated = {at: arguments[at] for at, old in before.items() if not identical(old, arguments[at])}
        return [(name, tensor.detach()) for name, tensor in outputs], mutated

    def _of_a_kernel(self, case: Case, arguments: tuple[Any, ...]) -> Expected:
        """On copies of its inputs, and run again to see whether it agrees with itself."""

        def run() -> Expected:
            outputs, mutated = self._called(tuple(_copied(value) for value in arguments), case)
            # an output may be a view of an argument
            return Expected([(name, tensor.clone()) for name, tensor in outputs], mutated, own_dtype=True)

        found = run()
        found.spread = gold.spread(found.tensors, lambda: run().tensors, self._device)
        floating = (value.dtype for value in arguments if isinstance(value, torch.Tensor) and value.is_floating_point())
        found.coarsest = max(map(self.floor, floating), default=0.0)
        return found


def _narrowed(arguments: tuple[Any, ...], outputs: list[tuple[str, torch.Tensor]]) -> bool:
    """Whether floating outputs of float64 inputs are narrower than that. A cast there and back inside is not seen."""
    floating = any(isinstance(value, torch.Tensor) and value.is_floating_point() for value in arguments)
    return floating and any(
        tensor.is_floating_point() and tensor.dtype.itemsize < torch.float64.itemsize for _, tensor in outputs
    )


def widened(value: Any) -> Any:
    """Floating tensors in float64, in storage of their own; other tensors copied; scalars as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(torch.float64, copy=True) if value.is_floating_point() else value.clone()


def _copied(value: Any) -> Any:
    """A tensor of the same strides in storage of its own; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    span = span_of(value.shape, value.stride())
    flat = torch.as_strided(value, (span,), (1,), value.storage_offset()).clone()
    return torch.as_strided(flat, value.shape, value.stride())
