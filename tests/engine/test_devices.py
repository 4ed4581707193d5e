"""Which device a run takes when nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtui.engine import devices
from kbtui.engine.devices import choose_device, choose_devices
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


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("cuda:0,cuda:1", ("cuda:0", "cuda:1")),
        ("cuda:0, cuda:2", ("cuda:0", "cuda:2")),
        ("cuda:1,0", ("cuda:1", "cuda:0")),
        ("cuda,3", ("cuda:0", "cuda:3")),
        ("cuda:1", ("cuda:1",)),
        ("cpu", ("cpu",)),
        ("cpu:1", ("cpu",)),
        ("cpu,cpu", ("cpu:0", "cpu:1")),
        ("cpu:0,cpu:1", ("cpu:0", "cpu:1")),
    ],
)
def test_several_are_taken_in_the_order_given(tmp_path: Path, asked: str, got: tuple[str, ...]) -> None:
    assert choose_devices(asked, tmp_path) == got
    assert choose_devices(",".join(got), tmp_path) == got, "what a journal keeps is read back as it is"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("cuda:0,cuda:0", "names cuda:0 twice: a device has one lane, name it once"),
        ("cuda:1,01", "names cuda:1 twice"),
        ("cpu,cuda:0", "cpu models times and a GPU measures them, a run does one or the other"),
        ("cuda:0,cpu", "cpu models times"),
        ("MIG-1f2e", "MIG-1f2e is a slice of a GPU, whose neighbours would be in every measurement: use whole ones"),
        ("cuda:0,MIG-1f2e", "MIG-1f2e is a slice of a GPU"),
        ("GPU-77", "GPU-77 is a UUID: use the number that torch gives the GPU"),
        ("cuda:0,", "an empty name is no device"),
        (",", "an empty name is no device"),
        ("0,1", "0 is no device"),
        ("cuda:0,tpu", "tpu is no device: use cuda:0, cuda:1, ... or cpu"),
    ],
)
def test_what_one_run_cannot_take_is_refused_in_a_sentence(tmp_path: Path, asked: str, said: str) -> None:
    with pytest.raises(UsageError, match=r"^--device ") as refused:
        choose_devices(asked, tmp_path)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.exit_status == 2


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "gpu_count", lambda _: 4)
    assert choose_devices("cuda:0,cuda:3", tmp_path) == ("cuda:0", "cuda:3")
    with pytest.raises(UsageError, match=r"--device cuda:4 does not exist: there are cuda:0 to cuda:3$"):
        choose_devices("cuda:0,cuda:4", tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    with pytest.raises(UsageError, match=r"there is one GPU, cuda:0 .CUDA_VISIBLE_DEVICES is set."):
        choose_device("cuda:3", tmp_path)


def test_only_runs_use_several(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names several devices, which only `kbtui run` uses: name one"):
        choose_device("cuda:0,cuda:1", tmp_path)
