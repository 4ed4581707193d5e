"""Isolation, folders and database: what a run needs of the machine besides Python and a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from kbtui import paths
from kbtui.doctor.finding import Finding
from kbtui.errors import KbtuiError
from kbtui.text import clean_line, plural

NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p", "afs"})
LEAST_FREE_BYTES = 1 << 30

_ISOLATION_PROBE = """
import json
from kbtui.evaluate.inlane import sandbox
version = sandbox.landlock_version()
print(json.dumps({
    "no privileges": sandbox.attempt(sandbox.no_new_privileges),
    "sweep": sandbox.attempt(sandbox.become_subreaper),
    "network": sandbox.attempt(sandbox.leave_network),
    "landlock": f"on, version {version}" if version else "off: this kernel has none, files outside a job's folder are open",
}))
"""


def isolation_findings() -> list[Finding]:
    """Each measure against candidates, tried."""
    # In a process of its own: each measure, once tried, holds for good.
    done = subprocess.run([sys.executable, "-c", _ISOLATION_PROBE], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [Finding("isolation", "limits", f"could not be tried: {clean_line(last, 200)}")]
    tried: dict[str, str] = json.loads(done.stdout)
    return [Finding(name, "ok" if held.startswith("on") else "limits", held) for name, held in tried.items()]


def data_finding() -> Finding:
    """The data folder: made if it is not there, its file system and its free space."""
    folder = paths.data_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Finding("data", "fails", f"{folder} cannot be made ({error.strerror}): point KBTUI_HOME elsewhere")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Finding("data", "fails", f"{folder} cannot be written: point KBTUI_HOME elsewhere")
    kind = filesystem(folder)
    text = f"{folder}, {kind or 'unknown file system'}, {free / (1 << 30):.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        return Finding("data", "limits", f"{text}: free some space or point KBTUI_HOME elsewhere")
    if kind in NETWORK_FILESYSTEMS:
        return Finding(
            "data", "limits", f"{text}: locks on a network file system may not hold, point KBTUI_HOME to a local disk"
        )
    return Finding("data", "ok", text)


def filesystem(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The type of the file system that holds `path`, such as `ext4` or `nfs4`; "" where the kernel does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    wanted, best, kind = path.resolve(), -1, ""
    for line in lines:
        mount, _, source = line.partition(" - ")
        point = Path(mount.split()[4].replace("\\040", " "))
        if wanted.is_relative_to(point) and len(point.parts) >= best:  # a later mount covers an earlier one
            best, kind = len(point.parts), source.split()[0]
    return kind


def database_finding() -> Finding:
    """The history database: readable, or who holds it."""
    version = metadata.version("duckdb")
    file = paths.history_file()
    if not file.exists():
        return Finding("history", "ok", f"duckdb {version}, no database yet")
    from kbtui.history.database import History

    try:
        runs = History().sql("select count(*) from runs").rows[0][0]
    except KbtuiError as error:
        return Finding("history", "limits", f"duckdb {version}: {error}")
    return Finding("history", "ok", f"duckdb {version}, {file}, {plural(runs, 'run')}")


def ray_finding(lanes: str) -> Finding:
    """Ray, which only runs with `--lanes ray` need; `lanes` is the setting."""
    try:
        version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        remedy = "pip install 'kbtui[ray]'"
        if lanes == "ray":
            return Finding("ray", "fails", f"not installed, and the setting `lanes` is ray: {remedy}")
        return Finding("ray", "ok", f"not installed; only --lanes ray needs it: {remedy}")
    return Finding("ray", "ok", version)
