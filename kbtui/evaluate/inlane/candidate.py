"""The inside of a candidate process: what a job is given, and how it talks to the run process.

Everything here runs beside code that is not trusted. The run process believes nothing of it beyond a strict schema, and
values only after the oracle compared them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


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
    `kernel.py`, TMPDIR and TRITON_CACHE_DIR below it), removed after the job; `device` where tensors go.
    """

    kind: str
    parameters: dict[str, Any]
    entry_name: str
    folder: Path
    device: str
    stage: str

    def load(self) -> Callable[..., Any]:
        """Import the candidate and return its entry callable; `module` is set. Set drivers before, not after.

        Raises CandidateFault("invalid", "load", ...) when the source does not import or has no such entry.
        """
        raise NotImplementedError

    @property
    def module(self) -> ModuleType:
        """The candidate's module. RuntimeError before `load`."""
        raise NotImplementedError

    def say(self, stage: str, text: str = "") -> None:
        """Progress for whoever watches; `stage` is also what a crash or a hang is attributed to."""
        raise NotImplementedError

    def request(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Ask the run process and wait for its answer (JSON in, JSON out)."""
        raise NotImplementedError

    def inputs(self, case: int) -> tuple[Any, ...]:
        """The positional arguments of the entry for the job's case of that number: tensors on `device` and scalars.

        Every call gives fresh storage with the same values.
        """
        raise NotImplementedError

    def describe_inputs(self, case: int) -> list[dict[str, Any]]:
        """The same arguments without values: {"tensor": {"dtype": "float32", "shape": [..], "strides": [..],
        "offset": 0, "elements": n}} (elements of the storage span) or {"value": scalar}."""
        raise NotImplementedError

    def empty_inputs(self, case: int) -> tuple[Any, ...]:
        """Arguments of the right dtypes, shapes and strides with undefined values (compile needs no values)."""
        raise NotImplementedError

    def send_outputs(self, case: int, outputs: Any, *, call: int = 0, inputs: tuple[Any, ...] = ()) -> dict[str, Any]:
        """Hand outputs over in a sealed memfd for comparison; the answer is {"accepted": bool} and never a value."""
        raise NotImplementedError


def empty(ctx: JobContext) -> dict[str, Any]:
    """The job that does nothing: what a process costs."""
    return {"pid": os.getpid(), "kind": ctx.kind}
