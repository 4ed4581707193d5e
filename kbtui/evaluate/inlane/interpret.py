"""Triton's interpreter with every address checked, launches recorded and autotuners kept from timing.

The interpreter reads and writes raw memory; an address outside the tensors of a launch would corrupt or kill the
process, or pass unseen. All its accesses go through four functions of one native module, on Triton 3.2 to 3.9; that
module is replaced by one that looks at the addresses first.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as interpreter
from triton.runtime.autotuner import Autotuner

from kbtui.evaluate.inlane.digests import kernel_id


class AddressFault(Exception):
    """A kernel reached outside the tensors of its launch; the sentence names access, tensor and offset."""


@dataclass(frozen=True)
class Region:
    """The storage of one tensor argument: what a launch may touch."""

    name: str
    first: int
    end: int
    base: int
    itemsize: int
    elements: int


@dataclass
class Watch:
    """What was seen in this process: launched kernels (`digests.kernel_id`) and how often, the files they came from, and
    faults, also ones that the candidate's own code swallowed."""

    launched: dict[str, int] = field(default_factory=dict)
    files: set[str] = field(default_factory=set)
    faults: list[AddressFault] = field(default_factory=list)
    inside: bool = False
    """Whether the last exception left a kernel rather than the code around it."""
    running: bool = False
    """Whether a launch is under way."""
    idle: bool = False
    """Launches are noted and do nothing."""
    accesses: int = 0
    most_accesses: int = 0
    """Loads, stores and atomics since the last reset, and how many are allowed (0: any number)."""


class TooMuch(Exception):
    """The interpreter was asked for more accesses than allowed: a limit on work that is the same on every machine."""


def install() -> Watch:
    """Put the checks into this process, for good. The same `Watch` sees every launch from now on."""
    watch = Watch()
    guard = _GuardedMemory(interpreter._interpreter, watch)
    interpreter._interpreter = guard
    _watch_launches(guard, watch)
    _settle_autotuners()
    return watch


def _watch_launches(guard: _GuardedMemory, watch: Watch) -> None:
    launch = interpreter.GridExecutor.__call__

    def checked(executor: Any, *args: Any, **kwargs: Any) -> Any:
        name = _identified(executor.fn)
        watch.launched[name] = watch.launched.get(name, 0) + 1
        watch.files.add(executor.fn.__code__.co_filename)
        if watch.idle:
            return None
        named = itertools.chain(zip(executor.arg_names, args, strict=False), kwargs.items())
        guard.enter(tuple(named))
        watch.inside = watch.running = True
        try:
            result = launch(executor, *args, **kwargs)
        finally:
            watch.running = False
        watch.inside = False
        return result

    interpreter.GridExecutor.__call__ = checked


def _identified(rewritten: Any) -> str:
    """The kernel's id, from its function as written; its name alone on a Triton that does not keep that."""
    name = getattr(rewritten, "__name__", "kernel")
    known = getattr(interpreter.InterpretedFunction, "rewritten_fn", {})
    written = next((one for one, made in known.items() if made is rewritten), None)
    return kernel_id(name, written.__code__) if written is not None else name


def _regions_of(name: str, value: Any) -> Iterator[Region]:
    if isinstance(value, tuple | list):
        for index, element in enumerate(value):
            yield from _regions_of(f"{name}[{index}]", element)
        return
    value = getattr(value, "base", value) if not isinstance(value, torch.Tensor) else value
    if isinstance(value, torch.Tensor):
        storage = value.untyped_storage()
        first = storage.data_ptr()
        yield Region(name, first, first + storage.nbytes(), value.data_ptr(), value.element_size(), value.numel())


