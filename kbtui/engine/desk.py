"""The run's desk for its generator: what it writes becomes events of the run."""

from __future__ import annotations

from kbtui.engine.emit import Emitter
from kbtui.generate.desk import Desk, Written
from kbtui.state import events as e
from kbtui.state.run_state import RunState


class EmitterDesk(Desk):
    """Every durable event is on the disk at once: a reply that was paid for must survive a power cut."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    @property
    def state(self) -> RunState:
        return self._emitter.state

    def write(self, event: Written) -> None:
        self._emitter.emit(event)
        self._emitter.settle()

    def show(self, event: e.ReplyDelta | e.Progressed) -> None:
        self._emitter.show(event)
