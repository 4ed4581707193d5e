"""Arguments and outputs as a JSON description plus raw bytes in one sealed memfd.

A description is {"dtype", "shape", "strides", "span", "offset"}: strides in elements, `span` the elements from the first
to the last one that the tensor can reach, `offset` where that span's bytes start in the memfd. An argument is
{"tensor": description}, {"empty": description} for one without values, or {"value": scalar}; floats travel as
{"float": repr}, since JSON has no NaN, dtypes as {"dtype": name}, tuples and lists as {"tuple" or "list": [arguments]}.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch

from kbtui.evaluate.inlane.memfd import create_sealed, map_private

ALIGNMENT = 256
GAP = 1 << 20
"""Bytes of hole between two tensors of a memfd, so that a pointer that runs off one does not land in the next."""


class NotPortable(Exception):
    """A value cannot be handed to another process; the sentence says which kind it is."""


def dtype_name(dtype: torch.dtype) -> str:
    """`float32` for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """The dtype of that name. Raises NotPortable for a name torch does not have."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise NotPortable(f"{name!r} is no dtype of this torch")
    return found


def span_of(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one reachable; 0 for an empty tensor."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """The description of a strided tensor on any device; `offset` 0. Raises NotPortable for other layouts."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise NotPortable(f"a tensor of layout {tensor.layout} cannot be handed over")
    shape, strides = list(tensor.shape), list(tensor.stride())
    return {
        "dtype": dtype_name(tensor.dtype),
        "shape": shape,
        "strides": strides,
        "span": span_of(shape, strides),
        "offset": 0,
    }


def describe_value(value: object) -> dict[str, Any]:
    """The description of an argument that is no tensor. Raises NotPortable for anything but bool, int, float, str, None, a
    dtype, and tuples and lists of these."""
    if value is None or isinstance(value, bool | int | str):
        return {"value": value}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [describe_value(one) for one in value]}
    raise NotPortable(
        f"a {type(value).__name__} cannot be handed to a candidate: use tensors, numbers, strings, dtypes or None"
    )


def scalar_of(argument: dict[str, Any]) -> Any:
    """What `describe_value` described."""
    if "dtype" in argument:
        return dtype_named(argument["dtype"])
    if "tuple" in argument:
        return tuple(map(scalar_of, argument["tuple"]))
    if "list" in argument:
        return list(map(scalar_of, argument["list"]))
    return float(argument["float"]) if "float" in argument else argument["value"]


def nbytes(description: dict[str, Any]) -> int:
    """Bytes of a description's span."""
    return int(description["span"] * dtype_named(description["dtype"]).itemsize)


def _span_view(tensor: torch.Tensor, span: int) -> torch.Tensor:
    return torch.as_strided(tensor, (span,), (1,), tensor.storage_offset())


def _memory(tensor: torch.Tensor, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())) if size else memoryview(b"")


def pack(tensors: Sequence[torch.Tensor]) -> tuple[list[dict[str, Any]], int, int]:
    """Descriptions, sealed memfd and its size for tensors of any device, which are copied. The caller closes the memfd."""
    descriptions, pieces, kept, position = [], [], [], 0
    for tensor in tensors:
        description = describe(tensor)
        if tensor.device.type != "cpu":
            tensor = _span_view(tensor, description["span"]).cpu()
        description["offset"] = position
        size = nbytes(description)
        pieces.append((position, _memory(tensor, size)))
        kept.append(tensor)  # the memory behind a piece must outlive the copy
        descriptions.append(description)
        position = math.ceil((position + size) / ALIGNMENT) * ALIGNMENT + GAP
    size = max(position - GAP, 1) if tensors else 1
    return descriptions, create_sealed(pieces, size), size


