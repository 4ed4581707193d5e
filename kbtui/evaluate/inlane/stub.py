"""A Triton driver without a device: compiles for a target and records launches instead of making them.

`triton.runtime.driver.set_active(StubDriver(...))` makes every launch, through any wrapper, heuristic or autotuner,
compile for the target and end in `Recorder.launched`. Works on Triton 3.6 and 3.9: it relies on `load_binary`, the
launcher's first five arguments and `get_benchmarker`, which both have.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaDriver, CudaLauncher

from kbtui.evaluate.inlane import cubin

_NOT_BUILT = (OSError, RuntimeError, AssertionError, ImportError, AttributeError, subprocess.SubprocessError)
"""No compiler, no libcuda; and newer Tritons, which build none."""


@dataclass(frozen=True)
class Binary:
    """A compiled kernel as it was loaded."""

    name: str
    facts: cubin.CubinFacts
    shared_bytes: int


@dataclass(frozen=True)
class Launch:
    """One launch. `tuning` is True while an autotuner tries a configuration."""

    binary: Binary
    source: Any
    metadata: Any
    grid: tuple[int, int, int]
    tuning: bool


@dataclass
class Recorder:
    binaries: list[Binary] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    tuning: bool = False

    def benchmark(self, kernel_call: Callable[[], Any], *_: Any, **__: Any) -> list[float]:
        """What an autotuner calls to time a configuration: launches it once, as tuning, and finds all equally fast."""
        self.tuning = True
        try:
            kernel_call()
        finally:
            self.tuning = False
        return [1.0, 1.0, 1.0]  # a list, as Triton has for a configuration that failed: it compares them


class _Utilities:
    """What Triton asks of the CUDA driver: device properties and loading."""

    def __init__(self, recorder: Recorder, properties: dict[str, Any]) -> None:
        self._recorder = recorder
        self._properties = properties

    def get_device_properties(self, device: int) -> dict[str, Any]:
        del device
        return dict(self._properties)

    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
        """(module, function, registers, spilled words, most threads of a block); `function` counts the binaries."""
        del device
        facts = cubin.read(kernel, name)
        self._recorder.binaries.append(Binary(name, facts, shared))
        handle = len(self._recorder.binaries) - 1
        by_registers = self._properties["max_num_regs"] // max(facts.registers, 1) // 32 * 32
        return handle, handle, facts.registers, facts.frame_bytes // 4, min(1024, by_registers)

    def unload_module(self, module: int) -> None:
        """Nothing was loaded."""

    def set_printf_fifo_size(self, size: int) -> None:
        """Nothing is printed."""


class StubDriver(CudaDriver):  # type: ignore[misc]  # triton has no type stubs
    """`properties`: the keys of `facts.target_properties`; `capability` such as (9, 0).

    With `build_launchers` Triton's own launcher of every kernel is built too, and lies in its cache for whoever launches.
    """

    def __init__(
        self,
        recorder: Recorder,
        properties: dict[str, Any],
        capability: tuple[int, int],
        *,
        build_launchers: bool = False,
    ) -> None:
        # Not the parent's: that one builds an extension against libcuda.
        self.utils = _Utilities(recorder, properties)
        self.launcher_cls = _launcher(recorder, build=build_launchers)
        self._recorder = recorder
        self._capability = capability
        self.get_device_capability = lambda *_: capability
        self.get_current_stream = lambda *_: 0
        self.get_current_device = lambda: 0
        self.set_current_device = lambda *_: None

    def get_current_target(self) -> GPUTarget:
        major, minor = self._capability
        return GPUTarget("cuda", major * 10 + minor, 32)

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return self._recorder.benchmark


def _launcher(recorder: Recorder, *, build: bool) -> type:
    class RecordingLauncher:
        def __init__(self, src: Any, metadata: Any) -> None:
            self._source = src
            self._metadata = metadata
            if build:
                # only saves time: where it cannot be built, the launch on the device says why
                with contextlib.suppress(*_NOT_BUILT):
                    CudaLauncher(src, metadata)

        def __call__(self, x: int, y: int, z: int, stream: int, function: int, *_: Any) -> None:
            del stream
            grid = (int(x), int(y), int(z))
            binary = recorder.binaries[function]
            recorder.launches.append(Launch(binary, self._source, self._metadata, grid, recorder.tuning))

    return RecordingLauncher
