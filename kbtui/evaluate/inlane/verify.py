"""Job "verify": calls the candidate's entry on inputs from the oracle and hands the outputs over. It judges nothing.

Uninitialised memory is filled before each call, so that a tail that was never written shows: NaN (integers: their
maximum) on a first call, another pattern on a second one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kbtui.evaluate.inlane import device, handover
from kbtui.evaluate.inlane.calls import FRESH, IDLE
from kbtui.evaluate.inlane.candidate import CandidateFault, JobContext
from kbtui.evaluate.inlane.faults import CALL
from kbtui.evaluate.inlane.handed import watched
from kbtui.evaluate.inlane.integrity import Integrity, refuse_tampering
from kbtui.evaluate.inlane.launches import Checks, Interpreted, OnDevice, Seen
from kbtui.evaluate.inlane.tensors import NotPortable, flatten_outputs

M_PERTURB = -6
PATTERN = 0x4B
"""As a byte, repeated: 1.3e7 in float32, 14.6 in float16. Finite and far from what kernels compute."""
_PREFILLED = (1 << 28, *[1 << 19] * 16)
"""Bytes of the blocks that are filled with it on a device: torch's allocator takes tensors of up to a megabyte from others."""


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: `calls`, for each case the kinds of its calls (`inlane.calls`); `most_accesses`, the interpreter's
    allowance for a call; `pretend`, {"properties", "capability"} of the device that a CPU plays, or null.

    Sends one message "outputs" per call and stops when told to. Reply: {"calls": number}.
    Raises CandidateFault for what the candidate does wrong by itself.
    """
    if ctx.device != "cpu":
        device.begin(ctx.device)
    checks: Checks = Interpreted(int(ctx.parameters.get("most_accesses", 0))) if interpreting() else OnDevice()
    guard = Integrity(ctx.folder / "kernel.py", checks.watched)
    with _pretending(ctx.parameters.get("pretend")):
        entry = ctx.load()
    refuse_tampering(guard, "load")
    caller = _Caller(ctx, entry, checks, guard)
    plan = ctx.parameters["calls"]
    for case, kinds in enumerate(plan):
        ctx.say("verify", f"case {case + 1} of {len(plan)}")
        if not caller.case(case, kinds):
            break
    return {"calls": caller.calls}


def interpreting() -> bool:
    """Whether triton was imported in interpreter mode in this process."""
    return os.environ.get("TRITON_INTERPRET") == "1"


class _Caller:
    """Calls the entry as planned and hands over what comes back."""

    def __init__(self, ctx: JobContext, entry: Callable[..., Any], checks: Checks, guard: Integrity) -> None:
        self._ctx, self._entry, self._checks, self._guard = ctx, entry, checks, guard
        self.calls = 0

    def case(self, case: int, kinds: list[str]) -> bool:
        """All calls of one case, with the same tensors; whether to go on."""
        inputs: tuple[Any, ...] = ()
        for call, kind in enumerate(kinds):
            fresh = self._ctx.inputs(case)
            if call:
                for held, new in zip(inputs, fresh, strict=True):
                    rewrite(held, new)
            else:
                inputs = fresh
            if not self._call((case, call), kind, inputs):
                return False
            self.calls += 1
        return True

    def _call(self, which: tuple[int, int], kind: str, inputs: tuple[Any, ...]) -> bool:
        ctx, checks = self._ctx, self._checks
        before = [bytes_of(value) for value in inputs]
        checks.reset()
        idle = checks.idle() if kind == IDLE else contextlib.nullcontext()
        pretend = _pretending(ctx.parameters.get("pretend"))
        try:
            ctx.say(CALL)
            around = checks.around(ctx.device)
            with poisoned(ctx.device, kind), pretend, idle, around, watched(checks.inside) as handed:
                returned = self._entry(*inputs)
            if ctx.device != "cpu":
                torch.cuda.synchronize()
            ctx.say("verify")
        except BaseException as error:  # SystemExit too is the candidate's
            fault = None if kind == IDLE else checks.fault_for(error)
            if (
                fault is None
            ):  # nobody's: too much for the interpreter, or a wrapper that reads what an idle launch left
                return bool(ctx.send({"type": "skipped", "case": which[0], "call": which[1]})["go_on"])
            raise fault from error
        finally:
            refuse_tampering(self._guard, "verify")
        checks.after_call()
        changed = [index for index, value in enumerate(inputs) if was_changed(before[index], value)]
        seen = replace(checks.seen(ctx), handed=tuple(handed))
        return hand_over(ctx, which, returned, inputs, changed, seen)


def hand_over(
    ctx: JobContext, which: tuple[int, int], returned: object, inputs: tuple[Any, ...], changed: list[int], seen: Seen
) -> bool:
    """Send the outputs of one call, `which` = (case, call), for comparison; whether to go on. Raises CandidateFault."""
    try:
        outputs = flatten_outputs(returned)
        storages = {value.untyped_storage().data_ptr(): index for index, value in enumerate(inputs) if _occupied(value)}
        shared = [storages.get(tensor.untyped_storage().data_ptr(), -1) for _, tensor in outputs]
        for name, tensor in outputs:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise NotPortable(
                    f"output {name} is a {type(tensor).__name__}, a tensor that may compute when it is read"
                )
            if tensor.device.type != torch.device(ctx.device).type:
                raise NotPortable(f"output {name} is on {tensor.device} where {ctx.device} is expected")
        kept = [value for index, value in enumerate(inputs) if index in changed]
        descriptions, size, memory = handover.hand_over(ctx, [*(tensor.detach() for _, tensor in outputs), *kept])
    except NotPortable as error:
        raise CandidateFault("wrong", "outputs", str(error)) from error
    case, call = which
    message = {
        "type": "outputs",
        "case": case,
        "call": call,
        "size": size,
        "names": [name for name, _ in outputs],
        "tensors": descriptions[: len(outputs)],
        "changed": [
            {"input": index, "tensor": one} for index, one in zip(changed, descriptions[len(outputs) :], strict=True)
        ],
        "shared": shared,
        "launched": list(seen.launched),
        "own": seen.own,
        "work": seen.work,
        "handed": list(seen.handed),
    }
    try:
        return bool(ctx.send(message, memory)["go_on"])
    finally:
        for descriptor in memory:
            os.close(descriptor)


def _occupied(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() > 0


def rewrite(held: object, new: object) -> None:
    """Give a tensor the bytes of another one of the same description, in place."""
    if isinstance(held, torch.Tensor) and isinstance(new, torch.Tensor):
        _storage_bytes(held).copy_(_storage_bytes(new))


def bytes_of(value: object) -> torch.Tensor | None:
    """A copy of a tensor's whole storage as bytes; None for scalars."""
    return None if not isinstance(value, torch.Tensor) else _storage_bytes(value).clone()


