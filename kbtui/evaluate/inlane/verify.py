"""Job "verify": calls the candidate's entry on inputs from the oracle and hands the outputs over. It judges nothing.

Uninitialised memory is filled before each call, so that a tail that was never written shows: NaN (integers: their
maximum) on a first call, another pattern on a second one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kbtui.evaluate.inlane import handover
from kbtui.evaluate.inlane.candidate import CandidateFault, JobContext, formatted, one_line
from kbtui.evaluate.inlane.tensors import NotPortable, flatten_outputs

M_PERTURB = -6
PATTERN = 0x4B
"""As a byte, repeated: 1.3e7 in float32, 14.6 in float16. Finite and far from what kernels compute."""
_PREFILL_BYTES = 1 << 28


@dataclass(frozen=True)
class Seen:
    """Kernels launched since the last reset, by name, and whether one of them is the candidate's own."""

    launched: tuple[str, ...]
    own: bool


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: `calls`, how often each case is called (1 or 2); `most_accesses`, the interpreter's allowance for a case;
    `pretend`, {"properties", "capability"} of the device that a CPU plays, or null.

    Sends one message "outputs" per call and stops when told to. Reply: {"calls": number}.
    Raises CandidateFault for what the candidate does wrong by itself.
    """
    checks = _Interpreted(ctx) if interpreting() else OnDevice()
    with _pretending(ctx.parameters.get("pretend")):
        entry = ctx.load()
    calls = 0
    for case, times in enumerate(ctx.parameters["calls"]):
        for call in range(times):
            ctx.say("verify", f"case {case + 1} of {len(ctx.parameters['calls'])}")
            if not _one_call(ctx, entry, checks, case, call):
                return {"calls": calls}
            calls += 1
    return {"calls": calls}


def interpreting() -> bool:
    """Whether triton was imported in interpreter mode in this process."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _one_call(ctx: JobContext, entry: Callable[..., Any], checks: _Checks, case: int, call: int) -> bool:
    inputs = ctx.inputs(case)
    before = [bytes_of(value) for value in inputs]
    checks.reset()
    try:
        with poisoned(ctx.device, call), _pretending(ctx.parameters.get("pretend")):
            returned = entry(*inputs)
        if ctx.device != "cpu":
            torch.cuda.synchronize()
    except Exception as error:
        fault = checks.fault_for(error)
        if fault is None:
            return bool(ctx.send({"type": "skipped", "case": case, "call": call})["go_on"])
        raise fault from error
    checks.after_call()
    changed = [index for index, value in enumerate(inputs) if was_changed(before[index], value)]
    return hand_over(ctx, (case, call), returned, inputs, changed, checks.seen(ctx))


def hand_over(
    ctx: JobContext, which: tuple[int, int], returned: object, inputs: tuple[Any, ...], changed: list[int], seen: Seen
) -> bool:
    """Send the outputs of one call, `which` = (case, call), for comparison; whether to go on. Raises CandidateFault."""
    try:
        outputs = flatten_outputs(returned)
        storages = {value.untyped_storage().data_ptr(): index for index, value in enumerate(inputs) if _occupied(value)}
        shared = [storages.get(tensor.untyped_storage().data_ptr(), -1) for _, tensor in outputs]
        for name, tensor in outputs:
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
    }
    try:
        return bool(ctx.send(message, memory)["go_on"])
    finally:
        for descriptor in memory:
            os.close(descriptor)


def _is_own(ctx: JobContext, file: str) -> bool:
    """Whether a source file is the candidate's, or lies in the problem's folder or package."""
    from kbtui.problems.importing import import_name

    root, package = import_name(ctx.problem_folder)
    beside = root / package.partition(".")[0] if package else ctx.problem_folder
    return any(os.path.realpath(file).startswith(str(folder.resolve()) + os.sep) for folder in (ctx.folder, beside))


