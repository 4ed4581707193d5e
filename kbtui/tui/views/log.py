"""The log: what happened in the run and what this viewer was told, by time."""

from __future__ import annotations

import heapq
import time

from kbtui.state.run_state import LogLine
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder
from kbtui.tui.session import Session

LEVELS = {"info": (" ", "text"), "act": (g.BY_PERSON, "info"), "warning": (g.ALARM, "warn"), "error": (g.BAD, "bad")}
"""Level of a log line -> glyph and role."""
FILTERS: dict[str, tuple[str, ...]] = {
    "all": ("info", "act", "warning", "error"),
    "what people did": ("act",),
    "warnings and errors": ("warning", "error"),
    "errors": ("error",),
}
"""What the log can be narrowed to -> the levels that it shows then."""


class LogSource:
    """The last lines of a session of the levels that `narrowed` (a name of FILTERS) lets through, oldest first."""

    def __init__(self, session: Session, narrowed: str = "all") -> None:
        both = heapq.merge(session.state.log, session.replies, key=lambda line: line.t)
        levels = FILTERS[narrowed]
        self._lines: list[LogLine] = [line for line in both if line.level in levels]

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, index: int, width: int) -> Line:  # noqa: ARG002  (a source's signature)
        entry = self._lines[index]
        glyph, role = LEVELS.get(entry.level, LEVELS["info"])
        stamp = time.strftime("%H:%M:%S", time.localtime(entry.t))
        return LineBuilder().add(f" {stamp} ", "dim").add(f"{glyph} ", role).add(entry.text, role).line()
