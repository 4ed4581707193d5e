"""GPU counters against a pretended NVML: every field fails by itself, and a missing GPU is one sentence."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from kbtui.state.events import GpuSampled
from kbtui.telemetry.counters import REASONS, reasons_in_words
from kbtui.telemetry.nvml import GpuUnavailable, gpu_count
from kbtui.telemetry.sampler import Sampler, read_once

H200 = "GPU-11111111-2222-3333-4444-555555555555"
GIB = 1 << 30
ALL_KEYS = {
    "busy_percent",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_w",
    "power_limit_w",
    "temperature_c",
    "sm_clock_mhz",
    "sm_clock_max_mhz",
    "memory_clock_mhz",
    "throttle",
    "sm_active_percent",
    "dram_active_percent",
}


class FakeNvml:
    """A driver with two GPUs. `fails` maps a function's name to the NVML error code it raises."""

    NVMLError = pynvml.NVMLError
    NVML_SUCCESS = pynvml.NVML_SUCCESS
    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM = pynvml.NVML_CLOCK_SM
    NVML_CLOCK_MEM = pynvml.NVML_CLOCK_MEM
    NVML_DEVICE_MIG_ENABLE = pynvml.NVML_DEVICE_MIG_ENABLE
    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    NVML_GPM_METRIC_SM_UTIL = pynvml.NVML_GPM_METRIC_SM_UTIL
    NVML_GPM_METRIC_DRAM_BW_UTIL = pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t  # noqa: N815

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.calls: list[str] = []
        self.initialised = 0
        self.samples = 0
        self.mig = False
        self.reason_bits = 0
        self.gpm_supported = True
        self.gpm_return = pynvml.NVML_SUCCESS

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_ERROR_"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name in self.fails:
            raise pynvml.NVMLError(self.fails[name])

    def nvmlInit(self) -> None:  # noqa: N802
        self._called("nvmlInit")
        self.initialised += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self._called("nvmlShutdown")
        self.initialised -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        self._called("nvmlDeviceGetCount")
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        self._called("nvmlDeviceGetHandleByIndex")
        if index > 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return f"handle {index}"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self._called("nvmlDeviceGetHandleByUUID")
        if uuid != H200:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return "handle 1"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        self._called("nvmlDeviceGetUUID")
        return {"handle 0": "GPU-00000000-0000-0000-0000-000000000000", "handle 1": H200}[handle]

    def nvmlDeviceGetMigMode(self, _: str) -> tuple[int, int]:  # noqa: N802
        self._called("nvmlDeviceGetMigMode")
        return (int(self.mig), int(self.mig))

    def nvmlDeviceGetUtilizationRates(self, _: str) -> SimpleNamespace:  # noqa: N802
        self._called("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=64, memory=20)

    def nvmlDeviceGetMemoryInfo(self, _: str) -> SimpleNamespace:  # noqa: N802
        self._called("nvmlDeviceGetMemoryInfo")
        return SimpleNamespace(used=2 * GIB, total=140 * GIB)

    def nvmlDeviceGetPowerUsage(self, _: str) -> int:  # noqa: N802
        self._called("nvmlDeviceGetPowerUsage")
        return 412_500

    def nvmlDeviceGetEnforcedPowerLimit(self, _: str) -> int:  # noqa: N802
        self._called("nvmlDeviceGetEnforcedPowerLimit")
        return 700_000

    def nvmlDeviceGetTemperature(self, _: str, sensor: int) -> int:  # noqa: N802
        self._called("nvmlDeviceGetTemperature")
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return 52

    def nvmlDeviceGetClockInfo(self, _: str, clock: int) -> int:  # noqa: N802
        self._called("nvmlDeviceGetClockInfo")
        return {pynvml.NVML_CLOCK_SM: 1755, pynvml.NVML_CLOCK_MEM: 3201}[clock]

    def nvmlDeviceGetMaxClockInfo(self, _: str, clock: int) -> int:  # noqa: N802
        self._called("nvmlDeviceGetMaxClockInfo")
        assert clock == pynvml.NVML_CLOCK_SM
        return 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, _: str) -> int:  # noqa: N802
        self._called("nvmlDeviceGetCurrentClocksEventReasons")
        return self.reason_bits

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: str) -> int:  # noqa: N802
        self._called("nvmlDeviceGetCurrentClocksThrottleReasons")
        return self.reason_bits

    def nvmlGpmQueryDeviceSupport(self, _: str) -> SimpleNamespace:  # noqa: N802
        self._called("nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=int(self.gpm_supported))

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802
        self._called("nvmlGpmSampleAlloc")
        self.samples += 1
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleFree(self, _: Any) -> None:  # noqa: N802
        self._called("nvmlGpmSampleFree")
        self.samples -= 1

    def nvmlGpmSampleGet(self, _: str, sample: Any) -> Any:  # noqa: N802
        self._called("nvmlGpmSampleGet")
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:  # noqa: N802
        self._called("nvmlGpmMetricsGet")
        shares = {pynvml.NVML_GPM_METRIC_SM_UTIL: 27.5, pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: 78.25}
        for index in range(request.numMetrics):
            request.metrics[index].nvmlReturn = self.gpm_return
            request.metrics[index].value = shares[request.metrics[index].metricId]
        return request


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return FakeNvml()


def assert_all_returned(nvml: FakeNvml) -> None:
    assert nvml.initialised == 0
    assert nvml.samples == 0


def test_everything_is_read(nvml: FakeNvml) -> None:
    sample = read_once("cuda:1", nvml)
    assert sample.values == {
        "busy_percent": 64.0,
        "memory_used_bytes": 2.0 * GIB,
        "memory_total_bytes": 140.0 * GIB,
        "power_w": 412.5,
        "power_limit_w": 700.0,
        "temperature_c": 52.0,
        "sm_clock_mhz": 1755.0,
        "sm_clock_max_mhz": 1980.0,
        "memory_clock_mhz": 3201.0,
        "throttle": 0.0,
        "sm_active_percent": 27.5,
        "dram_active_percent": 78.25,
    }
    assert sample.missing == {}
    assert sample.uuid == H200
    assert_all_returned(nvml)


def test_pcie_throughput_is_never_asked_for(nvml: FakeNvml) -> None:
    read_once("cuda:0", nvml)
    assert not [name for name in nvml.calls if "Pcie" in name]


@pytest.mark.parametrize(
    ("function", "keys"),
    [
        ("nvmlDeviceGetUtilizationRates", {"busy_percent"}),
        ("nvmlDeviceGetMemoryInfo", {"memory_used_bytes", "memory_total_bytes"}),
        ("nvmlDeviceGetPowerUsage", {"power_w"}),
        ("nvmlDeviceGetEnforcedPowerLimit", {"power_limit_w"}),
        ("nvmlDeviceGetTemperature", {"temperature_c"}),
        ("nvmlDeviceGetClockInfo", {"sm_clock_mhz", "memory_clock_mhz"}),
        ("nvmlDeviceGetMaxClockInfo", {"sm_clock_max_mhz"}),
        ("nvmlDeviceGetCurrentClocksEventReasons", {"throttle"}),
        ("nvmlGpmQueryDeviceSupport", {"sm_active_percent", "dram_active_percent"}),
        ("nvmlGpmSampleAlloc", {"sm_active_percent", "dram_active_percent"}),
        ("nvmlGpmSampleGet", {"sm_active_percent", "dram_active_percent"}),
        ("nvmlGpmMetricsGet", {"sm_active_percent", "dram_active_percent"}),
    ],
)
def test_one_failure_costs_one_field(nvml: FakeNvml, function: str, keys: set[str]) -> None:
    nvml.fails[function] = pynvml.NVML_ERROR_NOT_SUPPORTED
    sample = read_once("cuda:0", nvml)
    assert sample.missing == dict.fromkeys(keys, "not supported on this GPU")
    assert set(sample.values) == ALL_KEYS - keys
    assert_all_returned(nvml)


def test_a_single_gpm_metric_can_fail(nvml: FakeNvml) -> None:
    nvml.gpm_return = pynvml.NVML_ERROR_NO_PERMISSION
    sample = read_once("cuda:0", nvml)
    assert sample.missing == dict.fromkeys(("sm_active_percent", "dram_active_percent"), "not permitted")


def test_before_hopper(nvml: FakeNvml) -> None:
    nvml.gpm_supported = False
    sample = read_once("cuda:0", nvml)
    assert sample.missing["dram_active_percent"] == "GPM needs a Hopper GPU or later"


def test_mig_is_named(nvml: FakeNvml) -> None:
    nvml.mig = True
    nvml.fails["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    sample = read_once("cuda:0", nvml)
    assert sample.missing["busy_percent"] == "not available while the GPU is split (MIG)"
    assert sample.missing["sm_active_percent"] == "not available while the GPU is split (MIG)"
    assert sample.values["temperature_c"] == 52.0


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no NVIDIA driver: libnvidia-ml.so not found"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "the NVIDIA kernel driver is not loaded"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "different versions"),
    ],
)
@pytest.mark.parametrize("device", ["cuda:0", "cpu"])
def test_no_driver_is_one_sentence(nvml: FakeNvml, code: int, words: str, device: str) -> None:
    nvml.fails["nvmlInit"] = code
    sample = read_once(device, nvml)
    assert sample.values == {}
    assert list(sample.missing) == ["gpu"]
    assert words in sample.missing["gpu"]


