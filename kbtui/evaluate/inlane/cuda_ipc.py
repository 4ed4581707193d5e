"""Tensors between processes of one GPU without going through host memory.

The owner shares an allocation by a CUDA IPC handle, the receiver opens it and copies. Handles are bytes and travel as
base64 in JSON; nothing is pickled. An owner must keep its tensor until the receiver has copied, and neither side may
compute on shared memory: the other can write to it at any time.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import torch

from kbtui.evaluate.inlane.tensors import check_description, describe, dtype_named, span_of

_BYTES = ("handle", "counter", "event")
_NUMBERS = ("device", "size", "storage_offset", "counter_offset")


class BadHandle(Exception):
    """A message does not describe a shared tensor, or the driver does not accept its handle."""


def share(tensor: torch.Tensor) -> dict[str, Any]:
    """A description of a CUDA tensor (as `tensors.describe`) with its handle under "ipc".

    The span is copied into an allocation of its own first: a handle opens a whole allocation, and neighbours in it are
    nobody's business. Returns the message; the copy lives as long as `message["_keep"]`, which is not sent.
    """
    description = describe(tensor)
    own = torch.empty(max(1, description["span"]), dtype=tensor.dtype, device=tensor.device)
    if description["span"]:
        own.copy_(torch.as_strided(tensor, (description["span"],), (1,), tensor.storage_offset()))
    torch.cuda.synchronize(tensor.device)
    device, handle, size, offset, counter, counter_offset, event, event_sync = own.untyped_storage()._share_cuda_()
    ipc = {
        "device": int(device),
        "handle": _text(handle),
        "size": int(size),
        "storage_offset": int(offset),
        "counter": _text(counter),
        "counter_offset": int(counter_offset),
        "event": _text(event),
        "event_sync": bool(event_sync),
    }
    return {**description, "ipc": ipc, "_keep": own}


def receive(message: dict[str, Any], device: torch.device) -> torch.Tensor:
    """The described tensor in fresh storage on `device`. Raises BadHandle; ValueError for a description that does not fit.

    The mapping is opened, copied and closed again: afterwards nothing of the owner's memory is left open here.
    """
    check_description(message)
    dtype = dtype_named(message["dtype"])
    needed = message["span"] * dtype.itemsize
    ipc = _checked(message.get("ipc"), needed)
    own = torch.empty(message["span"], dtype=dtype, device=device)
    if message["span"]:
        try:
            storage = torch.UntypedStorage._new_shared_cuda(
                device.index or 0,
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
        shared = torch.empty(0, dtype=dtype, device=device).set_(storage, 0, (message["span"],), (1,))
        own.copy_(shared)
        torch.cuda.synchronize(device)
        del shared, storage
    assert span_of(message["shape"], message["strides"]) == message["span"]
    return torch.as_strided(own, message["shape"], message["strides"])


def _checked(ipc: Any, needed: int) -> dict[str, Any]:
    if not isinstance(ipc, dict) or set(ipc) != {*_BYTES, *_NUMBERS, "event_sync"}:
        raise BadHandle("a shared tensor came without its handle")
    found: dict[str, Any] = {"event_sync": bool(ipc["event_sync"])}
    for name in _NUMBERS:
        if type(ipc[name]) is not int or ipc[name] < 0:
            raise BadHandle(f"{name} of a shared tensor is no size")
        found[name] = ipc[name]
    for name in _BYTES:
        try:
            found[name] = base64.b64decode(ipc[name], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise BadHandle(f"{name} of a shared tensor is not base64") from error
    if found["size"] < needed:
        raise BadHandle(f"a shared tensor needs {needed} bytes and its memory has {found['size']}")
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
