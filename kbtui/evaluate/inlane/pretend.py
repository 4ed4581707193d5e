"""Lets a wrapper written for CUDA run where there is none, over plain memory.

Wrappers assert `x.is_cuda`, allocate on `device="cuda"`, ask for the number of multiprocessors and enter device
contexts. Inside `pretending(...)` tensors in host memory answer as if they were on `cuda:0`. Values and strides are
real; only the place is not. Used where kernels are compiled without a device and where the interpreter counts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_GETTERS: dict[str, Callable[[], Any]] = {
    "is_cuda": lambda: True,
    "is_cpu": lambda: False,
    "device": lambda: torch.device("cuda", 0),
}
_STAYS = ("cuda", "cpu", "pin_memory")
"""Methods that would move a tensor."""


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and value.split(":")[0] == "cuda"


class _Pretend(TorchFunctionMode):  # type: ignore[misc]  # torch's types are not followed
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if name == "__get__":
            getter = _GETTERS.get(getattr(getattr(func, "__self__", None), "__name__", ""))
            if getter is not None:
                return getter()
        if name in _STAYS and getattr(torch.Tensor, name, None) is func:
            return args[0]
        if name == "get_device" and len(args) == 1:
            return 0
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = "cpu"
        args = tuple("cpu" if _is_cuda(value) else value for value in args)
        return func(*args, **kwargs)


class _Event:
    """Everything has happened already."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def record(self, stream: Any = None) -> None:
        """Nothing runs."""

    def wait(self, stream: Any = None) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        """Milliseconds: none, since nothing runs."""
        del other
        return 0.0


class _Stream:
    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing runs."""

    def synchronize(self) -> None:
        """Nothing runs."""

    def query(self) -> bool:
        return True

    def wait_stream(self, other: Any) -> None:
        """Nothing runs."""

    def wait_event(self, event: Any) -> None:
        """Nothing runs."""

    def record_event(self, event: Any = None) -> Any:
        return event if event is not None else _Event()


class _Graph:
    """What is captured runs at once, and a replay does nothing more: what a wrapper launches is asked here, not how often."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Nothing is captured."""

    def capture_end(self) -> None:
        """Nothing is captured."""

    def instantiate(self) -> None:
        """Nothing was captured."""

    def replay(self) -> None:
        """Nothing was captured."""

    def reset(self) -> None:
        """Nothing was captured."""

    def pool(self) -> tuple[int, int]:
        return 0, 0


class _Capture:
    """`torch.cuda.graph`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> None:
        """What follows runs as it would otherwise."""

    def __exit__(self, *_: object) -> None:
        """It has run."""


def _answers(properties: dict[str, Any], capability: tuple[int, int]) -> dict[str, Any]:
    described = SimpleNamespace(
        name=properties["name"],
        major=capability[0],
        minor=capability[1],
        multi_processor_count=properties["multiprocessor_count"],
        total_memory=properties["memory_bytes"],
        shared_memory_per_block_optin=properties["max_shared_mem"],
        shared_memory_per_multiprocessor=properties["shared_per_multiprocessor"],
        max_threads_per_multi_processor=properties["threads_per_multiprocessor"],
        regs_per_multiprocessor=properties["max_num_regs"],
        L2_cache_size=properties["l2_bytes"],
        warp_size=32,
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "device": lambda *_: contextlib.nullcontext(),
        "device_of": lambda *_: contextlib.nullcontext(),
        "get_device_properties": lambda *_: described,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: properties["name"],
        "synchronize": lambda *_: None,
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "stream": lambda *_: contextlib.nullcontext(),
        "set_stream": lambda *_: None,
        "Stream": _Stream,
        "Event": _Event,
        "CUDAGraph": _Graph,
        "graph": _Capture,
        "graph_pool_handle": lambda: (0, 0),
        "empty_cache": lambda: None,
        "is_current_stream_capturing": lambda: False,
    }


@contextlib.contextmanager
def pretending(properties: dict[str, Any], capability: tuple[int, int]) -> Iterator[None]:
    """Within the block torch answers as on one CUDA device with `properties` (the keys of `facts.target_properties`)."""
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # torch built without CUDA: wrappers import it at their top
        torch._C._cuda_getCurrentRawStream = lambda *_: 0
    saved = {}
    for name, answer in _answers(properties, capability).items():
        saved[name] = getattr(torch.cuda, name)
        setattr(torch.cuda, name, answer)
    try:
        with _Pretend():
            yield
    finally:
        for name, original in saved.items():
            setattr(torch.cuda, name, original)
