"""Where events come from: the one place that numbers, times, redacts, journals and folds them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from kbtui import clock
from kbtui.history.journal import JournalWriter
from kbtui.state import events as e
from kbtui.state.run_state import RunState
from kbtui.text import redact

E = TypeVar("E", bound=e.Event)
Listener = Callable[[e.Event], None]


class Emitter:
    """Turns what the engine wants to say into events of the run.

    What is folded, journalled and announced is one and the same value, after redaction and after a round trip through
    plain data: so the live state equals the state that anyone folds from the journal.
    """

    def __init__(self, state: RunState, writer: JournalWriter) -> None:
        self.state = state
        self._writer = writer
        self._elapsed_before = state.elapsed
        self._began = clock.monotonic()
        self._listeners: list[Listener] = []

    def listen(self, listener: Listener) -> None:
        """Call `listener` for every event from now on, after it was journalled and folded. It must not block or raise."""
        self._listeners.append(listener)

    def emit(self, event: E) -> E:
        """Stamp, journal, fold and announce a durable event; return it as it was journalled.

        Raises JournalError when the disk refuses (then nothing was folded) and msgspec.ValidationError for a value that
        JSON cannot carry, such as NaN in a field that must be a number: a bug, caught before it is in the journal.
        """
        written = self._writer.append(self._sealed(event))
        self.state.apply(written)
        self._announce(written)
        return written

    def show(self, event: e.GpuSampled | e.Progressed | e.ReplyDelta) -> None:
        """Fold and announce a transient event; it is never journalled."""
        shown = self._sealed(event)
        self.state.apply(shown)
        self._announce(shown)

    def settle(self) -> None:
        """Wait until everything emitted is on the disk. Raises JournalError."""
        self._writer.flush()

    def _announce(self, event: e.Event) -> None:
        for listener in self._listeners:
            listener(event)

    def _sealed(self, event: E) -> E:
        kind = type(event)
        elapsed = self._elapsed_before + clock.monotonic() - self._began
        event = msgspec.structs.replace(event, t=clock.wall(), elapsed=elapsed)
        line = _verbatim(event)
        if line is None:
            fields = msgspec.to_builtins(event, str_keys=True)
            # One look at the environment per event, not per string: it is only taken apart when there is something to find.
            text = "\n".join(_strings(fields))
            if _mended(text) != text:
                return msgspec.convert(_plain(fields, _mended), kind, str_keys=True)
            line = e.encode(event)
        sealed: E = _decoder(kind).decode(line)
        return sealed


def _verbatim(event: e.Event) -> bytes | None:
    """The event as JSON, if there is nothing to mend and nothing that JSON writes as something else, so that every string stands
    in it as it is."""
    try:
        line = e.encode(event)
        text = line.decode()
    except UnicodeError:
        return None
    return line if "\\" not in text and redact(text) == text else None


@functools.cache
def _decoder(kind: type[E]) -> msgspec.json.Decoder[E]:
    return msgspec.json.Decoder(kind)


def _mended(text: str) -> str:
    """`text` without secrets and without lone surrogates, which JSON lacks."""
    return redact(text).encode("utf-8", "replace").decode()


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for inner in value.values():
            yield from _strings(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _strings(inner)


def _plain(value: Any, mend: Callable[[str], str]) -> Any:
    """`value` with every string mended, keys included, and numbers that JSON lacks (NaN, infinities) as None."""
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, dict):
        return {mend(key): _plain(inner, mend) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, mend) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
