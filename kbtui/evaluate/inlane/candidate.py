"""The inside of a candidate process: what a job is given, and how it talks to the run process.

Everything here runs beside code that is not trusted. The run process believes nothing of it beyond a strict schema, and
values only after the oracle compared them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from kbtui.evaluate.inlane import gpus, sandbox
from kbtui.evaluate.inlane.bootstrap import PACKAGE
from kbtui.evaluate.inlane.faults import DETAIL_CHARACTERS, formatted, said
from kbtui.evaluate.inlane.frames import MAX_FRAME, FrameError, FrameReader, encode, send_frame

SYSTEM_FOLDERS = (
    "/usr",
    "/lib",
    "/lib64",
    "/etc",
    "/opt",
    "/bin",
    "/sbin",
    "/sys",
    "/proc",
    "/dev/urandom",
    "/dev/zero",
)
ADDRESS_SPACE_FACTOR = 16
DEVICE_FOLDERS = ("/dev", "/proc/self", "/proc/driver")


class CandidateFault(Exception):
    """The candidate is at fault: `outcome` as in `Correctness`, `stage` where, `reason` one sentence, `detail` the rest."""

    def __init__(self, outcome: str, stage: str, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.stage = stage
        self.reason = reason
        self.detail = detail


class JobContext:
    """What a job may use. Made once per process, after the fork.

    `parameters` is the job's own dictionary from the run process; `folder` its private folder (the source lies there as
    `kernel.py`, TMPDIR and TRITON_CACHE_DIR below it), removed after the job; `device` where tensors go ("cpu" or
    "cuda:0", which is the lane's GPU whatever its number); `isolation` what `sandbox` put in force.
    """

    def __init__(self, channel: socket.socket, order: dict[str, Any], isolation: dict[str, str]) -> None:
        self.kind = str(order["kind"])
        self.parameters: dict[str, Any] = order["parameters"]
        self.entry_name = str(order["entry"])
        self.folder = Path(order["folder"])
        self.problem_folder = Path(order["problem_folder"])
        self.device = gpus.only(str(order["device"]))
        self.isolation = isolation
        self.stage = "start"
        self._channel = channel
        self._reader = FrameReader(channel)
        self._module: ModuleType | None = None

    def load(self) -> Callable[..., Any]:
        """Import the candidate and return its entry callable; `module` is set. Set drivers before, not after.

        The source takes the place of the problem's kernel.py, so that its package-relative imports resolve alike.
        Raises CandidateFault("invalid", "load", ...) when the source does not import or has no such entry.
        """
        from kbtui.problems.importing import load_source_file

        self.stage = "load"
        sys.meta_path.insert(0, ProblemGuard(self.problem_folder))
        try:
            self._module = load_source_file(self.problem_folder, "kernel", self.folder / "kernel.py")
        except ProblemHidden as hidden:
            raise CandidateFault("cheat", "load", str(hidden)) from hidden
        except BaseException as error:  # a module may raise anything, SystemExit too
            raise CandidateFault("invalid", "load", f"importing it raises {said(error)}", formatted(error)) from error
        entry = getattr(self._module, self.entry_name, None)
        if not callable(entry):
            raise CandidateFault("invalid", "load", f"it has no function called {self.entry_name}")
        found: Callable[..., Any] = entry
        return found

    @property
    def module(self) -> ModuleType:
        """The candidate's module. RuntimeError before `load`."""
        if self._module is None:
            raise RuntimeError("the candidate is not loaded yet: call load() first")
        return self._module

    def say(self, stage: str, text: str = "") -> None:
        """Progress for whoever watches, unless there is no `text`; `stage` is also what a crash or a hang is attributed to."""
        self.stage = stage
        send_frame(self._channel, {"type": "say", "stage": stage, "text": text})

    def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Ask the run process and wait for its answer (JSON in, JSON out). The answer's descriptors are closed."""
        answer, descriptors = self.request_with_descriptors(kind, **fields)
        for descriptor in descriptors:
            os.close(descriptor)
        return answer

    def request_with_descriptors(self, kind: str, **fields: Any) -> tuple[dict[str, Any], list[int]]:
        """Like `request`; the descriptors are the caller's to close."""
        send_frame(self._channel, {"type": "ask", "what": kind, "fields": fields})
        return self._reader.next()

    def inputs(self, case: int) -> tuple[Any, ...]:
        """The positional arguments of the entry for the job's case of that number: tensors on `device` and scalars.

        Every call gives fresh storage with the same values.
        """
        return self._arguments("inputs", case)

    def shaped_inputs(self, case: int) -> tuple[Any, ...]:
        """Arguments of which only small tensors (indices, lengths) have values; large ones are undefined, integers zero.

        For jobs that look at addresses and not at numbers: nothing of the large ones is ever filled or copied.
        """
        return self._arguments("shaped", case)

    def _arguments(self, kind: str, case: int) -> tuple[Any, ...]:
        from kbtui.evaluate.inlane import cuda_ipc
        from kbtui.evaluate.inlane.tensors import arguments_from

        answer, descriptors = self.request_with_descriptors(kind, case=case)
        if "memory" in answer:
            return cuda_ipc.arguments_from(answer["arguments"], answer["memory"], self.device)
        try:
            return arguments_from(answer["arguments"], descriptors, answer["size"], self.device)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def describe_inputs(self, case: int) -> list[dict[str, Any]]:
        """The same arguments without values: {"empty": {"dtype", "shape", "strides", "span", "offset"}} (`tensors`) or
        {"value": scalar} or {"float": repr}."""
        found: list[dict[str, Any]] = self.request("describe", case=case)["arguments"]
        return found

    def empty_inputs(self, case: int) -> tuple[Any, ...]:
        """Arguments of the right dtypes, shapes and strides with undefined values (compile needs no values)."""
        from kbtui.evaluate.inlane.tensors import arguments_from

        return arguments_from(self.describe_inputs(case), (), 0, self.device)

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> dict[str, Any]:
        """Send a message of a type of its own and wait for the answer. For `verify`, which hands outputs over."""
        send_frame(self._channel, message, descriptors)
        return self._reader.next()[0]


class ProblemHidden(ImportError):
    """The candidate tried to import the problem's oracle."""


class ProblemGuard(importlib.abc.MetaPathFinder):
    """Refuses to import `problem.py`: a candidate that had `reference` could return its result."""

    def __init__(self, problem_folder: Path) -> None:
        from kbtui.problems.importing import import_name

        _, package = import_name(problem_folder)
        self._names = {"problem", f"{package}.problem" if package else "problem"}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """None, or ProblemHidden for the problem's own module."""
        del path, target
        if name in self._names:
            raise ProblemHidden("it imports the problem's reference", name=name)
        return None


def run_job(channel: socket.socket, order: dict[str, Any], role: str) -> int:
    """Isolate this process, run the job, send what it returns. The exit status of the process."""
    from kbtui.evaluate.inlane.jobs import find_job

    os.chdir(order["folder"])
    isolation = isolate(order, role)
    ctx = JobContext(channel, order, isolation)
    try:
        value = find_job(ctx.kind)(ctx)
        message = {"type": "done", "value": value}
        if len(encode(message)) > MAX_FRAME:
            raise FrameError(f"the reply of the job {ctx.kind} is over {MAX_FRAME} bytes")
    except CandidateFault as fault:
        message = _fault(fault, ctx.folder)
    except BaseException as error:  # noqa: BLE001  a process boundary: the run process decides what it means
        message = _fault(CandidateFault("crash", ctx.stage, said(error), formatted(error)), ctx.folder)
    send_frame(channel, message)
    return 0


def _fault(fault: CandidateFault, folder: Path) -> dict[str, Any]:
    """The message. The job's folder is of the moment: paths in it are shown from there on."""
    return {
        "type": "fault",
        "outcome": fault.outcome,
        "stage": fault.stage[:64],
        "reason": fault.reason.replace(f"{folder}{os.sep}", "")[:1000],
        "detail": fault.detail.replace(f"{folder}{os.sep}", "")[-DETAIL_CHARACTERS:],
    }


def isolate(order: dict[str, Any], role: str) -> dict[str, str]:
    """Private folders and every measure of `sandbox` that holds here: name -> "on" or the reason why it is off."""
    folder = Path(order["folder"])
    for name, variable in (("tmp", "TMPDIR"), ("home", "HOME"), ("cache", "TRITON_CACHE_DIR")):
        path = folder / name
        path.mkdir(exist_ok=True)
        os.environ[variable] = str(path)
    os.environ["TRITON_HOME"] = str(folder / "home")
    kept = [order["cache"]] if order.get("cache") else []
    if kept:  # of this source alone, for the processes that it runs in one after the other
        os.environ["TRITON_CACHE_DIR"] = kept[0]
    if kept and role == "device":  # what was tuned stays tuned; a compile job's "tuning" measures nothing
        os.environ["TRITON_CACHE_AUTOTUNING"] = "1"
    tempfile.tempdir = None  # found before the fork, in the zygote's folder
    measures = {
        "no new privileges": sandbox.attempt(sandbox.no_new_privileges),
        "core files": sandbox.attempt(sandbox.no_core_files),
    }
    writable = [str(folder), *kept, *(DEVICE_FOLDERS if role == "device" else ("/dev/null",))]
    measures["landlock"] = sandbox.attempt(lambda: sandbox.restrict_files(_readable(order), writable))
    measures["capabilities"] = sandbox.attempt(sandbox.drop_capabilities)
    if role != "device" and order["memory_bytes"]:
        # generous: inputs that are never touched cost no memory; what is touched the zygote counts
        most = ADDRESS_SPACE_FACTOR * int(order["memory_bytes"])
        measures["address space"] = sandbox.attempt(lambda: sandbox.limit_address_space(most))
    return measures


def _readable(order: dict[str, Any]) -> Iterator[str]:
    """What a candidate may read: the system, what Python itself needs (its prefixes, what `sys.path` holds), of kbtui the parts
    that belong into a lane, and what the order names. Never the problem's own folder as a whole, which holds its oracle."""
    hidden = Path(order["problem_folder"]).resolve()
    ours = [PACKAGE / "evaluate" / "inlane", PACKAGE / "problems" / "format.py", PACKAGE / "problems" / "importing.py"]
    ours += [PACKAGE / "__init__.py", PACKAGE / "evaluate" / "__init__.py", PACKAGE / "problems" / "__init__.py"]
    yield from map(str, ours)
    yield from order["readable"]
    for path in dict.fromkeys((*SYSTEM_FOLDERS, sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path)):
        if path:
            yield from sandbox.paths_without(Path(path).resolve(), hidden)


def empty(ctx: JobContext) -> dict[str, Any]:
    """The job that does nothing: what a process costs."""
    return {"kind": ctx.kind}


def probe(ctx: JobContext) -> dict[str, Any]:
    """The job that does nothing but look around: what a process costs, and which isolation holds, found by trying.

    Parameters: `run_pid`, the process whose environment must stay hidden. Reply: `isolation` and the names in `environment`.
    """
    found = dict(ctx.isolation)
    found["no new privileges"] = sandbox.no_new_privileges_state()
    if found["landlock"] == "on":
        found["landlock"] = sandbox.file_state(ctx.folder.parent)
    if ctx.device == "cpu":
        found["network namespace"] = sandbox.network_state()
    found["temporary folder"] = "on" if tempfile.gettempdir() == str(ctx.folder / "tmp") else "off: not in use"
    found["run process hidden"] = sandbox.hidden_state(int(ctx.parameters["run_pid"]))
    return {"isolation": found, "environment": sorted(os.environ)}
