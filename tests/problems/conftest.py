"""Running kernels in a process of their own: Triton binds to its interpreter, or to a driver, when it is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FLOORS = {"torch.float32": 1e-5, "torch.float16": 2e-3, "torch.bfloat16": 1.6e-2}


def _run_script(script: str, order: dict[str, Any], **variables: str) -> Any:
    """What `script` of this folder answers to `order`."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TRITON_")} | variables
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / script)],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        env=environment,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="session")
def interpret(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """`interpret(jobs)` runs them under Triton's interpreter; jobs and records as in run_kernels.py."""
    pytest.importorskip("triton", reason="kernels run only where Triton is installed")
    cache = str(tmp_path_factory.mktemp("triton"))

    def run(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        order = {"device": "cpu", "jobs": jobs}
        return list(_run_script("run_kernels.py", order, TRITON_INTERPRET="1", TRITON_CACHE_DIR=cache))

    return run


@pytest.fixture(scope="session")
def on_gpu() -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """As `interpret`, on the CUDA device."""

    def run(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return list(_run_script("run_kernels.py", {"device": "cuda", "jobs": jobs}))

    return run


@pytest.fixture(scope="session")
def compile_for(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, list[Path]], list[dict[str, Any]]]:
    """`compile_for(90, folders)` compiles the launches of all timed cases; records as in compile_kernels.py."""
    pytest.importorskip("triton", reason="kernels compile only where Triton is installed")
    cache = str(tmp_path_factory.mktemp("triton"))

    def run(capability: int, folders: list[Path]) -> list[dict[str, Any]]:
        order = {"capability": capability, "folders": [str(folder) for folder in folders]}
        return list(_run_script("compile_kernels.py", order, TRITON_CACHE_DIR=cache))

    return run


@pytest.fixture
def accept() -> Callable[[dict[str, Any]], None]:
    """`accept(record)` fails unless the output has the reference's form and lies within the usual floor of it."""

    def check(record: dict[str, Any]) -> None:
        assert record["out"] == record["expected"], record["case"]
        assert record["exact_dtype"] == "torch.float64", "the reference must stay in the dtype that it is fed"
        assert record["contiguous"], record["case"]
        assert record["untouched"], record["case"]
        assert record["error"] <= FLOORS[record["out"][0]], record["case"]

    return check
