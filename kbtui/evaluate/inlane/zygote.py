"""The zygote: imports torch and triton, then only forks. One forked process per job, watched, ended and swept here.

It never computes: one threaded torch operation before a fork can hang every child. It is the subreaper of its
descendants, so that a process that left its group by a double fork and `setsid` is still found when its job ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from kbtui.evaluate.inlane import jobs, sandbox
from kbtui.evaluate.inlane.frames import FrameReader, send_frame

TICK_S = 0.05
DISK_EVERY_S = 0.5
"""A job's folder is measured so often; a walk through a few files of Triton's cache takes well under a millisecond."""
_PAGE = resource.getpagesize()


@dataclass
class Running:
    """A job that runs: its process leads its own session, `ends` is its deadline on the monotonic clock."""

    number: int
    pid: int
    ends: float
    memory_bytes: int
    folder: str
    disk_bytes: int
    measured: float = 0.0
    peak_bytes: int = 0
    reason: str = ""


def serve(control: socket.socket, role: str) -> None:
    """Import what the role needs, say so, then fork one process for each job until the run process closes `control`."""
    if role == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported, and bound for good
    import torch
    import triton
    from triton.runtime.jit import mangle_type

    jobs.preload(role)
    mangle_type(1)  # imports what the first launch would, in every child again
    _hash_triton()
    from kbtui.evaluate.inlane.launches import know_libraries  # it imports torch

    know_libraries()
    isolation = _isolate(role)
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        send_frame(control, {"threads": threads})
        return
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page of the parent
    versions = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        "numpy": sys.modules["numpy"].__version__ if "numpy" in sys.modules else "",
    }
    send_frame(control, {"ready": {"pid": os.getpid(), "versions": versions, "isolation": isolation}})
    _Forker(control, role).serve()


def _hash_triton() -> None:
    """Have Triton hash its own files, a third of a second, once here and not again in every child before its first launch."""
    import importlib

    for name in ("triton.runtime.cache", "triton.compiler.compiler"):  # newer versions, older ones
        key = getattr(importlib.import_module(name), "triton_key", None)
        if key is not None:
            key()
            return


def _isolate(role: str) -> dict[str, str]:
    measures = {"descendants": sandbox.attempt(sandbox.become_subreaper)}
    if role == "device":
        # whether CUDA works in a user namespace depends on how the driver was set up; Landlock refuses TCP there
        measures["network namespace"] = "off: not used on a device lane"
    else:
        measures["network namespace"] = sandbox.attempt(sandbox.leave_network)
    return measures


class _Forker:
    def __init__(self, control: socket.socket, role: str) -> None:
        self._control = control
        self._reader = FrameReader(control)
        self._role = role
        self._running: dict[int, Running] = {}
        self._wake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, _notice)  # without a handler the wakeup descriptor stays silent

    def serve(self) -> None:
        try:
            while True:
                timeout = TICK_S if self._running else None
                ready, _, _ = select.select([self._control.fileno(), self._wake], [], [], timeout)
                if self._wake in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
                if self._control.fileno() in ready:
                    for body, descriptors in self._reader.pump():
                        self._command(json.loads(body), descriptors)
                self._reap()
                self._watch()
        finally:
            for job in self._running.values():
                _kill_group(job.pid)
            self._sweep(keep=set())

    def _command(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "job" in message:
            self._start(message["job"], descriptors)
        elif "kill" in message:
            for job in self._running.values():
                if job.number == message["kill"]:
                    self._end(job, "killed")

    def _start(self, order: dict[str, Any], descriptors: list[int]) -> None:
        channel, output = descriptors
        pid = os.fork()
        if pid == 0:
            self._become_candidate(order, channel, output)
        os.close(channel)
        os.close(output)
        ends = time.monotonic() + float(order["deadline_s"])
        self._running[pid] = Running(
            int(order["number"]), pid, ends, int(order["memory_bytes"]), str(order["folder"]), int(order["disk_bytes"])
        )
        send_frame(self._control, {"started": {"number": order["number"], "pid": pid}})

    def _become_candidate(self, order: dict[str, Any], channel: int, output: int) -> None:
        """In the child, never returns. What leads out of here is `_exit`, so that nothing of the zygote's runs twice."""
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            parent = os.getppid()
            sandbox.die_with_parent()
            if os.getppid() != parent:
                os._exit(status)
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(channel, 3)
            os.closerange(4, 1 << 16)
            self._control.detach()
            from kbtui.evaluate.inlane.candidate import run_job

            status = run_job(socket.socket(fileno=3), order, self._role)
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001  the last frame of the process: nothing may unwind into the zygote's loop
            import traceback

            with contextlib.suppress(OSError, ValueError):
                os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        finally:
            os._exit(status)

    def _watch(self) -> None:
        now = time.monotonic()
        for job in list(self._running.values()):
            used = sum(_resident(pid) for pid in _tree(job.pid))
            job.peak_bytes = max(job.peak_bytes, used)
            if job.memory_bytes and used > job.memory_bytes:
                self._end(job, "memory")
            elif now > job.ends:
                self._end(job, "deadline")
            elif job.disk_bytes and now > job.measured + DISK_EVERY_S:
                job.measured = now
                if _disk_bytes(job.folder) > job.disk_bytes:
                    self._end(job, "disk")

    def _end(self, job: Running, reason: str) -> None:
        job.reason = job.reason or reason
        _kill_group(job.pid)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            job = self._running.pop(pid, None)
            if job is not None:
                self._report(job, status, usage.ru_maxrss * 1024)

    def _report(self, job: Running, status: int, peak: int) -> None:
        swept = self._sweep(keep=set(self._running))
        code = os.waitstatus_to_exitcode(status)
        send_frame(
            self._control,
            {
                "ended": {
                    "number": job.number,
                    "status": code if code >= 0 else None,
                    "signal": -code if code < 0 else None,
                    "reason": job.reason,
                    "swept": swept,
                    "peak_bytes": max(peak, job.peak_bytes),
                }
            },
        )

    def _sweep(self, keep: set[int]) -> int:
        """Kill and reap every child that is no running job: what a job left behind has become ours. Returns how many."""
        swept: set[int] = set()
        # a bound: something that forks faster than it is killed must not hold the zygote for ever
        for _ in range(1000):
            strays = [pid for pid in _children(os.getpid()) if pid not in keep]
            if not strays:
                break
            for pid in strays:
                _kill(pid)
            for pid in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
                swept.add(pid)
        return len(swept)


def _notice(*_: object) -> None:
    """A child changed state; the wakeup descriptor tells the loop."""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    """The process and its group; the group may not exist yet, or no longer hold the process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    _kill(pid)


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listing:
            return [int(child) for child in listing.read().split()]
    except FileNotFoundError:
        return [child for child, parent in _parents() if parent == pid]


def _parents() -> list[tuple[int, int]]:
    """(pid, parent) of every process: for kernels that list no children."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as stat:
                found.append((int(name), int(stat.read().rpartition(")")[2].split()[1])))
    return found


def _tree(pid: int) -> list[int]:
    """A process and its descendants of the moment."""
    found, todo = [], [pid]
    while todo:
        current = todo.pop()
        found.append(current)
        with contextlib.suppress(OSError):
            todo.extend(_children(current))
    return found


def _disk_bytes(folder: str) -> int:
    """Bytes of the files below a folder; what goes while it is looked at does not count."""
    total, todo = 0, [folder]
    while todo:
        with contextlib.suppress(OSError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def _resident(pid: int) -> int:
    """Bytes of memory that are the process's own, without pages it shares with files and memfds; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as statm:
            fields = statm.read().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE
