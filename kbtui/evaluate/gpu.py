"""The GPU seen from the run process, through NVML: which one it is, its state around a measurement, and who may time on it.

NVML is reached through the module `pynvml`, passed in so that tests can stand in for a device.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kbtui.errors import EnvironmentFailure
from kbtui.evaluate.targets import TARGETS
from kbtui.state.records import Conditions, DeviceInfo
from kbtui.text import clean_line

LOCKS = Path("/tmp")
LOCK_POLL_S = 0.02
HELD_DOWN_BELOW = 0.97
"""Share of the maximum clock from which on down a limit counts as one."""
_THROTTLED = {
    0x004: "power limit",
    0x008: "hardware slowdown",
    0x010: "held back by sync boost",
    0x020: "too hot (software)",
    0x040: "too hot (hardware)",
    0x080: "power brake",
}
"""NVML's clock event reasons that spoil a measurement."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What the job "device" reports of a GPU."""

    name: str
    capability: tuple[int, int]
    uuid: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    threads_per_multiprocessor: int
    registers_per_multiprocessor: int
    shared_limit_bytes: int
    peaks: dict[str, float]


class Gpu:
    """One GPU by UUID. NVML stays initialised until `close`."""

    def __init__(self, nvml: Any, uuid: str) -> None:
        self._nvml = nvml
        self.uuid = uuid
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByUUID(self.uuid)
        except nvml.NVMLError as error:
            raise EnvironmentFailure(f"NVML does not know GPU {self.uuid}: {error}; is the driver running?") from error

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _ask(self, read: Callable[[], Any]) -> Any:
        """What `read` returns, or None where the device does not say."""
        try:
            return read()
        except self._nvml.NVMLError:
            return None

    def refuse_exclusive(self) -> None:
        """Raise EnvironmentFailure in a compute mode that keeps two processes from using the device."""
        mode = self._ask(lambda: self._nvml.nvmlDeviceGetComputeMode(self._handle))
        if mode in (self._nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS, self._nvml.NVML_COMPUTEMODE_PROHIBITED):
            raise EnvironmentFailure(
                f"GPU {self.uuid} lets only one process in (compute mode): pairs of processes need the default mode, "
                f"nvidia-smi -c DEFAULT -i {self.uuid}"
            )

    def bandwidth(self) -> float:
        """Nominal bandwidth in bytes/s from memory clock and bus width (two transfers a cycle); 0.0 when unknown."""
        clock = self._ask(lambda: self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, self._nvml.NVML_CLOCK_MEM))
        width = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryBusWidth(self._handle))
        return 2.0 * clock * 1e6 * width / 8 if clock and width else 0.0

    def most_clock_hz(self) -> float:
        clock = self._ask(lambda: self._nvml.nvmlDeviceGetMaxClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        return clock * 1e6 if clock else 0.0

    def now(self) -> State:
        """The device's state at this moment."""
        nvml, handle = self._nvml, self._handle
        reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if reasons is None:
            reasons = self._ask(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)) or 0
        processes = self._ask(lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
        return State(
            sm_clock_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_clock_mhz=self._ask(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature_c=self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttled=tuple(words for bit, words in _THROTTLED.items() if reasons & bit),
            pids=frozenset(int(process.pid) for process in processes),
            sm_clock_max_mhz=self._ask(lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)),
        )


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Clocks, temperature, what holds the clocks down, and which processes use the device."""

    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    temperature_c: int | None
    throttled: tuple[str, ...]
    pids: frozenset[int]
    sm_clock_max_mhz: int | None = None

    @property
    def held_down(self) -> bool:
        """Whether the clocks are lower for it: a limit may be named while they stand at their maximum (H200, power limit)."""
        if self.sm_clock_mhz is None or self.sm_clock_max_mhz is None:
            return bool(self.throttled)
        return bool(self.throttled) and self.sm_clock_mhz < HELD_DOWN_BELOW * self.sm_clock_max_mhz


def conditions(before: State, after: State, own: frozenset[int]) -> Conditions:
    """Both states as they are stored; `own` are our processes, which do not count as others. In a container NVML shows
    pids of the host, none of which is ours: then every process counts as another, which errs towards saying so."""
    return Conditions(
        sm_clock_mhz=(before.sm_clock_mhz, after.sm_clock_mhz),
        memory_clock_mhz=(before.memory_clock_mhz, after.memory_clock_mhz),
        temperature_c=(before.temperature_c, after.temperature_c),
        reasons=tuple(dict.fromkeys((*before.throttled, *after.throttled))),
        other_processes=len((before.pids | after.pids) - own),
    )


def nominal(card: Card, gpu: Gpu, device: str) -> DeviceInfo:
    """The device with nominal peaks: bandwidth from NVML, rates of its architecture scaled to its own size and clock.

    An architecture that is not in the table has no rates and therefore no speed of light for operations.
    """
    target = f"sm_{card.capability[0]}{card.capability[1]}"
    known = TARGETS.get(target)
    clock = gpu.most_clock_hz()
    rates: dict[str, float] = {}
    if known is not None and clock:
        scale = card.multiprocessors * clock / (known.multiprocessors * known.clock_hz)
        rates = {dtype: rate * scale for dtype, rate in known.ops_per_s.items()}
    return DeviceInfo(
        lane=device,
        kind="cuda",
        name=card.name,
        target=target,
        uuid=gpu.uuid,
        multiprocessors=card.multiprocessors,
        shared_limit_bytes=card.shared_limit_bytes,
        registers_per_multiprocessor=card.registers_per_multiprocessor,
        threads_per_multiprocessor=card.threads_per_multiprocessor,
        l2_bytes=card.l2_bytes,
        peak_bytes_per_s=gpu.bandwidth(),
        peak_ops_per_s=rates,
        nominal=True,
        memory_bytes=card.memory_bytes,
    )


def measured(device: DeviceInfo, peaks: dict[str, float]) -> DeviceInfo:
    """The device with the peaks that were measured on it, for display; nominal ones stay where nothing was measured."""
    copied = peaks.get("copy", 0.0)
    rates = {dtype: rate for dtype, rate in peaks.items() if dtype != "copy" and rate > 0}
    return msgspec.structs.replace(
        device,
        peak_bytes_per_s=copied or device.peak_bytes_per_s,
        peak_ops_per_s={**device.peak_ops_per_s, **rates},
        nominal=not copied,
    )


@contextlib.contextmanager
def timing_lock(uuid: str, waiting: Callable[[str], None], cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the device for timing: one measurement per device and host, whoever's, and nobody's checks beside it.

    `waiting` hears once for whom. Raises TimingCancelled when `cancelled` says so meanwhile; EnvironmentFailure when
    the lock file cannot be used.
    """
    with _locked(uuid, fcntl.LOCK_EX, waiting, cancelled) as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} of user {os.getuid()}".encode(), 0)
        yield


