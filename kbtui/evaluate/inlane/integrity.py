"""Whether a candidate left our code, torch and the clocks as they were, and kept its hands off the process around it.

The candidate runs in one process with what reports on it. Values are safe, since another process compares them; what it
launched, mutated and took is told from here. Changing any of it is no way to make a kernel faster, hence proof.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch

from kbtui.evaluate.inlane.candidate import CandidateFault

FORBIDDEN = {
    "socket.__new__": "opens a socket",
    "socket.connect": "connects to a socket",
    "socket.sendmsg": "sends on a socket",
    "socket.sendto": "sends on a socket",
    "gc.get_objects": "searches memory through the garbage collector",
    "gc.get_referrers": "searches memory through the garbage collector",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.exec": "starts another program",
    "os.posix_spawn": "starts another program",
    "os.system": "starts another program",
    "subprocess.Popen": "starts another program",
    "ctypes.dlopen": "loads a native library",
}
"""Audit events of Python, PEP 578, that no kernel and no wrapper has a reason for."""
_CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "sleep")
_TORCH = ("equal", "empty", "empty_strided", "as_strided", "frombuffer", "zeros", "full", "tensor", "device")
"""What our own code in the process calls; torch itself exchanges others when parts of it are imported late."""
_CUDA = ("synchronize", "Event", "Stream", "current_stream", "stream", "CUDAGraph", "graph", "is_available")
_CUDA_CLASSES = ("Event", "Stream", "CUDAGraph")

Held = tuple[Any, Any]
"""An object that must stay, and its code."""


class Integrity:
    """Made before a candidate is loaded, for its process. `watched` are further classes whose functions must stay."""

    def __init__(self, candidate: Path, watched: tuple[type, ...] = ()) -> None:
        self._seen = dict(_functions(watched))
        self._watched = watched
        self._events: list[str] = []
        sys.addaudithook(_hook(str(candidate), self._events))

    def renew(self) -> None:
        """What is in place now stays: after a change of our own."""
        self._seen = dict(_functions(self._watched))

    def trouble(self) -> str:
        """What was done against the rules so far, "" if nothing: "it replaces time.perf_counter"."""
        if self._events:
            return f"it {self._events[0]}"
        now = dict(_functions(self._watched))
        for name, value in self._seen.items():
            if not _same(value, now.get(name)):
                return f"it replaces {name}"
        # what is added to a class of torch covers what C has below it
        added = next((name for name in now if name not in self._seen and name.startswith("torch.Tensor.")), "")
        return f"it replaces {added}" if added else ""


def refuse_tampering(guard: Integrity, where: str) -> None:
    """Raise CandidateFault when the candidate changed what surrounds it."""
    if trouble := guard.trouble():
        raise CandidateFault("cheat", "tampering", f"{trouble} (seen after {where})")


def _functions(watched: tuple[type, ...]) -> Iterator[tuple[str, Held]]:
    """(dotted name, identity) of everything that must stay as it is."""
    yield from ((f"time.{name}", _identity(getattr(time, name))) for name in _CLOCKS)
    yield from ((f"torch.cuda.{name}", _identity(getattr(torch.cuda, name, None))) for name in _CUDA)
    yield from ((f"torch.{name}", _identity(getattr(torch, name))) for name in _TORCH)
    yield from _members("torch.Tensor", torch.Tensor)
    # by torch's names, also where classes of ours stand in for them; what is ours comes last, since it holds those too
    for name in _CUDA_CLASSES:
        yield from _members(f"torch.cuda.{name}", getattr(torch.cuda, name))
    for kind in watched:
        yield from _members(f"{kind.__module__}.{kind.__name__}", kind)
    for name in [name for name in sys.modules if name.startswith("kbtui.evaluate.inlane")]:
        yield from _members(name, sys.modules[name])


def _members(holder: str, value: ModuleType | type) -> Iterator[tuple[str, Held]]:
    for name, member in list(vars(value).items()):
        if name.startswith("__") and name.endswith("__") and isinstance(value, ModuleType):
            continue
        if isinstance(member, type) and member.__module__.startswith("kbtui.evaluate.inlane"):
            yield from _members(f"{holder}.{name}", member)
        elif callable(member) or isinstance(member, property | staticmethod | classmethod):
            yield f"{holder}.{name}", _identity(member)


def _same(before: Held, now: Held | None) -> bool:
    return now is not None and before[0] is now[0] and before[1] is now[1]


def _identity(member: Any) -> Held:
    """Of the object and, as code can be exchanged in place, of its code."""
    function = getattr(member, "__wrapped__", member) if isinstance(member, FunctionType) else None
    return member, getattr(function, "__code__", None)


def _hook(candidate: str, events: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook, which stays for the life of the process; it notes forbidden events that the candidate raises itself."""
    library = tuple({sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep})
    packages = tuple(sysconfig.get_path(kind) + os.sep for kind in ("purelib", "platlib"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        del arguments
        if event in FORBIDDEN and len(events) < 8 and _by_candidate(candidate, library, packages):
            events.append(FORBIDDEN[event])

    return hook


def _by_candidate(candidate: str, library: tuple[str, ...], packages: tuple[str, ...]) -> bool:
    """Whether the innermost frame outside the standard library is the candidate's, or of code that it made from text."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        standard = file.startswith("<frozen") or (file.startswith(library) and not file.startswith(packages))
        if not standard:
            return file == candidate or file.startswith("<")
        frame = frame.f_back
    return False
