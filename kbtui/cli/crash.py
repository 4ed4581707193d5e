"""The report of a failure that nobody expected: versions, terminal, what happened last and traceback, freed of secrets.

It goes into the data folder."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from importlib import metadata
from pathlib import Path

from kbtui import __version__, clock, paths
from kbtui.errors import Crash
from kbtui.text import clean, clean_line, redact

_PACKAGES = ("textual", "typer", "msgspec", "duckdb", "numpy", "scikit-learn", "libcst", "torch", "triton", "litellm")


def write_report(error: BaseException) -> Path:
    """Write the report; its path. Raises OSError when the data folder cannot be written."""
    folder = paths.data_dir() / "crashes"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock.wall()))
    path = folder / f"{stamp}-{os.getpid()}.txt"
    path.write_text(clean(redact(_report(error))), encoding="utf-8", errors="replace")
    return path


def reported(error: BaseException) -> str:
    """Write the report, and the sentence that says so."""
    bug = (error.__cause__ or error) if isinstance(error, Crash) else error
    what = clean_line(redact(f"{type(bug).__name__}: {bug}"), 160)
    try:
        where = f"the report is in {write_report(error)}"
    except OSError as unwritable:
        where = f"its report could not be written ({unwritable.strerror}); KBTUI_DEBUG=1 shows the traceback"
    return f"this is a bug in kbtui ({what}); {where}"


def _report(error: BaseException) -> str:
    lines = [
        f"kbtui {__version__}, Python {platform.python_version()}, {platform.platform()}",
        ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        f"command: {' '.join(sys.argv)}",
        f"terminal: TERM={os.environ.get('TERM', '')} tty={sys.stdout.isatty()}",
        "",
        *(error.facts if isinstance(error, Crash) else ()),
        "",
        *traceback.format_exception(error.__cause__ or error if isinstance(error, Crash) else error),
    ]
    return "\n".join(lines)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"
