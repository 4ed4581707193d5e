"""Candidate processes that wait for turns: one job "time", seen from the run process.

A player is asked for one thing at a time and answers when it is done; between turns it waits and uses no device time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

import msgspec

from kbtui import clock
from kbtui.evaluate import wire
from kbtui.evaluate.checks import Supplier
from kbtui.evaluate.job import Job, JobOrder, Outcome, close_all
from kbtui.evaluate.process import GRACE_S
from kbtui.evaluate.zygotes import Zygote

Milliseconds = Annotated[float, msgspec.Meta(gt=0, le=1e8)]
T = TypeVar("T", bound=msgspec.Struct)


class PreparedTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reading_ms` is the device time that a block of the case takes at least, about."""

    launches: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)]
    reading_ms: Milliseconds
    graph: bool
    why_no_graph: Annotated[str, msgspec.Meta(max_length=400)]
    free_bytes: Annotated[int, msgspec.Meta(ge=0)]


class ReadTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block of readings for each case that was asked for, in that order."""

    readings_ms: list[Annotated[list[Milliseconds], msgspec.Meta(min_length=1, max_length=4096)]]


class BurstTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    calls: Annotated[int, msgspec.Meta(ge=1)]
    device_ms: Milliseconds
    host_ms: Milliseconds


class CalledTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    called_ms: Milliseconds


class AuditTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    accepted: bool


class LoopTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    looped: float


class DropTurn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dropped: list[int]


class PlayerLost(Exception):
    """The process ended, or had to be ended, while it had a turn; `outcome` says how."""

    def __init__(self, name: str, outcome: Outcome) -> None:
        super().__init__(outcome.reason or outcome.kind)
        self.name = name
        self.outcome = outcome


class Player:
    """One process of a pair, `name` "baseline" or "candidate". Raises ProcessGone from any method when the zygote is gone."""

    def __init__(self, name: str, zygote: Zygote, order: JobOrder, supplier: Supplier) -> None:
        self.name = name
        self._zygote = zygote
        self.supplier = supplier
        self.discarded = False
        self._asked = 0
        self._ends = clock.monotonic() + order.deadline_s + GRACE_S
        self._job: Job = zygote.start(order)

    def start(self) -> None:
        """Wait until it has loaded the candidate and asks for its first turn. Raises PlayerLost."""
        self._next_question()

    def turn(self, kind: type[T], do: str, case: int, **fields: Any) -> T:
        """Give one turn and return its result. Raises PlayerLost; a result outside `kind`'s schema is a lost player too."""
        self.begin(do, case, **fields)
        return self.finish(kind)

    def begin(self, do: str, case: int, **fields: Any) -> None:
        """Give a turn without waiting for its end. A turn "read" is about the cases in `cases`."""
        self._asked = len(fields.get("cases", ()))
        self._job.answer({"do": do, "case": case, **fields})

    def finish(self, kind: type[T]) -> T:
        """Wait for the end of the turn that was begun. Raises as `turn`."""
        result = self._next_question()
        try:
            found = msgspec.convert(result, kind)
            if isinstance(found, ReadTurn) and len(found.readings_ms) != self._asked:
                raise msgspec.ValidationError(f"{len(found.readings_ms)} blocks for {self._asked} cases")
            return found
        except msgspec.ValidationError as error:
            self._job.malformed = f"its process answered a turn outside the protocol: {error}"
            self._job.kill()
            raise PlayerLost(self.name, self._finish()) from error

    def dismiss(self) -> None:
        """Let the process end by itself, without waiting for it."""
        self._job.answer({"do": "end", "case": 0})

    def outcome(self) -> Outcome:
        """Wait until the process that was dismissed has ended and return how it did."""
        return self._finish()

    def discard(self) -> None:
        """Kill the process without waiting until it is gone, which takes a device's context a tenth of a second. It is none of
        ours any more: whatever else is asked of this player does nothing."""
        self._job.kill()
        self._zygote.forget(self._job)
        self.discarded = True

    def abandon(self) -> None:
        """Kill the process and wait until it is gone, if it is not yet."""
        if self.discarded:
            return
        if self._job.ended is None:
            self._job.stopped = True
            self._job.kill()
            self._finish()
        self._zygote.forget(self._job)

    def _next_question(self) -> dict[str, Any]:
        """Fields of the next "turn" that it asks for; questions about inputs and outputs are answered on the way."""
        question = next(self._questions(), None)
        if question is None:
            raise PlayerLost(self.name, self._job.outcome(self._zygote.take_cancelled()))
        return question

    def _questions(self) -> Iterator[dict[str, Any]]:
        """The turns that it asks for, until the process has ended."""
        while True:
            ended = self._job.ended is not None
            found = (
                self._zygote.rest(self._job) if ended else self._zygote.step(self._job, self._ends - clock.monotonic())
            )
            for message, descriptors in found:
                try:
                    question = self._hear(message, descriptors)
                finally:
                    close_all(descriptors)
                if question is not None:
                    yield question
            if ended:
                return

    def _hear(self, message: wire.CandidateMessage, descriptors: list[int]) -> dict[str, Any] | None:
        job = self._job
        if job.malformed or job.stopped:
            return None
        if isinstance(message, wire.Say):
            job.stage = message.stage
        elif isinstance(message, wire.Done | wire.Fault):
            job.final = message
        elif isinstance(message, wire.Ask) and message.what == "turn":
            return message.fields
        else:
            self._supply(message, descriptors)
        return None

    def _supply(self, message: wire.Ask | wire.Outputs | wire.Skipped, descriptors: list[int]) -> None:
        try:
            answer = self.supplier.respond(self._job, message, descriptors)
        except wire.Malformed as error:
            self._job.malformed = str(error)
            self._job.kill()
            return
        if answer is None:
            self._job.stopped = True
            self._job.kill()
            return
        try:
            self._job.answer(*answer)
        finally:
            close_all(answer[1])

    def _finish(self) -> Outcome:
        for _ in self._questions():
            """What it asks for now is not given."""
        return self._job.outcome(self._zygote.take_cancelled())
