"""Device memory that the oracle owns and candidate processes reach by a CUDA IPC handle, without a way through the host.

Only the oracle shares, and it never opens a handle: what a candidate sends is never given to the driver. Inputs are
packed into one buffer, outputs are written by the candidate into another; both sides copy and neither computes on shared
memory, since the other one can write to it at any time. Handles are bytes and travel as base64 in JSON; nothing is
pickled.

The owner keeps a buffer until a larger one takes its place, so that nobody has to say when it is done: a candidate
copies before it says anything else, and one that was killed says nothing.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from kbtui.evaluate.inlane.tensors import ALIGNMENT, assembled, check_description, describe, dtype_named, nbytes

SMALLEST = 1 << 21
"""Bytes of the smallest buffer: torch's allocator puts what is smaller beside other tensors, into memory of their own."""
_TEXTS = ("handle", "counter", "event")
_NUMBERS = ("size", "storage_offset", "counter_offset")


class BadHandle(Exception):
    """A message does not describe shared memory, or the driver does not accept its handle."""


class SharedBuffer:
    """One allocation on `device` that other processes can open, made anew when more is needed."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._memory: torch.Tensor | None = None
        self._handle: dict[str, Any] = {}

    def at_least(self, size: int) -> tuple[torch.Tensor, dict[str, Any]]:
        """The buffer's bytes, `size` or more of them, and its handle as JSON. Raises torch.OutOfMemoryError."""
        if self._memory is None or self._memory.numel() < size:
            self._memory = None  # first, so that the device need not hold both
            self._memory = torch.empty(rounded(size), dtype=torch.uint8, device=self._device)
            self._handle = _share(self._memory)
        return self._memory, self._handle

    @property
    def memory(self) -> torch.Tensor:
        """The bytes. RuntimeError before the first `at_least`."""
        if self._memory is None:
            raise RuntimeError("nothing was shared yet")
        return self._memory


def rounded(size: int) -> int:
    """The power of two that a buffer of `size` bytes is made with: few buffers are ever made."""
    return max(SMALLEST, 1 << max(0, size - 1).bit_length())


def _share(memory: torch.Tensor) -> dict[str, Any]:
    storage = memory.untyped_storage()
    torch.cuda.synchronize(memory.device)
    device, handle, size, offset, counter, counter_offset, event, event_sync = storage._share_cuda_()
    # Torch would keep the memory until a receiver has counted down. Its owner outlives them all, or they are dead.
    torch.UntypedStorage._release_ipc_counter(counter, counter_offset, device=device)
    return {
        "handle": _text(handle),
        "size": int(size),
        "storage_offset": int(offset),
        "counter": _text(counter),
        "counter_offset": int(counter_offset),
        "event": _text(event),
        "event_sync": bool(event_sync),
    }


@contextlib.contextmanager
def opened(handle: Any, device: str) -> Iterator[torch.Tensor]:
    """The bytes behind a handle, while the block lasts; nothing of the owner's memory is left open afterwards.

    Raises BadHandle.
    """
    ipc = checked(handle)
    place = torch.device(device)
    torch.cuda.set_device(place)  # a process without a context yet would end with a segmentation fault
    try:
        storage = torch.UntypedStorage._new_shared_cuda(
            place.index or 0,
            ipc["handle"],
            ipc["size"],
            ipc["storage_offset"],
            ipc["counter"],
            ipc["counter_offset"],
            ipc["event"],
            ipc["event_sync"],
        )
    except RuntimeError as error:
        raise BadHandle(f"the driver does not open the memory: {error}") from error
    memory = torch.empty(0, dtype=torch.uint8, device=place).set_(storage, 0, (ipc["size"],), (1,))
    del storage
    try:
        yield memory
        torch.cuda.synchronize(place)
    finally:
        memory.set_()  # lets go of the storage whoever still holds the tensor


def checked(handle: Any) -> dict[str, Any]:
    """The arguments of the driver's call, from a handle as JSON. Raises BadHandle for anything else."""
    if not isinstance(handle, dict) or set(handle) != {*_TEXTS, *_NUMBERS, "event_sync"}:
        raise BadHandle("shared memory came without its handle")
    if type(handle["event_sync"]) is not bool:
        raise BadHandle("event_sync of shared memory is neither true nor false")
    found: dict[str, Any] = {"event_sync": handle["event_sync"]}
    for name in _NUMBERS:
        if type(handle[name]) is not int or handle[name] < 0:
            raise BadHandle(f"{name} of shared memory is no size")
        found[name] = handle[name]
    for name in _TEXTS:
        try:
            found[name] = base64.b64decode(handle[name], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadHandle(f"{name} of shared memory is not base64") from error
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# ---------------------------------------------------------------- tensors in a buffer


def laid_out(tensors: Sequence[torch.Tensor]) -> tuple[list[dict[str, Any]], int]:
    """Descriptions (as `tensors.describe`) with each span at an aligned offset, and the bytes they take together.

    Raises NotPortable.
    """
    descriptions, position = [], 0
    for tensor in tensors:
        description = {**describe(tensor), "offset": position}
        descriptions.append(description)
        position += -(-nbytes(description) // ALIGNMENT) * ALIGNMENT
    return descriptions, max(position, 1)


def write(tensors: Sequence[torch.Tensor], descriptions: Sequence[dict[str, Any]], memory: torch.Tensor) -> None:
    """Copy each tensor's span to where its description says; `memory` are the bytes of a buffer."""
    for tensor, description in zip(tensors, descriptions, strict=True):
        span = description["span"]
        if span:
            source = torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())
            _place(memory, description).copy_(source)


def read(descriptions: Sequence[dict[str, Any]], memory: torch.Tensor, device: str) -> list[torch.Tensor]:
    """The described tensors on `device`, each in fresh storage exactly as long as its span.

    Raises ValueError for a description that does not fit itself or the memory, NotPortable for an unknown dtype.
    """
    found = []
    for description in descriptions:
        check_description(description)
        dtype = dtype_named(description["dtype"])
        span = description["span"]
        if description["offset"] < 0 or description["offset"] + nbytes(description) > memory.numel():
            raise ValueError("a tensor reaches beyond its memory")
        own = torch.empty(span, dtype=dtype, device=device)
        if span:
            own.copy_(_place(memory, description))
        found.append(torch.as_strided(own, description["shape"], description["strides"]))
    return found


def arguments_from(arguments: Sequence[dict[str, Any]], handle: Any, device: str) -> tuple[Any, ...]:
    """As `tensors.arguments_from`, from the buffer behind a handle. Raises as `opened` and `read`."""
    with opened(handle, device) as memory:
        tensors = read([argument["tensor"] for argument in arguments if "tensor" in argument], memory, device)
    return assembled(arguments, tensors, device)


def _place(memory: torch.Tensor, description: dict[str, Any]) -> torch.Tensor:
    first = description["offset"]
    return memory[first : first + nbytes(description)].view(dtype_named(description["dtype"]))
