"""The log: what happened in the run and what this viewer was told, by time."""

from __future__ import annotations

import heapq
import time

from kbtui.state.run_state import LogLine
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder
from kbtui.tui.session import Session

_LEVELS = {"info": (" ", "text"), "warning": (g.ALARM, "warn"), "error": (g.BAD, "bad")}


class LogSource:
    """The last lines of a session, oldest first."""

    def __init__(self, session: Session) -> None:
        self._lines: list[LogLine] = list(heapq.merge(session.state.log, session.replies, key=lambda line: line.t))

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:  # noqa: ARG002  (a source's signature)
        entry = self._lines[index]
        glyph, role = _LEVELS.get(entry.level, _LEVELS["info"])
        stamp = time.strftime("%H:%M:%S", time.localtime(entry.t))
        return LineBuilder().add(f" {stamp} ", "dim").add(f"{glyph} ", role).add(entry.text, role).line()
