"""What a candidate process can be asked to do: a table from the name of a job to the function that does it.

A job is `run(ctx: JobContext) -> dict`. It runs in a process forked for it alone, under the isolation of `sandbox`, and
what it returns goes to the run process as length-limited JSON. Modules are imported when first asked for, so that the
table costs nothing; a zygote imports the ones of its role before it forks (`PRELOAD`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext

Job = Callable[["JobContext"], dict[str, Any]]

JOBS: dict[str, str] = {
    "empty": "kbtui.evaluate.inlane.candidate:empty",
    "probe": "kbtui.evaluate.inlane.candidate:probe",
    "selftest": "kbtui.evaluate.inlane.selftest:run",
    "verify": "kbtui.evaluate.inlane.verify:run",
    "compile": "kbtui.evaluate.inlane.capture:run",
    "warm": "kbtui.evaluate.inlane.capture:warm",
    "count": "kbtui.evaluate.inlane.count:run",
    "survey": "kbtui.evaluate.inlane.survey:run",
    "time": "kbtui.evaluate.inlane.clock:run",
    "time_reference": "kbtui.evaluate.inlane.reference:run",
    "device": "kbtui.evaluate.inlane.device:run",
    "rehearse": "kbtui.evaluate.inlane.device:rehearse",
}

PRELOAD: dict[str, tuple[str, ...]] = {
    "interpret": ("selftest", "verify", "count", "survey"),
    "compile": ("compile", "warm"),
    "device": ("verify", "time", "device", "rehearse"),
}
"""Role of a zygote -> the jobs whose modules it imports before it forks."""


def find_job(kind: str) -> Job:
    """The function behind a job's name. Raises KeyError for an unknown name; ImportError is a bug of ours."""
    module, _, name = JOBS[kind].partition(":")
    found: Job = getattr(importlib.import_module(module), name)
    return found


def preload(role: str) -> None:
    """Import the modules of a role's jobs, so that each fork finds them in memory."""
    for kind in PRELOAD[role]:
        find_job(kind)
