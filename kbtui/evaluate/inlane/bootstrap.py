"""Start of every lane process, under the user's interpreter: `python -I -B bootstrap.py ROLE DESCRIPTOR`.

kbtui need not be installed there. A finder makes the few modules of ours that a lane needs importable from the folder
this file lies in, and refuses all others; nothing of our own environment gets onto `sys.path`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parents[2]
ALLOWED = ("kbtui.problems.format", "kbtui.problems.importing", "kbtui.problems.suites", "kbtui.evaluate.inlane")
OLDEST = (3, 10)


class LaneFinder(importlib.abc.MetaPathFinder):
    """Finds the parts of kbtui that belong into a lane, and says of the rest that a lane has none of it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of an allowed module, None for modules that are not kbtui's, else ModuleNotFoundError."""
        del path, target
        if name.partition(".")[0] != "kbtui":
            return None
        if not any((allowed + ".").startswith(name + ".") or name.startswith(allowed + ".") for allowed in ALLOWED):
            raise ModuleNotFoundError(f"{name} is not part of a lane", name=name)
        base = PACKAGE.parent.joinpath(*name.split("."))
        if base.is_dir():
            return importlib.util.spec_from_file_location(
                name, base / "__init__.py", submodule_search_locations=[str(base)]
            )
        return importlib.util.spec_from_file_location(name, base.with_suffix(".py"))


def main(role: str, descriptor: int) -> int:
    """Serve as oracle or zygote until the other end closes. Exit status 0, or 1 when this interpreter will not do."""
    sys.meta_path.insert(0, LaneFinder())
    from kbtui.evaluate.inlane.frames import PeerGone, send_frame

    control = socket.socket(fileno=descriptor)
    try:
        missing = unusable()
        if missing:
            send_frame(control, {"unusable": missing})
            return 1
        if role == "oracle":
            from kbtui.evaluate.inlane.oracle import serve
        else:
            from kbtui.evaluate.inlane.zygote import serve
        serve(control, role)
    except PeerGone:
        pass  # the run process is gone, and with it everybody who wanted something
    return 0


def unusable() -> str:
    """Why no lane can run under this interpreter: what is missing, or ""."""
    if sys.version_info < OLDEST:
        return f"Python {OLDEST[0]}.{OLDEST[1]} or newer, it is {sys.version_info[0]}.{sys.version_info[1]}"
    return next((name for name in ("torch", "triton", "numpy") if importlib.util.find_spec(name) is None), "")


if __name__ == "__main__":
    status = main(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # nothing is left to tidy up, and torch takes a second for it
