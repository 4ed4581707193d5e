"""What a call launched, and whose fault an exception out of it is: under the interpreter, and on a device."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from kbtui.evaluate.inlane.candidate import CandidateFault, JobContext
from kbtui.evaluate.inlane.faults import CALL, formatted, one_line, said
from kbtui.evaluate.inlane.fences import Fences


@dataclass(frozen=True)
class Seen:
    """Of one call: kernels launched, each once, as `name@digest` (`digests`) or by name; whether one of them is the
    candidate's own; and an amount of work that only compares with that of other calls: accesses under the interpreter,
    launches elsewhere."""

    launched: tuple[str, ...]
    own: bool
    work: int = 0
    handed: tuple[str, ...] = ()
    """What torch itself was asked to compute (`handed`)."""


class Checks:
    """What a way of running kernels can tell about a call. `watched` are classes that a candidate must leave as they are."""

    watched: tuple[type, ...] = ()

    def reset(self) -> None:
        """Before a call."""

    def inside(self) -> bool:
        """Whether a launch is under way on this thread, whose doings are the kernel's and not the wrapper's."""
        return False

    def idle(self) -> contextlib.AbstractContextManager[None]:
        """Within the block, launches do nothing."""
        raise NotImplementedError

    def around(self, device: str) -> contextlib.AbstractContextManager[object]:
        """Within the block, what the wrapper allocates on `device` is looked after."""
        del device
        return contextlib.nullcontext()

    def after_call(self) -> None:
        """After a call that returned. Raises CandidateFault for faults that the candidate swallowed."""

    def seen(self, ctx: JobContext) -> Seen:
        """What was launched since the reset."""
        raise NotImplementedError

    def fault_for(self, error: BaseException) -> CandidateFault | None:
        """Whose fault an exception is. None: nobody's, the case was too much for this way of running."""
        return CandidateFault("crash", CALL, said(error), formatted(error))


class Interpreted(Checks):
    """Launches under Triton's interpreter."""

    def __init__(self, most_accesses: int) -> None:
        from triton.runtime import interpreter

        from kbtui.evaluate.inlane import interpret

        self._interpret = interpret
        self._watch = interpret.install()
        self._watch.most_accesses = most_accesses
        self.watched = (interpreter.GridExecutor, interpreter.InterpretedFunction)

    def reset(self) -> None:
        self._watch.launched.clear()
        self._watch.files.clear()
        self._watch.accesses = 0
        self._watch.inside = False

    def inside(self) -> bool:
        return self._watch.inside

    @contextlib.contextmanager
    def idle(self) -> Iterator[None]:
        self._watch.idle = True
        try:
            yield
        finally:
            self._watch.idle = False

    def after_call(self) -> None:
        if self._watch.faults:
            raise CandidateFault("wrong", "addresses", str(self._watch.faults[0]))

    def seen(self, ctx: JobContext) -> Seen:
        folders = _own_folders(ctx)
        own = any(_is_own(folders, file) for file in self._watch.files)
        return Seen(tuple(sorted(self._watch.launched)), own, self._watch.accesses)

    def fault_for(self, error: BaseException) -> CandidateFault | None:
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


class OnDevice(Checks):
    """Launches of compiled kernels, seen through Triton's launch hook; a replay of a CUDA graph counts as a launch of what this
    process has launched before."""

    def __init__(self) -> None:
        from triton.runtime.jit import JITFunction

        self._launched: set[str] = set()
        self._before: set[str] = set()
        self._count = 0
        self._fences: Fences | None = None
        self._ours: dict[str, bool] = {}
        """Source files of modules -> whether they are the candidate's, those that are asked about again at every call."""
        self._listen()
        self.watched = (JITFunction,)

    def _listen(self) -> None:
        import triton
        from triton.compiler import CompiledKernel

        def entered(metadata: Any) -> None:
            self._launched.add(str(metadata.get()["name"]))
            self._count += 1

        runtime: Any = getattr(getattr(triton, "knobs", None), "runtime", None)
        if hasattr(getattr(runtime, "launch_enter_hook", None), "add"):
            runtime.launch_enter_hook.add(entered)
        elif hasattr(runtime, "launch_enter_hook"):
            runtime.launch_enter_hook = entered
        else:
            CompiledKernel.launch_enter_hook = entered
        self._listen_to_graphs()

    def _listen_to_graphs(self) -> None:
        replay = torch.cuda.CUDAGraph.replay

        def replayed(graph: Any) -> Any:
            self._launched |= self._before
            self._count += 1
            return replay(graph)

        torch.cuda.CUDAGraph.replay = replayed

    def around(self, device: str) -> contextlib.AbstractContextManager[object]:
        self._fences = Fences(device)
        fenced: contextlib.AbstractContextManager[object] = self._fences
        return fenced

    def after_call(self) -> None:
        if self._fences is not None and (trouble := self._fences.trouble()):
            raise CandidateFault("wrong", "addresses", trouble)

    def reset(self) -> None:
        self._before |= self._launched
        self._launched.clear()
        self._count = 0

    def seen(self, ctx: JobContext) -> Seen:
        own = not self._launched.isdisjoint(_own_kernels(ctx, self._ours))
        return Seen(tuple(sorted(self._launched)), own, self._count)


_libraries: frozenset[str] = frozenset()


def know_libraries() -> None:
    """Take what is imported by now for libraries, in which no candidate's kernel can be.

    In the zygote, before it forks: there are three thousand modules, and to find out where each lies takes a tenth of a
    second in every process.
    """
    global _libraries
    _libraries = frozenset(sys.modules)


def _is_own(folders: tuple[str, ...], file: str) -> bool:
    """Whether a source file is the candidate's, or lies in the problem's folder or package: `_own_folders`."""
    return os.path.realpath(file).startswith(folders)


def _own_folders(ctx: JobContext) -> tuple[str, ...]:
    from kbtui.problems.importing import import_name

    root, package = import_name(ctx.problem_folder)
    beside = root / package.partition(".")[0] if package else ctx.problem_folder
    return tuple(str(folder.resolve()) + os.sep for folder in (ctx.folder, beside))


def _own_kernels(ctx: JobContext, ours: dict[str, bool]) -> set[str]:
    """Names of the kernels that the candidate's module, and those beside it, hold. `ours` remembers whose the files are."""
    names: set[str] = set()
    folders = _own_folders(ctx)
    for module in [module for name, module in list(sys.modules.items()) if name not in _libraries]:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        if file not in ours:
            ours[file] = _is_own(folders, file)
        if ours[file]:
            names.update(filter(None, map(_kernel_name, list(vars(module).values()))))
    return names


def _kernel_name(value: object) -> str:
    """The name of a `@triton.jit` function, also below autotuners and heuristics; "" for anything else."""
    from triton.runtime.jit import JITFunction

    while value is not None and not isinstance(value, JITFunction | type):
        value = getattr(value, "fn", None)
    return str(value.__name__) if isinstance(value, JITFunction) else ""
