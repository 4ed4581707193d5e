"""Job "time_reference": the problem's reference timed on a GPU a turn at a time, as PyTorch runs it or under `torch.compile`.

The reference is the problem's own code and no candidate: it is loaded from problem.py, hands to torch what it likes, and
nobody watches what it launches. Its times are taken as a candidate's are (`clock.Bench`), and its outputs go to the oracle.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from kbtui.evaluate.inlane import device
from kbtui.evaluate.inlane.candidate import CandidateFault
from kbtui.evaluate.inlane.clock import Bench
from kbtui.evaluate.inlane.faults import REASON_CHARACTERS, formatted, said
from kbtui.evaluate.inlane.integrity import Integrity
from kbtui.evaluate.inlane.launches import OnDevice, Seen
from kbtui.evaluate.inlane.problem_module import Problem

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext

Entry = Callable[..., Any]
MOST_VARIANTS = 1 << 16
"""Compiled versions of one function, one for each case. Beyond torch's own limit of eight it would go on uncompiled, unsaid."""


def run(ctx: JobContext) -> dict[str, Any]:
    """Parameters: those of the job "time", and `compiled`, whether `torch.compile` is put around the reference.

    Asks for turns and answers them as the job "time" does. Reply: {"turns": number}.
    """
    device.begin(ctx.device)
    compiled = bool(ctx.parameters["compiled"])
    bench = ReferenceBench(ctx, load(ctx.problem_folder, compiled=compiled), compiled=compiled)
    turns = 0
    order = ctx.request("turn", ready=True)
    while order["do"] != "end":
        ctx.say("time", f"case {order['case'] + 1}")
        try:
            result = bench.take(order)
        except CandidateFault:
            raise
        except Exception as error:
            raise CandidateFault("crash", "time", _why(error), formatted(error)) from error
        turns += 1
        order = ctx.request("turn", **result)
    return {"turns": turns}


def _why(error: Exception) -> str:
    """What went wrong. torch's compilers say it first, and end with advice to whoever reports a bug."""
    if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return said(error)
    text = str(error).partition("\nSet TORCH")[0].partition("\nfrom user code")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:REASON_CHARACTERS]


def load(folder: Path, *, compiled: bool) -> Entry:
    """The reference of the problem in `folder`, without gradients and in the problem's precision. Raises ProblemFault.

    Compiled anew for every case's shapes (`dynamic=False`), as for a program that knows them, with inductor's defaults:
    "max-autotune" would take minutes a case. What was compiled lies in the folder of Triton's cache, for the job's next
    processes.
    """
    problem = Problem(folder)
    torch.set_grad_enabled(False)
    tf32 = problem.precision == "tf32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    entry: Entry = problem.reference
    if not compiled:
        return entry
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(os.environ["TRITON_CACHE_DIR"]) / "inductor")
    import torch._dynamo.config as dynamo
    import torch._inductor.config as inductor

    inductor.compile_threads = 1  # more are processes of a pool, which would outlive their use

    # newer names, older ones
    for name in ("recompile_limit", "accumulated_recompile_limit", "cache_size_limit", "accumulated_cache_size_limit"):
        if hasattr(dynamo, name):
            setattr(dynamo, name, MOST_VARIANTS)
    made: Entry = torch.compile(entry, dynamic=False)
    return made


def graphs_compiled() -> int:
    """How many graphs `torch.compile` has taken out of what was called in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


class ReferenceBench(Bench):
    """The cases of a reference on the device."""

    def __init__(self, ctx: JobContext, entry: Entry, *, compiled: bool) -> None:
        super().__init__(ctx, entry, _Trusted())
        self._checks = _Unwatched()
        self._compiled = compiled

    def _prepare(self, case: int) -> dict[str, Any]:
        result = super()._prepare(case)
        if self._compiled and not graphs_compiled():
            # It calls what it cannot trace as it is, and the eager times would pass for its own.
            raise CandidateFault(
                "invalid", "compile", "torch.compile found nothing in the reference that it can compile"
            )
        return result


class _Trusted(Integrity):
    """Of a process that runs nobody's candidate."""

    def __init__(self) -> None:
        """Nothing is held or listened to."""

    def trouble(self) -> str:
        return ""


class _Unwatched(OnDevice):
    """Without a hook on launches: inductor's launchers do not take one, and whose kernels they are is no question."""

    def __init__(self) -> None:
        """Nothing is listened to."""

    def reset(self) -> None:
        """Nothing was noted."""

    def seen(self, ctx: JobContext) -> Seen:
        del ctx
        return Seen((), own=False)
