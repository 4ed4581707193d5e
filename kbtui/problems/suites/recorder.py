"""Stands in for a function that a suite calls: keeps the arguments of its calls and computes nothing."""

from __future__ import annotations

import dis
import inspect
import numbers
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch


class Unusable(Exception):
    """The arguments of a call are nothing a lane can be given; the sentence says why."""


class Enough(BaseException):
    """The wanted call was made: the code around it need not go on, and may not catch this by `except Exception`."""


class Nothing:
    """In place of a result. Takes part in everything and gives itself, so that the code around it goes on to its next call."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return Nothing()

    def __getitem__(self, _: Any) -> Nothing:
        return Nothing()

    def __iter__(self) -> Iterator[Nothing]:
        return iter([Nothing() for _ in range(_unpacked(sys._getframe(1)))])

    def __bool__(self) -> bool:
        return True

    def _absorb(self, *_: Any) -> Nothing:
        return Nothing()

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _absorb
    __matmul__ = __rmatmul__ = __pow__ = __neg__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = _absorb

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Nothing:
        return cls()


def _unpacked(frame: FrameType) -> int:
    """Into how many names the frame takes a result apart at this moment (`a, b, c = result`); 1 when it does something else."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return code[at + 1] if code[at] == dis.opmap["UNPACK_SEQUENCE"] else 1


class Recorder:
    """Called in place of `function`, or of the `apply` of a class. `on_call(number, arguments)` gets each call's positional
    arguments; it may raise `Enough`. What cannot be given to a lane is passed as the `Unusable` that says so."""

    def __init__(self, function: Callable[..., Any], on_call: Callable[[int, Any], None]) -> None:
        self._signature = _signature(function)
        self._on_call = on_call
        self.calls = 0
        self.most: int | None = None
        """Calls from this number on are passed over."""

    def __call__(self, *args: Any, **kwargs: Any) -> Nothing:
        number, self.calls = self.calls, self.calls + 1
        if self.most is not None and number >= self.most:
            return Nothing()
        try:
            found: Any = tuple(map(portable, self._positional(args, kwargs)))
        except Unusable as reason:
            found = reason
        self._on_call(number, found)
        return Nothing()

    @property
    def apply(self) -> Recorder:
        return self

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if not kwargs:
            return args
        if self._signature is None:
            raise Unusable(f"it is called with {next(iter(kwargs))}= by name, which an autograd function does not take")
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Unusable(f"it is called with other arguments than it takes ({error})") from None
        given = set(bound.arguments)
        bound.apply_defaults()
        values: list[Any] = []
        last = 0
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                values += bound.arguments[name]
                last = len(values)
            elif parameter.kind is parameter.VAR_KEYWORD:
                if name in given:
                    raise Unusable(f"its argument {name} can only be given by name")
            else:
                values.append(bound.arguments[name])
                last = len(values) if name in given else last
        return tuple(values[:last])  # a default that nobody gave stays the function's own


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def portable(value: Any) -> Any:
    """The value as it is handed to a lane. Raises Unusable."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided or value.is_quantized:
            raise Unusable(f"an argument is a tensor of layout {value.layout}")
        return value.detach()
    if isinstance(value, Nothing):
        raise Unusable("an argument is the result of an earlier call")
    if value is None or isinstance(value, bool | str | torch.dtype):
        return value
    if isinstance(value, numbers.Number) and not isinstance(value, complex):
        return int(value) if isinstance(value, numbers.Integral) else float(value)  # type: ignore[arg-type]
    if isinstance(value, tuple | list) and not any(isinstance(one, torch.Tensor) for one in value):
        return [portable(one) for one in value] if isinstance(value, list) else tuple(map(portable, value))
    if isinstance(value, tuple | list):
        raise Unusable("an argument is a list of tensors")
    raise Unusable(f"an argument is a {type(value).__name__}")