class _GuardedMemory:
    """Stands in for the interpreter's native module: checks addresses, then calls it. All else is passed through."""

    def __init__(self, native: Any, watch: Watch) -> None:
        self._native = native
        self._watch = watch
        self.regions: list[Region] = []
        self._indirect = False

    def enter(self, named: tuple[tuple[str, Any], ...]) -> None:
        """A launch begins, with these arguments by name."""
        self.regions = [region for name, value in named for region in _regions_of(str(name), value)]
        # a table of addresses, or an address as a number: the launch may reach tensors that it was not given as such
        self._indirect = any(
            value > 1 << 40 if isinstance(value, int) else getattr(value, "dtype", None) in (torch.int64, torch.uint64)
            for _, value in named
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._check("load", pointers, mask, np.dtype(dtype).itemsize)
        return self._native.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, values: Any, mask: Any) -> Any:
        self._check("store", pointers, mask, values.dtype.itemsize)
        return self._native.store(pointers, values, mask)

    def atomic_cas(self, pointers: Any, compare: Any, values: Any, semantics: Any) -> Any:
        self._check("atomic", pointers, None, values.dtype.itemsize)
        return self._native.atomic_cas(pointers, compare, values, semantics)

    def atomic_rmw(self, operation: Any, pointers: Any, values: Any, mask: Any, semantics: Any) -> Any:
        self._check("atomic", pointers, mask, values.dtype.itemsize)
        return self._native.atomic_rmw(operation, pointers, values, mask, semantics)

    def _check(self, access: str, pointers: Any, mask: Any, width: int) -> None:
        self._watch.accesses += 1
        if self._watch.most_accesses and self._watch.accesses > self._watch.most_accesses:
            raise TooMuch(f"more than {self._watch.most_accesses} accesses")
        touched = np.asarray(pointers)
        if mask is not None:
            touched = touched[np.broadcast_to(mask, touched.shape)]
        if touched.size == 0:
            return
        low, high = int(touched.min()), int(touched.max())
        for region in self.regions:
            if region.first <= low and high + width <= region.end:
                return
        self._check_each(access, touched.reshape(-1), width)

    def _check_each(self, access: str, touched: Any, width: int) -> None:
        """For accesses that span several tensors: each address has to lie in one of them."""
        inside = np.zeros(touched.shape, dtype=bool)
        for region in (*self.regions, *(_all_tensors() if self._indirect else ())):
            if region.end - region.first >= width:
                inside |= (touched >= region.first) & (touched <= region.end - width)
        if inside.all():
            return
        fault = AddressFault(self._sentence(access, int(touched[~inside][0])))
        self._watch.faults.append(fault)
        raise fault

    def _sentence(self, access: str, address: int) -> str:
        program = interpreter.interpreter_builder.grid_idx
        where = f"{access} by program {tuple(program)}"
        if not self.regions:
            return f"{where} at an address of no tensor: the launch was given none"
        nearest = min(self.regions, key=lambda region: min(abs(address - region.first), abs(address - region.end)))
        offset = (address - nearest.base) // nearest.itemsize
        return f"{where} outside {nearest.name}: element {offset} of {nearest.elements}"


def _all_tensors() -> list[Region]:
    """Every tensor of the process, found through the collector: slow, and only asked for on the way to a fault."""
    return [
        region for value in gc.get_objects() if isinstance(value, torch.Tensor) for region in _regions_of("", value)
    ]


def _settle_autotuners() -> None:
    """Autotuners take their configurations in turn, one per launch that would be tuned, so that a check over several shapes
    meets several of them; nothing is timed."""
    turn = itertools.count()

    def settle(tuner: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        del args, meta
        configs = list(tuner.configs)
        if config is configs[0]:
            tuner.kbtui_choice = next(turn) % len(configs)
        chosen = configs[min(getattr(tuner, "kbtui_choice", 0), len(configs) - 1)]
        return [0.0 if config is chosen else 1.0] * 3

    Autotuner._bench = settle


def blame(error: BaseException, watch: Watch) -> str:
    """Who is at fault for an exception out of a candidate's call: "address", "assertion", "work", "interpreter" or "candidate".

    The candidate compiled, so what fails inside a kernel under interpretation is the interpreter's limit, unless the
    kernel itself asserted or an address was wrong.
    """
    chain = list(_causes(error))
    if watch.faults or any(isinstance(link, AddressFault) for link in chain):
        return "address"
    if any(isinstance(link, TooMuch) for link in chain):
        return "work"
    if not watch.inside:
        return "candidate"
    root = chain[-1]
    return "assertion" if isinstance(root, AssertionError) and _raised_by(root, "create_assert") else "interpreter"


def root_cause(error: BaseException) -> BaseException:
    """The innermost exception of a chain."""
    return list(_causes(error))[-1]


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _raised_by(error: BaseException, function: str) -> bool:
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_code.co_name == function
