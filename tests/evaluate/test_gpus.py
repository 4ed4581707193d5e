"""A process of a lane sees the lane's GPU as cuda:0. Pure: what the environment and the name become."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kbtui.evaluate.inlane.gpus import VISIBLE, only


@pytest.mark.parametrize(
    ("device", "shown", "name", "then"),
    [
        ("cpu", None, "cpu", None),
        ("cpu", "1,2", "cpu", "1,2"),
        ("cuda:0", None, "cuda:0", None),
        ("cuda:0", "3,1", "cuda:0", "3,1"),
        ("cuda:1", None, "cuda:0", "1"),
        ("cuda:7", None, "cuda:0", "7"),
        ("cuda:1", "3,1", "cuda:0", "1"),
        ("cuda:1", "GPU-a, GPU-b", "cuda:0", "GPU-b"),
        ("cuda:2", "3,1", "cuda:2", "3,1"),
        ("cuda:1", "", "cuda:1", ""),
    ],
)
def test_the_lanes_gpu_is_the_only_one(device: str, shown: str | None, name: str, then: str | None) -> None:
    environment = {} if shown is None else {VISIBLE: shown}
    assert only(device, environment) == name
    assert environment.get(VISIBLE) == then
    assert only(name, environment) == name, "once more changes nothing"


def test_a_jobs_process_works_on_its_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    from kbtui.evaluate.inlane.candidate import JobContext

    monkeypatch.delenv(VISIBLE, raising=False)
    monkeypatch.setitem(os.environ, "KEEP", "1")  # restores what `only` sets, too
    ours, theirs = socket.socketpair()
    order = {
        "kind": "verify", "parameters": {}, "entry": "f", "folder": str(tmp_path), "problem_folder": str(tmp_path),
        "device": "cuda:3",
    }  # fmt: skip
    with ours, theirs:
        context = JobContext(ours, order, {})
    assert context.device == "cuda:0"
    assert os.environ.pop(VISIBLE) == "3"


def test_importing_torch_and_triton_looks_at_no_device() -> None:
    """Else a zygote's children could not choose theirs any more."""
    pytest.importorskip("triton", reason="needs triton")
    code = (
        "import torch, triton, triton.language\n"
        "assert not torch.cuda.is_initialized()\n"
        "assert torch.cuda._cached_device_count is None\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
