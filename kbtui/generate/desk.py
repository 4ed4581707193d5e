"""What a generator that asks models sees of the run, and where it writes down what it does."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kbtui.state import events as e
from kbtui.state.run_state import RunState

Written = e.Asked | e.Replied | e.AskFailed | e.ReplyRead | e.ParameterDropped | e.Noted


class Desk(ABC):
    """The run, as a generator may know it. Only to be used from the event loop's thread."""

    @property
    @abstractmethod
    def state(self) -> RunState:
        """The run's state; to be read, never changed."""

    @abstractmethod
    def write(self, event: Written) -> None:
        """Put a durable event into the journal. It is on the disk when this returns."""

    @abstractmethod
    def show(self, event: e.ReplyDelta | e.Progressed) -> None:
        """Let viewers know of something that passes."""


class LooseDesk(Desk):
    """A desk without a journal, for previews and tests: folds what is written, keeps what is shown."""

    def __init__(self, state: RunState | None = None) -> None:
        self._state = state if state is not None else RunState()
        self.events: list[e.Event] = []
        self.shown: list[e.Event] = []

    @property
    def state(self) -> RunState:
        return self._state

    def write(self, event: Written) -> None:
        self.events.append(event)
        self._state.apply(event)

    def show(self, event: e.ReplyDelta | e.Progressed) -> None:
        self.shown.append(event)
        self._state.apply(event)
