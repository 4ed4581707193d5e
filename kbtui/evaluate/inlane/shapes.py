"""Inputs without the cost of filling them: for what needs dtypes, shapes and strides only."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch

from kbtui.evaluate.inlane.modes import DispatchMode

_DYNAMO = "torch._dynamo"


class ShapesOnly(DispatchMode):
    """Within it new tensors of more than `most_real` elements are on the meta device: they have a shape, a dtype and strides,
    and no values. What is made of such a tensor is there too."""

    def __init__(self, most_real: int) -> None:
        super().__init__()
        self._most_real = most_real

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if any(_is_meta(value) for value in args):
            # what is made of something without values has none: small tensors beside it lose theirs
            args = tuple(_without_values(value) for value in args)
        if any(argument.name == "device" for argument in func._schema.arguments):
            device = self._device(args)
            if device is not None:
                kwargs["device"] = device
                kwargs.update({"generator": None} if kwargs.get("generator") is not None else {})
        with _without_dynamo():
            return func(*args, **kwargs)

    def _device(self, args: Sequence[Any]) -> torch.device | None:
        """Where the result goes: to its source's place if that has no values; None leaves it to the caller."""
        meta = torch.device("meta")
        source = next((value for value in args if isinstance(value, torch.Tensor)), None)
        if source is not None:
            return meta if source.device == meta else None
        sizes = next((value for value in args if isinstance(value, list | tuple)), ())
        return None if self._most_real and math.prod(sizes) <= self._most_real else meta


@contextlib.contextmanager
def _without_dynamo() -> Iterator[None]:
    """Within it an operator on the meta device that torch wrote in Python does not import the whole of dynamo, which takes
    seconds of a lane's start, only to keep dynamo out of itself."""
    if _DYNAMO in sys.modules:
        yield
        return
    stand_in = ModuleType(_DYNAMO)
    stand_in.disable = lambda function, *_, **__: function  # type: ignore[attr-defined]
    sys.modules[_DYNAMO] = torch._dynamo = stand_in
    try:
        yield
    finally:
        del sys.modules[_DYNAMO], torch._dynamo


def _is_meta(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == "meta"


def _without_values(value: Any) -> Any:
    return torch.empty_like(value, device="meta") if isinstance(value, torch.Tensor) and value.dim() else value
