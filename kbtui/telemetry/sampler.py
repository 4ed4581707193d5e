"""GPU counters once per second, from a thread of their own, silent while something is being timed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from kbtui.state.events import GpuSampled
from kbtui.telemetry.counters import read_counters
from kbtui.telemetry.gpm import Gpm
from kbtui.telemetry.nvml import Gpu, GpuUnavailable, Nvml, load_nvml

PERIOD_S = 1.0
RETRY_S = 30.0
"""How long to wait before looking again for a driver or GPU that was not there."""
_GPM_WINDOW_S = 0.2
"""Between the first two samples after a pause; in a virtual machine an H200 had nothing new to say after less."""

Callback = Callable[[GpuSampled], None]


class Sampler:
    """Calls `callback` with a sample each `period_s` seconds, in its own daemon thread.

    `device` is "cuda:N", a UUID (better, see `Gpu.open`) or "cpu". Where there is no GPU the callback hears the reason
    once, and again only when it changes. `pause` returns when no reading is in progress, so that a timed section
    between `pause` and `resume` is left alone.
    """

    def __init__(self, device: str, callback: Callback, *, nvml: Nvml = None, period_s: float = PERIOD_S) -> None:
        self._device, self._callback, self._period_s = device, callback, period_s
        self._session = _Session(device, nvml)
        self._reading = threading.Lock()
        self._ended = threading.Event()
        self._paused = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._sample_forever, name="gpu sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and let NVML go. May be called twice, or without `start`."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)  # an NVML call that hangs must not hang us: the thread is a daemon
            self._thread = None

    def pause(self) -> None:
        with self._reading:
            self._paused = True
            self._session.forget()

    def resume(self) -> None:
        with self._reading:
            self._paused = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No reading during the block."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    def _sample_forever(self) -> None:
        last_absence: dict[str, str] = {}
        while not self._ended.is_set():
            sample = self._next_sample()
            if sample is not None and (sample.values or sample.missing != last_absence):
                last_absence = {} if sample.values else sample.missing
                self._callback(sample)
            present = sample is None or bool(sample.values)
            self._ended.wait(self._period_s if present else RETRY_S)
        with self._reading:
            self._session.close()

    def _next_sample(self) -> GpuSampled | None:
        """A sample, or None in a pause. The first one after a pause takes two looks: pauses come every few seconds, and
        GPM only knows what was between two."""
        with self._reading:
            if self._paused:
                return None
            fresh = self._session.fresh
            sample = self._session.sample()
        if fresh and sample.values and not self._ended.wait(_GPM_WINDOW_S):
            with self._reading:
                if not self._paused:
                    sample = self._session.sample()
        return sample


def read_once(device: str, nvml: Nvml = None) -> GpuSampled:
    """One sample of `device`, with nothing kept open. Takes 200 ms where GPM works, since its shares lie between two
    looks. Never raises: what cannot be read is in `missing`."""
    session = _Session(device, nvml)
    try:
        first = session.sample()
        if not first.values:
            return first
        time.sleep(_GPM_WINDOW_S)
        return session.sample()
    finally:
        session.close()


class _Session:
    """NVML and one device, opened when first asked and opened again after a failure."""

    def __init__(self, device: str, nvml: Nvml) -> None:
        self._device, self._nvml = device, nvml
        self._gpu: Gpu | None = None
        self._gpm: Gpm | None = None

    def sample(self) -> GpuSampled:
        try:
            gpu, gpm = self._opened()
            counters = read_counters(gpu)
        except GpuUnavailable as error:
            self.close()
            return GpuSampled(device=self._device, uuid="", values={}, missing={"gpu": str(error)})
        values, missing = gpm.read()
        return GpuSampled(
            device=self._device,
            uuid=gpu.uuid,
            values={**counters.values, **values},
            missing={**counters.missing, **missing},
            reasons=counters.reasons,
        )

    @property
    def fresh(self) -> bool:
        """Whether GPM has nothing yet to compare the next look with."""
        return self._gpm is None or self._gpm.fresh

    def forget(self) -> None:
        if self._gpm is not None:
            self._gpm.forget()

    def close(self) -> None:
        self.forget()
        gpu, self._gpu, self._gpm = self._gpu, None, None
        if gpu is not None:
            gpu.close()

    def _opened(self) -> tuple[Gpu, Gpm]:
        if self._gpu is None or self._gpm is None:
            nvml = self._nvml if self._nvml is not None else load_nvml()
            # The driver first: "no driver" says more than "the cpu lane uses none".
            if self._device == "cpu":
                Gpu.open(nvml, "cuda:0").close()
                raise GpuUnavailable("this run is on the cpu lane: it uses no GPU")
            self._gpu = Gpu.open(nvml, self._device)
            self._gpm = Gpm(self._gpu)
        return self._gpu, self._gpm
