"""What a call asks of torch itself, seen at run time: the static look cannot follow `getattr` and its like.

Only computations on data count, not arithmetic on shapes and indices, nor what happens inside a launch. Single numbers of a
tensor (a scale, an epsilon) are no data, unless a call goes through many of them.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kbtui.evaluate.inlane.compute import computed
from kbtui.evaluate.inlane.modes import DispatchMode

MOST = 32
MANY = 64
"""Single numbers of tensors that a call may read or compute with; whoever does so with more computes element by element."""
ELEMENTS = "Python, element by element,"
_READ = "aten::_local_scalar_dense"
"""What `float(x[i])` and `x[i].item()` come to."""
_OUT_OF_TORCH = {"numpy": "Tensor.numpy", "tolist": "Tensor.tolist", "__array__": "Tensor.__array__"}
"""Ways to take data to where a torch mode does not see what is done with it."""


class _Operators(DispatchMode):
    def __init__(self, note: Callable[[str], None], note_single: Callable[[], None]) -> None:
        super().__init__()
        self._note, self._note_single = note, note_single

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = func._schema.name
        name = computed(operator)
        if name or operator == _READ:
            values = list(_flat((*args, *kwargs.values())))
            if name and any(map(_is_data, values)):
                self._note(f"torch.{name}")
            elif any(map(_is_one_number, values)):
                self._note_single()
        return func(*args, **kwargs)


class _Methods(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = _OUT_OF_TORCH.get(getattr(func, "__name__", ""))
        if name is not None and args and _is_data(args[0]):
            self._note(name)
        return func(*args, **(kwargs or {}))


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _is_data(value: Any) -> bool:
    """A tensor of more than one number that is no index."""
    return isinstance(value, torch.Tensor) and value.numel() > 1 and _is_no_index(value)


def _is_one_number(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and _is_no_index(value)


def _is_no_index(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex() or tensor.dtype in (torch.int8, torch.uint8)


@contextlib.contextmanager
def watched(inside: Callable[[], bool]) -> Iterator[dict[str, None]]:
    """Names of what torch computes within the block, in this thread and in threads that it starts; at most `MOST`.

    `inside()` says whether a launch is under way, whose doings are the kernel's.
    """
    found: dict[str, None] = {}
    singles = 0  # of all threads together

    def note(name: str) -> None:
        if len(found) < MOST and not inside():
            found[name] = None

    def note_single() -> None:
        nonlocal singles
        if not inside():
            singles += 1
        if singles > MANY:
            note(ELEMENTS)

    def enter_thread(frame: Any, event: str, argument: Any) -> None:
        # runs once, in the thread that starts; modes hold for one thread
        del frame, event, argument
        sys.setprofile(None)
        _Operators(note, note_single).__enter__()
        _Methods(note).__enter__()

    threading.setprofile(enter_thread)
    try:
        with _Operators(note, note_single), _Methods(note):
            yield found
    finally:
        threading.setprofile(None)
