"""Runs code written for one CUDA device on another one, under a seed of ours.

Suites write `device="cuda"`, `.cuda()` and `torch.manual_seed(0)`, or make large tensors on the CPU and move them. Within
`elsewhere` all of it lands on the given device ("meta": shapes without values), and seeding has no effect.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

_MOVES = ("cuda", "cpu", "pin_memory")
_SEEDS = ((torch, "manual_seed"), (torch, "seed"), (torch.random, "manual_seed"), (torch.random, "seed"))
_CUDA_SEEDS = ("manual_seed", "manual_seed_all", "seed", "seed_all")
_STRUCTURE = 20
"""Seed of Python's and numpy's draws: they decide lengths and counts, which must not differ between two draws of values."""


class TooLong(BaseException):
    """More calls of torch than allowed; the code around it may not catch this by `except Exception`."""


@contextlib.contextmanager
def elsewhere(device: str, seed: int, most_calls: int = 0) -> Iterator[None]:
    """Within the block every new tensor is on `device`, and torch's draws follow from `seed` alone.

    Raises TooLong after `most_calls` calls of torch, unless that is 0: loops over single elements take for ever.
    """
    devices = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(devices=devices), _structure():
        torch.manual_seed(seed)
        with _seeding_ignored(), _Elsewhere(device, most_calls):
            yield


class _Elsewhere(TorchFunctionMode):  # type: ignore[misc]  # torch's types are not followed
    def __init__(self, device: str, most_calls: int) -> None:
        super().__init__()
        self._device = device
        self._most_calls, self._calls = most_calls, 0
        self._factories = _device_constructors()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        self._calls += 1
        if self._calls == self._most_calls:
            raise TooLong
        name = getattr(func, "__name__", "")
        if name in _MOVES and getattr(torch.Tensor, name, None) is func:
            return args[0].to(self._device)
        if func in self._factories or kwargs.get("device") is not None:
            kwargs["device"] = self._device
        if kwargs.get("generator") is not None:
            kwargs["generator"] = None  # seeded by the suite: the draws are ours
        if name == "to" or func in self._factories:
            args = tuple(self._device if _is_place(value) else value for value in args)
        return func(*args, **kwargs)


def _is_place(value: Any) -> bool:
    if isinstance(value, torch.device):
        return True
    return isinstance(value, str) and value.split(":")[0] in ("cuda", "cpu")


@contextlib.contextmanager
def _seeding_ignored() -> Iterator[None]:
    places = [*_SEEDS, *((torch.cuda, name) for name in _CUDA_SEEDS)]
    saved = [(place, name, getattr(place, name)) for place, name in places]
    for place, name, _ in saved:
        setattr(place, name, lambda *_: torch.default_generator)
    try:
        yield
    finally:
        for place, name, original in saved:
            setattr(place, name, original)


@contextlib.contextmanager
def _structure() -> Iterator[None]:
    import numpy as np

    python, numpy = random.getstate(), np.random.get_state()
    random.seed(_STRUCTURE)
    np.random.seed(_STRUCTURE)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