def map_tensors(descriptions: Sequence[dict[str, Any]], fd: int, size: int) -> list[torch.Tensor]:
    """Tensors over a private mapping of the memfd: fresh storage each time, exactly as long as each span.

    Raises SealError for a memfd that is not sealed or has another size, NotPortable or ValueError for a description that
    does not fit.
    """
    mapping = map_private(fd, size)
    return [_map_one(description, mapping, size) for description in descriptions]


def _map_one(description: dict[str, Any], mapping: mmap.mmap, size: int) -> torch.Tensor:
    dtype = dtype_named(description["dtype"])
    shape, strides, span = description["shape"], description["strides"], description["span"]
    check_description(description)
    if description["offset"] < 0 or description["offset"] + span * dtype.itemsize > size:
        raise ValueError("a tensor reaches beyond its memfd")
    if span == 0:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(mapping, dtype=dtype, count=span, offset=description["offset"])
    return torch.as_strided(flat, shape, strides)


def check_description(description: dict[str, Any]) -> None:
    """Raise ValueError unless shape, strides and span fit one another."""
    shape, strides = description["shape"], description["strides"]
    if len(shape) != len(strides) or any(number < 0 for number in (*shape, *strides)):
        raise ValueError("shape and strides of a tensor do not fit one another")
    if description["span"] != span_of(shape, strides):
        raise ValueError("the span of a tensor is not what its shape and strides reach")


def empty_from(description: dict[str, Any], device: str) -> torch.Tensor:
    """A tensor of that dtype, shape and strides. Values are undefined; of integers they are 0, which is an index anywhere."""
    check_description(description)
    dtype = dtype_named(description["dtype"])
    make = torch.empty if dtype.is_floating_point or dtype.is_complex else torch.zeros
    return torch.as_strided(
        make(description["span"], dtype=dtype, device=device), description["shape"], description["strides"]
    )


def arguments_from(
    arguments: Sequence[dict[str, Any]], descriptors: Sequence[int], size: int, device: str
) -> tuple[Any, ...]:
    """Positional arguments from their description, which is {"tensor"} in the memfd, {"empty"} or a scalar; on `device`.

    Raises as `map_tensors`.
    """
    descriptions = [argument["tensor"] for argument in arguments if "tensor" in argument]
    tensors = map_tensors(descriptions, descriptors[0], size) if descriptions else ()
    return assembled(arguments, [_moved(tensor, device) for tensor in tensors], device)


def assembled(arguments: Sequence[dict[str, Any]], tensors: Sequence[torch.Tensor], device: str) -> tuple[Any, ...]:
    """The arguments, of which `tensors` are those with values, in order."""
    with_values = iter(tensors)
    made: list[Any] = []
    for argument in arguments:
        if "tensor" in argument:
            made.append(next(with_values))
        else:
            made.append(empty_from(argument["empty"], device) if "empty" in argument else scalar_of(argument))
    return tuple(made)


def _moved(tensor: torch.Tensor, device: str) -> torch.Tensor:
    if device == "cpu":
        return tensor
    span = span_of(tensor.shape, tensor.stride())
    return torch.as_strided(_span_view(tensor, span).to(device), tensor.shape, tensor.stride())


def flatten_outputs(value: object) -> list[tuple[str, torch.Tensor]]:
    """What an entry or a reference returned, as named tensors: a tensor, a tuple, list or dict of them, or None.

    None among several is left out. Raises NotPortable for anything else.
    """
    if value is None:
        return []
    if isinstance(value, torch.Tensor):
        return [("0", value)]
    if isinstance(value, dict):
        items = [(str(key), element) for key, element in value.items()]
    elif isinstance(value, tuple | list):
        items = [(str(index), element) for index, element in enumerate(value)]
    else:
        raise NotPortable(f"it returns a {type(value).__name__} where tensors are expected")
    for name, element in items:
        if element is not None and not isinstance(element, torch.Tensor):
            raise NotPortable(f"output {name} is a {type(element).__name__} where a tensor is expected")
    return [(name, element) for name, element in items if element is not None]
