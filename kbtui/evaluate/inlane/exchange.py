"""How inputs leave the oracle and outputs reach it: in a sealed memfd, or on a GPU in buffers of the oracle's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kbtui.evaluate.inlane import cuda_ipc
from kbtui.evaluate.inlane.faults import one_line
from kbtui.evaluate.inlane.tensors import describe, describe_value, map_tensors, pack

SMALL = 1 << 20
"""Bytes up to which tensors of a device go through the host: a memfd of a megabyte is as fast as opening a handle."""
RESERVED = 1 << 30
"""Bytes of device memory that may stay with torch's allocator between two comparisons; candidates need it too."""
REHEARSED = 1 << 16
"""Numbers in the tensor that shows at the start whether handles work here."""


class Exchange:
    """The oracle's end of it. `device` is where its tensors are: "cpu" or "cuda:N"."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._outgoing = cuda_ipc.SharedBuffer(device)
        self._room = cuda_ipc.SharedBuffer(device)

    def hand_out(self, arguments: Sequence[Any]) -> tuple[dict[str, Any], list[int]]:
        """Arguments as a candidate gets them: those without memory described as "empty", the others in a memfd."""
        tensors = [value for value in arguments if _has_memory(value)]
        descriptions, memory, size = pack(tensors)
        return {"arguments": _listed(arguments, descriptions), "size": size}, [memory]

    def lend(self, arguments: Sequence[Any], small: int = SMALL) -> tuple[dict[str, Any], list[int]]:
        """Arguments in a buffer on the device, which holds them until the next are asked for; up to `small` bytes in a memfd."""
        tensors = [value for value in arguments if _has_memory(value)]
        descriptions, size = cuda_ipc.laid_out(tensors)
        if size <= small:
            return self.hand_out(arguments)
        memory, handle = self._outgoing.at_least(size)
        cuda_ipc.write(tensors, descriptions, memory)
        torch.cuda.synchronize(self._device)
        return {"arguments": _listed(arguments, descriptions), "size": size, "memory": handle}, []

    def rehearse(self) -> tuple[dict[str, Any], list[int]]:
        """0, 1, 2, ... by way of the device, for whoever tries whether that works; {"refused": why} where it does not."""
        try:
            return self.lend((torch.arange(REHEARSED, dtype=torch.int32, device=self._device),), small=0)
        except RuntimeError as error:
            return {"refused": one_line(error)}, []

    def room(self, size: int) -> dict[str, Any] | None:
        """The handle of a buffer for a candidate's outputs; None where the device has no room for one."""
        try:
            return self._room.at_least(size)[1]
        except torch.OutOfMemoryError:
            return None

    def received(
        self, descriptions: Sequence[dict[str, Any]], descriptors: Sequence[int], size: int
    ) -> list[torch.Tensor]:
        """A candidate's tensors in memory that nobody else can write to: from the memfd, or where none came from the room.

        Raises SealError, NotPortable or ValueError.
        """
        if descriptors:
            return map_tensors(descriptions, descriptors[0], size)
        return cuda_ipc.read(descriptions, self._room.memory[:size], self._device)

    def give_back(self) -> None:
        """Leave what is not used of the device's memory to the candidates."""
        if self._device == "cpu":
            return
        if torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device) > RESERVED:
            torch.cuda.empty_cache()


def described(value: Any) -> dict[str, Any]:
    """An argument without its values."""
    return {"empty": describe(value)} if isinstance(value, torch.Tensor) else describe_value(value)


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type != "meta"


def _listed(arguments: Sequence[Any], descriptions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    listed = iter(descriptions)
    return [{"tensor": next(listed)} if _has_memory(value) else described(value) for value in arguments]