def test_the_cpu_lane_shows_no_gpu(nvml: FakeNvml) -> None:
    sample = read_once("cpu", nvml)
    assert sample.values == {}
    assert "cpu lane" in sample.missing["gpu"]
    assert_all_returned(nvml)


def test_a_lost_gpu_is_one_sentence_not_ten(nvml: FakeNvml) -> None:
    nvml.fails["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_GPU_IS_LOST
    sample = read_once("cuda:0", nvml)
    assert sample.values == {}
    assert sample.missing == {"gpu": "the GPU is lost (it fell off the bus): reset it or reboot"}
    assert_all_returned(nvml)


@pytest.mark.parametrize("device", ["cuda:7", "cuda:x", "GPU-none", "nonsense"])
def test_a_device_that_is_not_there(nvml: FakeNvml, device: str) -> None:
    sample = read_once(device, nvml)
    assert sample.values == {}
    assert device in sample.missing["gpu"]
    assert_all_returned(nvml)


@pytest.mark.parametrize("device", [H200, H200.removeprefix("GPU-")])
def test_by_uuid_with_and_without_prefix(nvml: FakeNvml, device: str) -> None:
    assert read_once(device, nvml).uuid == H200


@pytest.mark.parametrize("visible", ["1,0", f"{H200},0"])
def test_cuda_numbers_count_among_the_visible(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert read_once("cuda:0", nvml).uuid == H200


def test_clock_reasons_in_words(nvml: FakeNvml) -> None:
    nvml.reason_bits = 0x001 | 0x004 | 0x040 | 0x8000
    sample = read_once("cuda:0", nvml)
    assert sample.reasons == ("idle", "power limit", "too hot (hardware)", "reason 0x8000")
    assert sample.values["throttle"] == 1.0


def test_idle_is_not_throttling(nvml: FakeNvml) -> None:
    nvml.reason_bits = 0x001 | 0x002 | 0x100
    assert read_once("cuda:0", nvml).values["throttle"] == 0.0


def test_the_bits_are_nvmls() -> None:
    bits = {bit for bit, _, _ in REASONS}
    assert sum(bits) == pynvml.nvmlClocksThrottleReasonAll
    assert reasons_in_words(pynvml.nvmlClocksEventReasonSwPowerCap) == ("power limit",)
    assert reasons_in_words(0) == ()


def test_an_older_driver_knows_the_reasons_by_another_name(nvml: FakeNvml) -> None:
    nvml.reason_bits = 0x004
    nvml.fails["nvmlDeviceGetCurrentClocksEventReasons"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert read_once("cuda:0", nvml).reasons == ("power limit",)


def test_count(nvml: FakeNvml) -> None:
    assert gpu_count(nvml) == 2
    nvml.fails["nvmlInit"] = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
    with pytest.raises(GpuUnavailable, match=r"libnvidia-ml\.so not found"):
        gpu_count(nvml)


class Collected:
    def __init__(self) -> None:
        self.samples: list[GpuSampled] = []
        self._came = threading.Condition()

    def __call__(self, sample: GpuSampled) -> None:
        with self._came:
            self.samples.append(sample)
            self._came.notify_all()

    def wait_for(self, count: int) -> bool:
        with self._came:
            return self._came.wait_for(lambda: len(self.samples) >= count, timeout=10.0)


def test_the_sampler_samples_pauses_and_ends(nvml: FakeNvml) -> None:
    collected = Collected()
    sampler = Sampler("cuda:1", collected, nvml=nvml, period_s=0.01)
    sampler.start()
    assert collected.wait_for(3)
    with sampler.paused():
        calls, samples = len(nvml.calls), len(collected.samples)
        threading.Event().wait(0.1)
        assert len(nvml.calls) == calls
        assert len(collected.samples) <= samples + 1  # one that was read before may be handed over meanwhile
    after = len(collected.samples)
    assert collected.wait_for(after + 2)
    sampler.stop()
    ended = len(nvml.calls)
    threading.Event().wait(0.05)
    assert len(nvml.calls) == ended
    assert not [thread for thread in threading.enumerate() if thread.name == "gpu sampler"]
    # with its shares at once, and again after the pause: pauses come every few seconds
    assert [one.values["sm_active_percent"] for one in collected.samples] == [27.5] * len(collected.samples)
    assert_all_returned(nvml)


def test_absence_is_told_once(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kbtui.telemetry.sampler.RETRY_S", 0.01)
    nvml.fails["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    collected = Collected()
    sampler = Sampler("cuda:0", collected, nvml=nvml, period_s=0.01)
    sampler.start()
    assert collected.wait_for(1)
    threading.Event().wait(0.1)
    assert len(collected.samples) == 1
    nvml.fails["nvmlInit"] = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert collected.wait_for(2)
    del nvml.fails["nvmlInit"]
    assert collected.wait_for(3)
    sampler.stop()
    assert "not loaded" in collected.samples[0].missing["gpu"]
    assert "different versions" in collected.samples[1].missing["gpu"]
    assert collected.samples[2].values["busy_percent"] == 64.0


def test_without_an_nvidia_driver_the_real_module_gives_one_sentence() -> None:
    try:
        gpu_count(pynvml)
    except GpuUnavailable:
        sample = read_once("cuda:0")
        assert sample.values == {}
        assert sample.missing["gpu"]
    else:
        pytest.skip("this machine has a driver")
