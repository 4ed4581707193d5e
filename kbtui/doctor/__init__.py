"""What this machine offers a run and what it lacks, each with its remedy: the substance of `kbtui doctor`.

Nothing here imports torch or triton: the lane's interpreter is asked in a process of its own.
"""

from __future__ import annotations

import platform

from kbtui import __version__
from kbtui.config import Settings
from kbtui.doctor.finding import Finding, State
from kbtui.doctor.gpu import gpu_findings
from kbtui.doctor.lanes import lane_findings
from kbtui.doctor.machine import data_finding, database_finding, isolation_findings, ray_finding
from kbtui.doctor.session import clipboard_finding, keys_finding, logout_finding, terminal_finding

__all__ = ["Finding", "State", "examine"]


def examine(settings: Settings) -> list[Finding]:
    """Look at everything. Takes a few seconds, most of them in the lane interpreter's import of torch."""
    return [
        _kbtui(),
        *lane_findings(settings.interpreter, settings.target),
        *gpu_findings(),
        *isolation_findings(),
        data_finding(),
        database_finding(),
        ray_finding(settings.lanes),
        terminal_finding(),
        clipboard_finding(),
        logout_finding(),
        keys_finding(),
    ]


def _kbtui() -> Finding:
    return Finding(
        "kbtui", "ok", f"{__version__} on Python {platform.python_version()}, {platform.system()} {platform.release()}"
    )
