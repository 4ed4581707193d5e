"""The interpreter of the lanes, and what it imports: asked in a process of its own, since nothing here loads torch."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from kbtui.doctor.finding import Finding
from kbtui.text import clean_line

LEAST_TORCH, LEAST_TRITON = (2, 6), (3, 2)
PROBE_TIMEOUT_S = 120.0
"""Importing torch from a cold network disk can take a minute."""

_PROBE = """
import importlib.metadata, json, os, re, subprocess, sys
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
    if found["cuda"]:
        found["targets"] = sorted({"sm_%d%d" % torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())})
if "triton" in found:
    import triton
    bundled = os.path.join(os.path.dirname(triton.__file__), "backends", "nvidia", "bin")
    named = os.environ.get("TRITON_PTXAS_PATH")
    tools = [named] if named else [os.path.join(bundled, name) for name in ("ptxas", "ptxas-blackwell")]
    known = set()
    for tool in tools:
        try:
            help_text = subprocess.run([tool, "--help"], capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.SubprocessError) as error:
            found["ptxas_error"] = f"{tool}: {error}"
        else:
            known |= set(re.findall(r"sm_\\d+", help_text))
    if known:
        found["ptxas"] = sorted(known, key=lambda name: int(name[3:]))
print(json.dumps(found))
"""


def lane_findings(python: str, target: str = "") -> list[Finding]:
    """The interpreter at `python` and what it imports; whether its ptxas knows the GPUs it sees, or `target` without one."""
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
    lane = Finding("lane", "ok", f"{python}, Python {found['python']}")
    return [lane, *_packages(python, found), *_ptxas(found, target)]


def _packages(python: str, found: dict[str, Any]) -> list[Finding]:
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


def _ptxas(found: dict[str, Any], target: str) -> list[Finding]:
    """Whether the assembler that Triton would call knows the GPU: an old one fails at the first compile, far from here."""
    if "triton" not in found:
        return []
    known = found.get("ptxas", [])
    if not known:
        why = clean_line(found.get("ptxas_error", "it names no target"), 200)
        return [Finding("ptxas", "fails", f"Triton's assembler does not answer ({why}): reinstall triton")]
    wanted = found.get("targets") or ([target] if target else [])
    lacking = [name for name in wanted if name not in known]
    if lacking:
        newest, gpus = known[-1], ", ".join(lacking)
        text = (
            f"knows no {gpus}, only up to {newest}: install a newer triton, or name a newer ptxas by TRITON_PTXAS_PATH"
        )
        return [Finding("ptxas", "fails", text)]
    return [Finding("ptxas", "ok", f"knows {', '.join(wanted) or 'up to ' + known[-1]}")]