def _storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage(), 0, (tensor.untyped_storage().nbytes(),), (1,))


def was_changed(before: torch.Tensor | None, value: object) -> bool:
    """Whether a tensor's storage differs from what `bytes_of` copied before."""
    return before is not None and isinstance(value, torch.Tensor) and not torch.equal(before, _storage_bytes(value))


@contextlib.contextmanager
def poisoned(device: str, kind: str) -> Iterator[None]:
    """Within the block, memory that is allocated and not written holds NaN, or another pattern in a call with fresh values."""
    if kind != FRESH:
        # the same switch as use_deterministic_algorithms, which imports the whole of inductor first (2 s)
        torch.set_deterministic_debug_mode("warn")
        torch.utils.deterministic.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode("default")
        return
    if device == "cpu":
        ctypes.CDLL(None).mallopt(M_PERTURB, 0xFF ^ PATTERN)
        try:
            yield
        finally:
            ctypes.CDLL(None).mallopt(M_PERTURB, 0)
        return
    # What is free now may hold the right outputs of the last call. What is freed here the allocator hands out again next.
    torch.cuda.empty_cache()
    filled = [torch.full((size,), PATTERN, dtype=torch.uint8, device=device) for size in _PREFILLED]
    del filled
    yield


def _pretending(pretend: dict[str, Any] | None) -> contextlib.AbstractContextManager[None]:
    if not pretend:
        return contextlib.nullcontext()
    from kbtui.evaluate.inlane.pretend import pretending

    capability = (int(pretend["capability"][0]), int(pretend["capability"][1]))
    return pretending(pretend["properties"], capability)
