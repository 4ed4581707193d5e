"""Which device a run takes when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtui.engine import devices
from kbtui.engine.devices import choose_device
from kbtui.errors import UsageError
from kbtui.telemetry.nvml import GpuUnavailable


@pytest.fixture(autouse=True)
def no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(_: object) -> int:
        raise GpuUnavailable("no NVIDIA driver: libnvidia-ml.so not found")

    monkeypatch.setattr(devices, "gpu_count", count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_without_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "nvidiactl").touch()
    assert choose_device("", tmp_path) == "cpu"


def test_a_device_file_counts_though_the_driver_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert choose_device("", tmp_path) == "cuda:0"


def test_a_driver_that_answers_counts_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpu_count", lambda _: 1)
    assert choose_device("", tmp_path) == "cuda:0"
    monkeypatch.setattr(devices, "gpu_count", lambda _: 0)
    assert choose_device("", tmp_path) == "cpu"


@pytest.mark.parametrize("hidden", ["", "-1", " "])
def test_hidden_gpus_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    assert choose_device("", tmp_path) == "cpu"


@pytest.mark.parametrize(("asked", "got"), [("cpu", "cpu"), ("cuda", "cuda:0"), ("cuda:3", "cuda:3")])
def test_what_is_asked_for_is_taken(tmp_path: Path, asked: str, got: str) -> None:
    assert choose_device(asked, tmp_path) == got


@pytest.mark.parametrize("nonsense", ["gpu", "cuda:", "cuda:x", "cuda:0,1", "CPU"])
def test_nonsense_is_refused(tmp_path: Path, nonsense: str) -> None:
    with pytest.raises(UsageError, match="--device"):
        choose_device(nonsense, tmp_path)
