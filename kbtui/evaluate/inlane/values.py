"""Awkward values for inputs: what `make_inputs` gave, changed the same way every time for one generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Change = Callable[[torch.Tensor, torch.Generator], torch.Tensor]


def vary_values(arguments: Sequence[Any], variant: str, generator: torch.Generator) -> tuple[Any, ...]:
    """The arguments with every floating tensor changed by `variant` ("" changes nothing). Raises KeyError for an unknown one."""
    if not variant:
        return tuple(arguments)
    change = _CHANGES[variant]
    return tuple(
        change(value, generator)
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel()
        else value
        for value in arguments
    )


def _wide(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows of very different magnitude: 1e-4 to 1e4, 1e-2 to 1e2 in fp16, which has no room for more."""
    decades = 2.0 if tensor.dtype == torch.float16 else 4.0
    shape = (*tensor.shape[:-1], 1) if tensor.dim() > 1 else tensor.shape
    exponent = (torch.rand(shape, generator=generator, device=generator.device) * 2 - 1) * decades
    return (tensor * (10.0**exponent).to(tensor.device)).to(tensor.dtype)


def _special(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A NaN, an Inf and a negative Inf, each alone in a row where there are rows; the other rows stay as they are."""
    del generator
    changed = tensor.clone()
    rows = changed.reshape(-1, changed.shape[-1]) if changed.dim() else changed.reshape(1, 1)
    for row, (column, value) in enumerate(((-1, float("nan")), (0, float("inf")), (rows.shape[1] // 2, -float("inf")))):
        if row < rows.shape[0]:
            rows[row, column] = value
    return rows.reshape(tensor.shape)


def _ties(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Few distinct values, zeros of both signs among them."""
    del generator
    return torch.round(tensor)


def _tiny(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows in turn as they are, around the smallest normal number (with denormals below it), and all zero."""
    del generator
    factors = torch.tensor([1.0, torch.finfo(tensor.dtype).tiny, 0.0], dtype=torch.float64)
    shape = (-1, *([1] * (tensor.dim() - 1)))
    count = tensor.shape[0] if tensor.dim() else 1
    chosen = factors[torch.arange(count) % 3].reshape(shape if tensor.dim() else ())
    return (tensor.double() * chosen.to(tensor.device)).to(tensor.dtype)


def _strided(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The same values in a storage with an offset and padded rows."""
    del generator
    if tensor.dim() == 0:
        return tensor
    padded = torch.full(
        (*tensor.shape[:-1], tensor.shape[-1] + 24), float("nan"), dtype=tensor.dtype, device=tensor.device
    )
    view = padded[..., 16 : 16 + tensor.shape[-1]]
    return view.copy_(tensor)


_CHANGES: dict[str, Change] = {"wide": _wide, "special": _special, "ties": _ties, "tiny": _tiny, "strided": _strided}
