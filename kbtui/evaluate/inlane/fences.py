"""Memory around what a wrapper allocates, to see on a device whether a kernel writes outside of it.

Nothing on a device checks addresses. A store beyond the end of a tensor mostly hits memory of the same process, where it
changes nothing that anybody compares, and ruins somebody else's numbers in production.
"""

from __future__ import annotations

from typing import Any

import torch

from kbtui.evaluate.inlane.modes import DispatchMode
from kbtui.evaluate.inlane.tensors import span_of

BEFORE, AFTER = 1 << 16, 1 << 21
"""Bytes of a fence: a block of a vector, some rows of a tile. What is written further off is not seen."""
MARK = 0xA5
MOST_BYTES, MOST = 1 << 29, 64
"""Of a call so many bytes and tensors get fences: they are kept until it is over, and an autotuner allocates by the dozen."""
_ALLOCATES = (
    "empty",
    "empty_strided",
    "empty_like",
    "new_empty",
    "new_empty_strided",
    "zeros",
    "zeros_like",
    "new_zeros",
    "ones",
    "ones_like",
    "new_ones",
    "full",
    "full_like",
    "new_full",
)


class Fences(DispatchMode):
    """Within it tensors on `device` ("cpu" or "cuda:N") that are allocated lie between two fences."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._type = torch.device(device).type
        self._fenced: list[tuple[torch.Tensor, int, tuple[int, ...]]] = []
        self._bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func._schema.name.removeprefix("aten::") not in _ALLOCATES:
            return made
        if type(made) is not torch.Tensor or made.device.type != self._type or made.layout != torch.strided:
            return made
        return self._fence(made)

    def _fence(self, plain: torch.Tensor) -> torch.Tensor:
        """The same values and strides elsewhere; the tensor itself if it is empty, large, pinned, or its strides leave gaps."""
        size = plain.numel() * plain.element_size()
        if not 0 < size <= MOST_BYTES - self._bytes or len(self._fenced) >= MOST:
            return plain
        if self._type == "cpu" and plain.is_pinned():
            return plain
        if span_of(plain.shape, plain.stride()) != plain.numel():
            return plain
        memory = torch.empty(BEFORE + size + AFTER, dtype=torch.uint8, device=plain.device)
        memory[:BEFORE].fill_(MARK)
        memory[BEFORE + size :].fill_(MARK)
        inside = memory[BEFORE : BEFORE + size].view(plain.dtype)
        tensor = torch.as_strided(inside, plain.shape, plain.stride(), inside.storage_offset())
        tensor.copy_(plain)
        self._fenced.append((memory, size, tuple(plain.shape)))
        self._bytes += size
        return tensor

    def trouble(self) -> str:
        """What was written outside of a tensor, "" if nothing was seen; lets go of the fences. Synchronises."""
        fenced, self._fenced, self._bytes = self._fenced, [], 0
        for memory, size, shape in fenced:
            where = _damaged(memory, size)
            if where:
                return f"it writes {where} a tensor of shape ({', '.join(map(str, shape))}) that it allocated"
        return ""


def _damaged(memory: torch.Tensor, size: int) -> str:
    after = (memory[BEFORE + size :] != MARK).nonzero()
    if after.numel():
        return f"up to {int(after[-1]) + 1} bytes past the end of"
    before = (memory[:BEFORE] != MARK).nonzero()
    return f"up to {BEFORE - int(before[0])} bytes before" if before.numel() else ""