@contextlib.contextmanager
def checking_lock(uuid: str, waiting: Callable[[str], None], cancelled: Callable[[], bool]) -> Iterator[None]:
    """Hold the device for work that is not timed: beside others' checks, not beside a measurement. Raises as `timing_lock`."""
    with _locked(uuid, fcntl.LOCK_SH, waiting, cancelled):
        yield


@contextlib.contextmanager
def _locked(uuid: str, kind: int, waiting: Callable[[str], None], cancelled: Callable[[], bool]) -> Iterator[int]:
    """The lock file's descriptor, locked. Who wants it holds the turn until he has it: so a measurement need not wait for ever
    for a moment in which nobody checks anything."""
    descriptor = _open_lock(LOCKS / f"kbtui-{uuid}.lock")
    told = False

    def wait_for(one: int, how: int) -> None:
        nonlocal told
        while True:
            try:
                fcntl.flock(one, how | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if cancelled():
                    raise TimingCancelled from None
                if not told:
                    holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace")
                    waiting(f"for {clean_line(holder.strip() or 'another measurement', 80)}")
                    told = True
                time.sleep(LOCK_POLL_S)

    try:
        turn = _open_lock(LOCKS / f"kbtui-{uuid}.turn")
        try:
            wait_for(turn, fcntl.LOCK_EX)
            wait_for(descriptor, kind)
        finally:
            os.close(turn)
        yield descriptor
    finally:
        os.close(descriptor)


class TimingCancelled(Exception):
    """The wait for the device was given up, by a measurement or a check."""


def _open_lock(path: Path) -> int:
    """The lock file, made for all users of the host. Where others may not open each other's files in /tmp for creating,
    opening the existing one still works."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            descriptor = os.open(path, flags)
        else:
            os.fchmod(descriptor, 0o666)
    except OSError as error:
        raise EnvironmentFailure(
            f"{path} cannot be opened ({errno.errorcode.get(error.errno or 0)}): remove it"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise EnvironmentFailure(f"{path} is no plain file: remove it, timing is locked with it")
    return descriptor
