"""Whether a candidate left our code, torch and the clocks as they were, and kept its hands off the process around it.

The candidate runs in one process with what reports on it. Values are safe, since another process compares them; what it
launched, mutated and took is told from here. Changing any of it is no way to make a kernel faster, hence proof.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

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


class Held(NamedTuple):
    """Something that must stay: where it is (the live namespace of a module or class, and its name there), what it is, and its
    code, as code can be exchanged in place."""

    dotted: str
    place: Mapping[str, Any]
    key: str
    member: Any
    code: Any

    @property
    def stayed(self) -> bool:
        now = self.place.get(self.key)
        return now is self.member and _code_of(now) is self.code


class Integrity:
    """Made before a candidate is loaded, for its process. `watched` are further classes whose functions must stay."""

    def __init__(self, candidate: Path, watched: tuple[type, ...] = ()) -> None:
        self._watched = watched
        self._events: list[str] = []
        self.renew()
        sys.addaudithook(_hook(str(candidate), self._events))

    def renew(self) -> None:
        """What is in place now stays: after a change of our own."""
        self._held = list(_surroundings(self._watched))
        self._tensor = frozenset(vars(torch.Tensor))

    def trouble(self) -> str:
        """What was done against the rules so far, "" if nothing: "it replaces time.perf_counter". Asked after every call."""
        if self._events:
            return f"it {self._events[0]}"
        replaced = next((one.dotted for one in self._held if not one.stayed), "")
        if not replaced:
            # what is added to a class of torch covers what C has below it
            added = (name for name in vars(torch.Tensor).keys() - self._tensor if _counts(vars(torch.Tensor)[name]))
            replaced = next((f"torch.Tensor.{name}" for name in added), "")
        return f"it replaces {replaced}" if replaced else ""


def refuse_tampering(guard: Integrity, where: str) -> None:
    """Raise CandidateFault when the candidate changed what surrounds it."""
    if trouble := guard.trouble():
        raise CandidateFault("cheat", "tampering", f"{trouble} (seen after {where})")


def _surroundings(watched: tuple[type, ...]) -> Iterator[Held]:
    """Everything that must stay as it is."""
    yield from _named("time", time, _CLOCKS)
    yield from _named("torch.cuda", torch.cuda, _CUDA)
    yield from _named("torch", torch, (*_TORCH, "Tensor"))
    yield from _members("torch.Tensor", torch.Tensor)
    # by torch's names, also where classes of ours stand in for them; what is ours comes last, since it holds those too
    for name in _CUDA_CLASSES:
        yield from _members(f"torch.cuda.{name}", getattr(torch.cuda, name))
    for kind in watched:
        yield from _members(f"{kind.__module__}.{kind.__name__}", kind)
    for name in [name for name in sys.modules if name.startswith("kbtui.evaluate.inlane")]:
        yield Held(name, sys.modules, name, sys.modules[name], None)
        yield from _members(name, sys.modules[name])


def _named(holder: str, module: ModuleType, names: tuple[str, ...]) -> Iterator[Held]:
    place = vars(module)
    for name in names:
        member = place.get(name)
        yield Held(f"{holder}.{name}", place, name, member, _code_of(member))


def _members(holder: str, value: ModuleType | type) -> Iterator[Held]:
    place = vars(value)
    for name, member in list(place.items()):
        if name.startswith("__") and name.endswith("__") and isinstance(value, ModuleType):
            continue
        if _counts(member):
            yield Held(f"{holder}.{name}", place, name, member, _code_of(member))
        if isinstance(member, type) and member.__module__.startswith("kbtui.evaluate.inlane"):
            yield from _members(f"{holder}.{name}", member)


def _counts(member: Any) -> bool:
    return callable(member) or isinstance(member, property | staticmethod | classmethod)


def _code_of(member: Any) -> Any:
    function = getattr(member, "__wrapped__", member) if isinstance(member, FunctionType) else None
    return getattr(function, "__code__", None)


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
