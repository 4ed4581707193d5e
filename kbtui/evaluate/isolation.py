"""What lane processes get of our surroundings, and how the run process hides from them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from kbtui.evaluate.inlane import sandbox
from kbtui.problems.importing import PROBLEM, import_name

_KEPT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "TRITON_PTXAS_PATH",
    "TRITON_LIBCUDA_PATH",
    "TRITON_DEFAULT_FP_FUSION",
    "CC",
)
"""Nothing outside this list reaches a lane: an allow-list knows no name of a key to forget."""
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)
ORACLE_THREADS = "2"


def kept_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The part of our surroundings that may reach a lane."""
    return {name: environment[name] for name in _KEPT if name in environment}


def lane_environment(role: str, home: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a lane process. A zygote computes with one thread: it could not fork safely otherwise."""
    kept = kept_environment(environment)
    threads = ORACLE_THREADS if role == "oracle" else "1"
    kept.update(dict.fromkeys(_ONE_THREAD, threads))
    kept.update({"HOME": str(home), "TMPDIR": str(home), "TRITON_CACHE_DIR": str(home / "triton")})
    # What Triton does anyway; unset, newer ones warn, and the warning would stand where a candidate's last words are looked for.
    kept.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    return kept


def harden_run_process() -> str:
    """Make this process not dumpable, so that a candidate of the same user cannot read keys from its /proc/<pid>/environ.

    "on", or why it is off. It also keeps debuggers and core dumps away, hence called by run processes only.
    """
    return sandbox.attempt(sandbox.not_dumpable)


def readable_around(folder: Path) -> Iterator[str]:
    """What a candidate may read of its problem: the folder's files and its package, without problem.py."""
    root, package = import_name(folder)
    hidden = folder.resolve()
    if package:
        yield from sandbox.paths_without(root / package.partition(".")[0], hidden)
    yield from (str(entry) for entry in sorted(hidden.iterdir()) if entry.name not in (PROBLEM, "__pycache__"))
