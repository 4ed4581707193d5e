"""What this machine offers a run and what it lacks, each with its remedy: the substance of `kbtui doctor`.

Nothing here imports torch or triton: the lane's interpreter is asked in a process of its own.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import msgspec

from kbtui import __version__, paths
from kbtui.config import Settings
from kbtui.errors import KbtuiError
from kbtui.text import clean_line

State = Literal["ok", "limits", "fails", "absent"]
"""`limits`: a run works, with less. `fails`: a run would fail. `absent`: not there, and not needed for every run."""

NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p", "afs"})
LEAST_FREE_BYTES = 1 << 30
LEAST_TORCH, LEAST_TRITON = (2, 6), (3, 2)
PROBE_TIMEOUT_S = 120.0
"""Importing torch from a cold network disk can take a minute."""

_PROBE = """
import importlib.metadata, json, sys
found = {"python": ".".join(map(str, sys.version_info[:3]))}
for name in ("torch", "triton", "numpy"):
    try:
        __import__(name)
        found[name] = importlib.metadata.version(name)
    except Exception as error:
        found[name + "_error"] = f"{type(error).__name__}: {error}"
if "torch" in found:
    import torch
    found["cuda"] = bool(torch.cuda.is_available())
print(json.dumps(found))
"""


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


class Finding(msgspec.Struct, frozen=True):
    """One line of the report; `text` ends with the remedy where there is something to mend."""

    subject: str
    state: State
    text: str


def examine(settings: Settings) -> list[Finding]:
    """Look at everything. Takes a few seconds, most of them in the lane interpreter's import of torch."""
    return [
        _kbtui(),
        *lane_findings(settings.interpreter),
        *_gpu(),
        *_isolation(),
        data_finding(),
        _database(),
        _terminal(),
    ]


def _kbtui() -> Finding:
    return Finding(
        "kbtui", "ok", f"{__version__} on Python {platform.python_version()}, {platform.system()} {platform.release()}"
    )


# ---------------------------------------------------------------- the interpreter of the lanes


def lane_findings(python: str) -> list[Finding]:
    """The interpreter at `python` and what it imports, asked in a process of its own."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
        )
        found = json.loads(done.stdout.splitlines()[-1])
    except OSError as error:
        return [
            Finding("lane", "fails", f"{python} cannot be started ({error.strerror}): name an interpreter by --python")
        ]
    except subprocess.TimeoutExpired:
        return [Finding("lane", "fails", f"{python} did not import torch and triton within {PROBE_TIMEOUT_S:.0f} s")]
    except (IndexError, json.JSONDecodeError):
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return [Finding("lane", "fails", f"{python} did not answer: {clean_line(last, 200)}")]
    return [Finding("lane", "ok", f"{python}, Python {found['python']}"), *_packages(python, found)]


def _packages(python: str, found: dict[str, str]) -> list[Finding]:
    findings = []
    for name, least in (("torch", LEAST_TORCH), ("triton", LEAST_TRITON)):
        version = found.get(name)
        wanted = ".".join(map(str, least))
        if version is None:
            why = clean_line(found.get(f"{name}_error", "not installed"), 200)
            text = f"{name} does not import ({why}): install {name} {wanted} or newer for {python}, or name another by --python"
            findings.append(Finding(name, "fails", text))
        elif _numbers(version) < least:
            findings.append(Finding(name, "fails", f"{version} is too old: {wanted} or newer is needed"))
        else:
            findings.append(Finding(name, "ok", version))
    if _numbers(found.get("triton", "")) == (3, 6) and _numbers(found.get("numpy", "")) >= (2, 4):
        text = f"the interpreter of triton {found['triton']} fails with numpy {found['numpy']}: the cpu lane needs numpy < 2.4"
        findings.append(Finding("numpy", "limits", text))
    return findings


def _numbers(version: str) -> tuple[int, ...]:
    """(2, 13) of "2.13.0+cpu"; () of ""."""
    return tuple(int(piece) for piece in version.split(".")[:2] if piece.isdigit())


# ---------------------------------------------------------------- the GPU


def _gpu() -> list[Finding]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [
            Finding("gpu", "absent", f"no usable NVIDIA driver ({error}): runs use the cpu lane, times are modelled")
        ]
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        devices = [_device(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return [Finding("gpu", "limits", f"the driver answers in part ({error})")]
    finally:
        pynvml.nvmlShutdown()
    if not devices:
        return [Finding("gpu", "absent", f"driver {driver}, no device: runs use the cpu lane, times are modelled")]
    return [Finding("gpu", "ok", f"driver {driver}"), *devices]


def _device(nvml: Any, index: int) -> Finding:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name = clean_line(nvml.nvmlDeviceGetName(handle))
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    gib = 1 << 30
    try:
        others = len(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except nvml.NVMLError as error:
        return Finding(
            f"cuda:{index}", "ok", f"{name}, {memory.total / gib:.0f} GiB; its processes are unknown ({error})"
        )
    text = f"{name}, {memory.free / gib:.0f} of {memory.total / gib:.0f} GiB free"
    if others:
        return Finding(
            f"cuda:{index}", "limits", f"{text}, {others} other processes: times will be noisy while they run"
        )
    return Finding(f"cuda:{index}", "ok", text)


# ---------------------------------------------------------------- isolation, folders, database, terminal


def _isolation() -> list[Finding]:
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


def _database() -> Finding:
    version = metadata.version("duckdb")
    file = paths.history_file()
    if not file.exists():
        return Finding("history", "ok", f"duckdb {version}, no database yet")
    from kbtui.history.database import History

    try:
        runs = History().sql("select count(*) from runs").rows[0][0]
    except KbtuiError as error:
        return Finding("history", "limits", f"duckdb {version}: {error}")
    return Finding("history", "ok", f"duckdb {version}, {file}, {runs} runs")


def _terminal() -> Finding:
    from kbtui.tui.terminal import describe_terminal, require_terminal

    size = shutil.get_terminal_size()
    try:
        require_terminal("kbtui", "`kbtui run --headless` works without one")
    except KbtuiError as error:
        return Finding("terminal", "absent", str(error))
    seen = describe_terminal()
    glyphs = "ASCII glyphs" if seen.ascii else "UTF-8"
    return Finding(
        "terminal", "ok", f"TERM={os.environ['TERM']}, {size.columns}x{size.lines}, {glyphs}, {seen.colours} colours"
    )
