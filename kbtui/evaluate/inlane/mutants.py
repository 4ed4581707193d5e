"""Wrong outputs that an oracle has to reject: what honest slips and shortcuts of a kernel come to, made from right outputs.

Each mutant is a function from `Material` to tensors in the expected outputs' place, or None where it does not apply. One
that gives the right outputs on a case is none there: the caller looks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

HIDES_NAN = "NaN and Inf hidden"
BLOCK = 16
"""Elements of the boundary block that one mutant leaves out."""


@dataclass(frozen=True)
class Material:
    """What mutants are made from: `right` are the expected outputs, `other` those of other random values, both wide;
    `reference` gives the outputs for other arguments, None where it cannot."""

    right: list[torch.Tensor]
    other: list[torch.Tensor]
    arguments: tuple[Any, ...]
    names: tuple[str, ...]
    reference: Callable[[tuple[Any, ...]], list[torch.Tensor] | None]


Made = list[torch.Tensor] | None
Mutant = Callable[[Material], Made]


def _each(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Mutant:
    """The mutant that changes every output on its own; it does not apply where it does to none of them."""

    def mutant(material: Material) -> Made:
        changed = [change(tensor.clone()) for tensor in material.right]
        if all(tensor is None for tensor in changed):
            return None
        return [right if one is None else one for one, right in zip(changed, material.right, strict=True)]

    return mutant


def _floating(change: Callable[[torch.Tensor], torch.Tensor | None]) -> Callable[[torch.Tensor], torch.Tensor | None]:
    return lambda tensor: change(tensor) if tensor.is_floating_point() and tensor.numel() else None


def _constant(tensor: torch.Tensor) -> torch.Tensor:
    finite = tensor[tensor.isfinite()] if tensor.is_floating_point() else tensor
    return torch.full_like(tensor, finite.double().mean().item() if finite.numel() else 0)


def _tail(tensor: torch.Tensor) -> torch.Tensor | None:
    flat = tensor.reshape(-1)
    if not flat.numel():
        return None
    if tensor.is_floating_point():
        flat[-1] = float("nan")
    else:
        flat[-1] = ~flat[-1]  # of integers the bits; what lies in memory by chance is another number, too
    return flat.reshape(tensor.shape)


def _block(tensor: torch.Tensor) -> torch.Tensor | None:
    flat = tensor.reshape(-1)
    flat[-BLOCK:] = 0
    return flat.reshape(tensor.shape)


def _smallest_row(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.dim() < 2 or not tensor.numel():
        return None
    rows = tensor.reshape(-1, tensor.shape[-1])
    weight = rows.double().nan_to_num().abs().sum(dim=1)
    weight[weight == 0] = float("inf")
    rows[int(weight.argmin())] = 0
    return rows.reshape(tensor.shape)


def _shifted(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor.roll(1, dims=-1) if tensor.dim() and tensor.shape[-1] > 1 else None


def _truncated(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor[..., :-1].contiguous() if tensor.dim() and tensor.shape[-1] > 1 else None


def _broadcastable(tensor: torch.Tensor) -> torch.Tensor | None:
    return tensor[:1].contiguous() if tensor.dim() and tensor.shape[0] > 1 else None


def _copy(material: Material) -> Made:
    tensors = [value for value in material.arguments if isinstance(value, torch.Tensor)]
    found = [next((one for one in tensors if one.shape == right.shape), None) for right in material.right]
    if any(one is None for one in found):
        return None
    return [one.to(right.dtype) for one, right in zip(found, material.right, strict=True) if one is not None]


def _nothing(material: Material) -> Made:
    return material.right[:0]


def _stale(material: Material) -> Made:
    return material.other


def _accumulated(material: Material) -> Made:
    return [right + other for right, other in zip(material.right, material.other, strict=True)]


def _padded(material: Material) -> Made:
    """Rows filled up with zeros that count: `other=0` where the neutral element is another."""
    lengths = {value.shape[-1] for value in material.arguments if isinstance(value, torch.Tensor) and value.dim()}
    wide = max(lengths, default=0)
    padded = tuple(
        torch.nn.functional.pad(value, (0, 5))
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[-1] == wide
        else value
        for value in material.arguments
    )
    found = material.reference(padded)
    if found is None or len(found) != len(material.right):
        return None
    cut = [one[..., : right.shape[-1]] if one.dim() else one for one, right in zip(found, material.right, strict=True)]
    fits = all(one.shape == right.shape for one, right in zip(cut, material.right, strict=True))
    return [one.contiguous() for one in cut] if fits else None


def _without(at: int) -> Mutant:
    """An argument left out: ones for tensors of numbers (a scale), 0 for scalars, the opposite for flags."""

    def mutant(material: Material) -> Made:
        if at >= len(material.arguments):
            return None  # it is left to its default
        value = material.arguments[at]
        left_out: Any
        if isinstance(value, torch.Tensor):
            left_out = torch.ones_like(value) if value.is_floating_point() else torch.zeros_like(value)
        elif isinstance(value, bool):
            left_out = not value
        elif isinstance(value, int | float):
            left_out = type(value)(0)
        else:
            return None
        return material.reference((*material.arguments[:at], left_out, *material.arguments[at + 1 :]))

    return mutant


_FIXED: dict[str, Mutant] = {
    "zeros": _each(torch.zeros_like),
    "a constant": _each(_constant),
    "a copy of an input": _copy,
    "truncated output": _each(_truncated),
    "broadcastable shape": _each(_broadcastable),
    "wrong dtype": _each(lambda tensor: tensor),
    "one output too many": lambda material: [*material.right, material.right[0]],
    "no output": _nothing,
    "tail not written": _each(_tail),
    "one boundary block wrong": _each(_block),
    "the smallest row left out": _each(_smallest_row),
    "shifted by one": _each(_shifted),
    "sign lost": _each(_floating(lambda tensor: tensor.abs() if bool((tensor < 0).any()) else -tensor)),
    HIDES_NAN: _each(_floating(lambda tensor: tensor.nan_to_num(0.0, 0.0, 0.0))),
    "off by a thirtieth": _each(_floating(lambda tensor: tensor * (1 + 1 / 30))),
    "output of other values": _stale,
    "stale accumulator": _accumulated,
    "padding counted": _padded,
}
KEEPS_SHAPE = frozenset(_FIXED) - {
    "truncated output",
    "broadcastable shape",
    "wrong dtype",
    "one output too many",
    "no output",
}
"""Mutants that also apply to arguments that are changed in place."""


def mutants(names: Sequence[str]) -> dict[str, Mutant]:
    """All mutants of a reference with these parameters, by what they stand for."""
    return {**_FIXED, **{f"{name} left out": _without(at) for at, name in enumerate(names)}}