def _occupied(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.untyped_storage().nbytes() > 0


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
def poisoned(device: str, call: int) -> Iterator[None]:
    """Within the block, memory that is allocated and not written holds NaN (first call) or another pattern (later calls)."""
    if call == 0:
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
    # freed again at once: the caching allocator hands the same bytes out to the candidate
    torch.full((_PREFILL_BYTES,), PATTERN, dtype=torch.uint8, device=device)
    yield


def _pretending(pretend: dict[str, Any] | None) -> contextlib.AbstractContextManager[None]:
    if not pretend:
        return contextlib.nullcontext()
    from kbtui.evaluate.inlane.pretend import pretending

    capability = (int(pretend["capability"][0]), int(pretend["capability"][1]))
    return pretending(pretend["properties"], capability)


class _Checks:
    """What a way of running kernels can tell about a call."""

    def reset(self) -> None:
        """Before a call."""

    def after_call(self) -> None:
        """After a call that returned. Raises CandidateFault for faults that the candidate swallowed."""

    def seen(self, ctx: JobContext) -> Seen:
        """What was launched since the reset."""
        raise NotImplementedError

    def fault_for(self, error: Exception) -> CandidateFault | None:
        """Whose fault an exception is. None: nobody's, the case was too much for this way of running."""
        return CandidateFault("crash", "run", one_line(error), formatted(error))


class _Interpreted(_Checks):
    def __init__(self, ctx: JobContext) -> None:
        from kbtui.evaluate.inlane import interpret

        self._interpret = interpret
        self._watch = interpret.install()
        self._watch.most_accesses = int(ctx.parameters.get("most_accesses", 0))

    def reset(self) -> None:
        self._watch.launched.clear()
        self._watch.files.clear()
        self._watch.accesses = 0
        self._watch.inside = False

    def after_call(self) -> None:
        if self._watch.faults:
            raise CandidateFault("wrong", "addresses", str(self._watch.faults[0]))

    def seen(self, ctx: JobContext) -> Seen:
        own = any(_is_own(ctx, file) for file in self._watch.files)
        return Seen(tuple(sorted(self._watch.launched)), own)

    def fault_for(self, error: Exception) -> CandidateFault | None:
        blamed = self._interpret.blame(error, self._watch)
        if blamed == "work":
            return None
        if blamed == "address":
            reason = str(self._watch.faults[0]) if self._watch.faults else one_line(error)
            return CandidateFault("wrong", "addresses", reason, formatted(error))
        if blamed == "assertion":
            return CandidateFault(
                "wrong", "run", f"an assertion of the kernel failed: {one_line(error)}", formatted(error)
            )
        if blamed == "interpreter":
            reason = (
                f"Triton's interpreter cannot run it, though it compiles: {one_line(self._interpret.root_cause(error))}"
            )
            return CandidateFault("unknown", "interpreter", reason, formatted(error))
        return super().fault_for(error)


class OnDevice(_Checks):
    """Launches of compiled kernels, seen through Triton's launch hook."""

    def __init__(self) -> None:
        self._launched: set[str] = set()
        self._listen()

    def _listen(self) -> None:
        import triton
        from triton.compiler import CompiledKernel

        def entered(metadata: Any) -> None:
            self._launched.add(str(metadata.get()["name"]))

        runtime: Any = getattr(getattr(triton, "knobs", None), "runtime", None)
        if hasattr(getattr(runtime, "launch_enter_hook", None), "add"):
            runtime.launch_enter_hook.add(entered)
        elif hasattr(runtime, "launch_enter_hook"):
            runtime.launch_enter_hook = entered
        else:
            CompiledKernel.launch_enter_hook = entered

    def reset(self) -> None:
        self._launched.clear()

    def seen(self, ctx: JobContext) -> Seen:
        return Seen(tuple(sorted(self._launched)), not self._launched.isdisjoint(_own_kernels(ctx)))


def _own_kernels(ctx: JobContext) -> set[str]:
    """Names of the kernels that the candidate's module, and those beside it, hold."""
    names: set[str] = set()
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and _is_own(ctx, file):
            names.update(filter(None, map(_kernel_name, list(vars(module).values()))))
    return names


def _kernel_name(value: object) -> str:
    """The name of a `@triton.jit` function, also below autotuners and heuristics; "" for anything else."""
    from triton.runtime.jit import JITFunction

    while value is not None and not isinstance(value, JITFunction | type):
        value = getattr(value, "fn", None)
    return str(value.__name__) if isinstance(value, JITFunction) else ""
