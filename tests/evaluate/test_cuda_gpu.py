"""The GPU through NVML, with a stand-in for the driver; the timing lock; kept peaks."""

import multiprocessing
import os
import threading
import time
from types import SimpleNamespace

import msgspec
import pytest

from kbtui.errors import EnvironmentFailure
from kbtui.evaluate import devices, gpu
from kbtui.evaluate.roofline import floor_ms
from kbtui.state.records import CaseInfo


class FakeError(Exception):
    pass


class FakeNvml:
    """An H200 that answers what it is told to."""

    NVMLError = FakeError
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, NVML_COMPUTEMODE_PROHIBITED = 3, 2
    NVML_CLOCK_MEM, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 2, 1, 0

    def __init__(self, **answers):
        self.open = 0
        self._answers = {
            "nvmlDeviceGetHandleByUUID": "handle",
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetMemoryBusWidth": 6144,
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetCurrentClocksEventReasons": 0,
            "nvmlDeviceGetComputeRunningProcesses": [],
            **answers,
        }

    def nvmlInit(self):  # noqa: N802
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):  # noqa: N802
        return {self.NVML_CLOCK_MEM: 3201, self.NVML_CLOCK_SM: 1980}[kind]

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        return {self.NVML_CLOCK_MEM: 3201, self.NVML_CLOCK_SM: 1755}[kind]

    def __getattr__(self, name):
        def answer(*_):
            value = self._answers[name]
            if isinstance(value, Exception):
                raise value
            return value

        return answer


CARD = gpu.Card(
    name="NVIDIA H200",
    capability=(9, 0),
    uuid="GPU-abc",
    multiprocessors=132,
    memory_bytes=150 << 30,
    l2_bytes=50 << 20,
    threads_per_multiprocessor=2048,
    registers_per_multiprocessor=65536,
    shared_limit_bytes=232448,
    peaks={},
)


def test_nominal_peaks_from_clocks_bus_and_architecture():
    info = gpu.nominal(CARD, gpu.Gpu(FakeNvml(), "GPU-abc"), "cuda:0")
    assert (info.target, info.uuid, info.nominal, info.kind) == ("sm_90", "GPU-abc", True, "cuda")
    assert info.peak_bytes_per_s == pytest.approx(4.9e12, rel=0.01)
    assert info.peak_ops_per_s["fp16"] == pytest.approx(989e12, rel=0.01)


def test_a_smaller_part_of_the_same_architecture_has_smaller_peaks():
    half = gpu.nominal(gpu.msgspec.structs.replace(CARD, multiprocessors=66), gpu.Gpu(FakeNvml(), "GPU-abc"), "cuda:0")
    assert half.peak_ops_per_s["fp16"] == pytest.approx(989e12 / 2, rel=0.01)


def test_an_unknown_architecture_has_no_speed_of_light_for_operations():
    other = gpu.nominal(gpu.msgspec.structs.replace(CARD, capability=(13, 7)), gpu.Gpu(FakeNvml(), "GPU-abc"), "cuda:0")
    assert other.peak_ops_per_s == {}
    assert floor_ms(CaseInfo(name="c", fields={}, dtypes=("float16",), operations=10**15), other) == 0.0


def test_measured_peaks_replace_nominal_ones_and_say_so():
    info = gpu.nominal(CARD, gpu.Gpu(FakeNvml(), "GPU-abc"), "cuda:0")
    seen = gpu.measured(info, {"copy": 4.3e12, "fp16": 7.9e14})
    assert (seen.peak_bytes_per_s, seen.peak_ops_per_s["fp16"], seen.nominal) == (4.3e12, 7.9e14, False)
    assert seen.peak_ops_per_s["int8"] == info.peak_ops_per_s["int8"]
    assert gpu.measured(info, {}) == info


def test_an_exclusive_device_is_refused_with_the_remedy():
    with pytest.raises(EnvironmentFailure, match="nvidia-smi -c DEFAULT"):
        gpu.Gpu(FakeNvml(nvmlDeviceGetComputeMode=3), "abc").refuse_exclusive()
    gpu.Gpu(FakeNvml(), "GPU-abc").refuse_exclusive()


def test_a_device_that_nvml_does_not_know():
    with pytest.raises(EnvironmentFailure, match="GPU-nope"):
        gpu.Gpu(FakeNvml(nvmlDeviceGetHandleByUUID=FakeError("Not Found")), "GPU-nope")


