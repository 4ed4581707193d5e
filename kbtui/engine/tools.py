"""What every step of a run works with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbtui.engine.emit import Emitter
from kbtui.engine.lane_pool import LanePool
from kbtui.evaluate.lane import Report
from kbtui.generate.generator import Generator
from kbtui.search.policy import Policy
from kbtui.state.events import Progressed, RunStarted
from kbtui.state.run_state import Candidate, RunState
from kbtui.telemetry.sampler import Sampler


@dataclass(frozen=True)
class Tools:
    """The parts of a live run. `kernel_source` is what the problem's kernel.py holds, "" where there is none. Lanes and
    samplers go by the names of the run's devices, "" in a run on one."""

    emitter: Emitter
    lanes: LanePool
    generator: Generator
    policy: Policy
    samplers: Mapping[str, Sampler]
    kernel_source: str

    @property
    def state(self) -> RunState:
        return self.emitter.state

    @property
    def started(self) -> RunStarted:
        """The run's first event; there is one before any step."""
        assert self.state.started is not None
        return self.state.started

    @property
    def baseline_source(self) -> str:
        """What candidates are timed beside: the problem's kernel, or the first correct one of a run that began without; ""
        before there is any."""
        if self.kernel_source:
            return self.kernel_source
        return self.state.baseline.source if self.state.baseline is not None else ""

    def show(self, stage: str, text: str = "", pull: int = 0, candidate_id: int | None = None) -> None:
        """Let viewers know what is being done. Only from the loop's thread."""
        self.emitter.show(Progressed(stage=stage, text=text, pull=pull, candidate_id=candidate_id))

    def sampling_paused(self, device: str) -> contextlib.AbstractContextManager[None]:
        """The device's counters are left alone during the block."""
        return self.samplers[device].paused() if device in self.samplers else contextlib.nullcontext()

    def report(self, candidate: Candidate, device: str = "") -> Report:
        """What the device's lane calls from its thread to say how far it is with `candidate`."""
        loop = asyncio.get_running_loop()
        show: Callable[[str, str, int, int | None], None] = self.show

        def say(stage: str, text: str) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody watches any more
                loop.call_soon_threadsafe(show, stage, at(text, device), candidate.pull, candidate.id)

        return say


def at(text: str, device: str) -> str:
    """`text` with the name of the device that it is about; "" needs no name."""
    return f"{text}, {device}" if text and device else text or device
