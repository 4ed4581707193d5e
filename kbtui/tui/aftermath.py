"""What a crash report says of the cockpit that crashed, and what goes on without it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from kbtui.errors import Crash
from kbtui.text import clean_line

if TYPE_CHECKING:
    from kbtui.tui.app import KbtuiApp

LAST = 30
"""Lines of the log that a report has."""


def crash_of(app: KbtuiApp) -> Crash:
    """What is known when a bug ended the cockpit. The run is another process: it goes on."""
    session = app.session
    facts = _terminal(app)
    if session is None:
        return Crash("runs go on, `kbtui` opens the list again", facts)
    facts.append(f"run: {session.run_id}, {session.status}, event {session.state.seq}, read-only: {session.read_only}")
    lines = sorted([*session.state.log, *session.replies], key=lambda line: line.t)[-LAST:]
    facts.append("what happened last:")
    facts += [
        f"  {time.strftime('%H:%M:%S', time.localtime(line.t))} {line.level} {clean_line(line.text, 300)}"
        for line in lines
    ]
    if session.status in ("live", "paused"):
        return Crash(f"the run goes on: `kbtui attach {session.run_id}`", facts)
    return Crash(f"the run is as it was: `kbtui attach {session.run_id}` opens it again", facts)


def _terminal(app: KbtuiApp) -> list[str]:
    names = ("COLORTERM", "LC_ALL", "LC_CTYPE", "LANG", "TERM_PROGRAM")
    said = " ".join(f"{name}={clean_line(os.environ[name], 40)}" for name in names if name in os.environ)
    drawing = f"colours: {app.terminal.colours}, ascii: {app.ascii_glyphs}, low bandwidth: {app.low_bandwidth}"
    inside = next((name for name in ("TMUX", "STY") if os.environ.get(name)), "none")
    screens = " > ".join(type(screen).__name__ for screen in app.screen_stack)
    return [
        f"screen: {app.size.width}x{app.size.height}, {screens}, theme {app.theme}",
        f"{drawing}, multiplexer: {inside}, {said}",
    ]
