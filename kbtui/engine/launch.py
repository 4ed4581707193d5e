"""Starting runs: detached in a process of their own (`start_run`), or here (`run_here`)."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable

import msgspec

from kbtui import clock, errors, paths
from kbtui.engine.ready import Ready
from kbtui.engine.spec import RunSpec, run_id_for
from kbtui.errors import EnvironmentFailure, KbtuiError
from kbtui.state.events import Event
from kbtui.state.records import Summary

READY_TIMEOUT_S = 300.0
"""Importing torch from a cold network disk takes a minute or two; longer means that something hangs."""


def start_run(spec: RunSpec, timeout_s: float = READY_TIMEOUT_S) -> str:
    """Start (or continue) a run in a detached process and return its id once the journal says that it started.

    The process has its own session and outlives this one; it writes its output to the run's `run.log`. Raises what the
    process raised before it was ready, in the same class (ProblemError, EnvironmentFailure, UsageError, ...).
    """
    spec.check()
    run_id = spec.run_id or run_id_for(spec.problem)
    spec = msgspec.structs.replace(spec, run_id=run_id)
    folder = paths.run_dir(run_id)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ready_read, ready_write = os.pipe()
    try:
        with open(folder / "run.log", "ab") as log:
            process = subprocess.Popen(
                # -P: a file in the user's working directory must not shadow a module of ours
                [sys.executable, "-P", "-m", "kbtui.engine.run_process", str(ready_write), msgspec.json.encode(spec)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(ready_write,),
                start_new_session=True,
            )
    except BaseException:
        os.close(ready_read)
        raise
    finally:
        os.close(ready_write)
    # Reaps the process if it ends before we do; otherwise init will.
    threading.Thread(target=process.wait, name=f"reap {run_id}", daemon=True).start()
    try:
        _await_ready(ready_read, run_id, timeout_s)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        raise
    finally:
        os.close(ready_read)
    return run_id


def run_here(spec: RunSpec, on_event: Callable[[Event], None]) -> Summary:
    """Do the whole run in this process, socket served too, calling `on_event` for every durable event.

    SIGINT and SIGTERM stop the run in good order, a second SIGINT at once. Raises KeyboardInterrupt after a SIGINT (the
    journal and the summary are complete then), and KbtuiError when the run cannot start or ends by an error.
    """
    from kbtui.engine.run_process import run_in_foreground

    return run_in_foreground(spec, on_event)


def _await_ready(descriptor: int, run_id: str, timeout_s: float) -> None:
    """Wait for the ready line. Raises the error in it, or EnvironmentFailure when none comes."""
    log = paths.run_dir(run_id) / "run.log"
    deadline = clock.monotonic() + timeout_s
    received = b""
    while not received.endswith(b"\n"):
        left = deadline - clock.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            raise EnvironmentFailure(f"run {run_id} was not ready within {timeout_s:g} s: see {log}")
        chunk = os.read(descriptor, 65536)
        if not chunk:
            raise EnvironmentFailure(f"the process of run {run_id} ended before it was ready: see {log}")
        received += chunk
    answer = msgspec.json.decode(received, type=Ready)
    if answer.error:
        raise _error_class(answer.kind)(answer.error)


def _error_class(name: str) -> type[KbtuiError]:
    found = getattr(errors, name, KbtuiError)
    return found if isinstance(found, type) and issubclass(found, KbtuiError) else KbtuiError