def test_state_reads_what_it_can():
    seen = gpu.Gpu(
        FakeNvml(
            nvmlDeviceGetTemperature=FakeError("Not Supported"),
            nvmlDeviceGetCurrentClocksEventReasons=0x4 | 0x40,
            nvmlDeviceGetComputeRunningProcesses=[SimpleNamespace(pid=7), SimpleNamespace(pid=8)],
        ),
        "abc",
    ).now()
    assert (seen.sm_clock_mhz, seen.temperature_c) == (1755, None)
    assert seen.throttled == ("power limit", "too hot (hardware)")
    stored = gpu.conditions(seen, seen, frozenset({7}))
    assert stored.other_processes == 1
    assert stored.sm_clock_mhz == (1755, 1755)
    assert stored.reasons == seen.throttled


@pytest.mark.parametrize(("clock", "reasons", "held"), [(1965, 0x4, False), (1875, 0x4, True), (1200, 0, False)])
def test_a_limit_counts_where_the_clock_is_lower_for_it(clock, reasons, held):
    state = gpu.State(
        sm_clock_mhz=clock,
        memory_clock_mhz=3201,
        temperature_c=50,
        throttled=("power limit",) if reasons else (),
        pids=frozenset(),
        sm_clock_max_mhz=1980,
    )
    assert state.held_down is held
    assert msgspec.structs.replace(state, sm_clock_max_mhz=None).held_down is bool(reasons)


def test_an_older_driver_is_asked_by_the_older_name():
    seen = gpu.Gpu(
        FakeNvml(
            nvmlDeviceGetCurrentClocksEventReasons=FakeError("Function Not Found"),
            nvmlDeviceGetCurrentClocksThrottleReasons=0x8,
        ),
        "abc",
    ).now()
    assert seen.throttled == ("hardware slowdown",)


def _hold(folder, ready, release):
    gpu.LOCKS = folder
    with gpu.timing_lock("GPU-abc", lambda text: None, lambda: False):
        ready.set()
        release.wait(30)


def test_one_measurement_at_a_time_and_it_says_for_whom(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready, release))
    holder.start()
    try:
        assert ready.wait(30)
        said = []

        def waiting(text):
            said.append(text)
            release.set()

        with gpu.timing_lock("GPU-abc", waiting, lambda: False):
            assert said == [f"for process {holder.pid} of user {os.getuid()}"]
    finally:
        release.set()
        holder.join(30)
    assert holder.exitcode == 0


def test_checks_go_beside_one_another_and_not_beside_a_measurement(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    quiet = {"waiting": lambda text: None, "cancelled": lambda: True}
    check, measure = (lambda lock=lock: lock("GPU-abc", **quiet) for lock in (gpu.checking_lock, gpu.timing_lock))
    with check(), check(), pytest.raises(gpu.TimingCancelled), measure():
        pass
    with measure(), pytest.raises(gpu.TimingCancelled), check():
        pass


def test_a_measurement_that_waits_comes_before_new_checks(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    quiet, done = {"waiting": lambda text: None}, threading.Event()

    def measure():
        with gpu.timing_lock("GPU-abc", cancelled=lambda: False, **quiet):
            done.set()

    with gpu.checking_lock("GPU-abc", cancelled=lambda: False, **quiet):
        waiting = threading.Thread(target=measure)
        waiting.start()
        deadline = time.monotonic() + 10
        while True:  # until the measurement has the turn
            try:
                with gpu.checking_lock("GPU-abc", cancelled=lambda: True, **quiet):
                    assert time.monotonic() < deadline
                time.sleep(0.01)
            except gpu.TimingCancelled:
                break
        assert not done.is_set()
    waiting.join(10)
    assert done.is_set()


def test_waiting_can_be_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    with (
        gpu.timing_lock("GPU-abc", lambda text: None, lambda: False),
        pytest.raises(gpu.TimingCancelled),
        gpu.timing_lock("GPU-abc", lambda text: None, lambda: True),
    ):
        pass


def test_a_lock_that_is_no_plain_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "LOCKS", tmp_path)
    (tmp_path / "kbtui-GPU-abc.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EnvironmentFailure, match="cannot be opened"), gpu.timing_lock("GPU-abc", print, lambda: False):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_peaks_are_kept_by_device_and_torch():
    versions = {"torch": "2.11"}
    assert devices.kept_peaks("GPU-1", versions) is None
    devices.keep_peaks("GPU-1", versions, {"copy": 1e12})
    assert devices.kept_peaks("GPU-1", versions) == {"copy": 1e12}
    assert devices.kept_peaks("GPU-1", {"torch": "2.12"}) is None
    assert devices.kept_peaks("GPU-2", versions) is None


def test_a_broken_file_of_peaks_is_measured_again():
    devices.keep_peaks("GPU-1", {"torch": "1"}, {"copy": 1.0})
    [file] = (devices.data_dir() / "devices").iterdir()
    file.write_text("{")
    assert devices.kept_peaks("GPU-1", {"torch": "1"}) is None
