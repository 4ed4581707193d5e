"""The head of a replay: the run, its best as of then, and the slider."""

from __future__ import annotations

import time

from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, both_ends, text_line
from kbtui.tui.replaying import ReplaySession
from kbtui.tui.views import numbers as n
from kbtui.tui.views.header import best_line, who_line

SLIDER_LEAST = 10


def header(session: ReplaySession, width: int) -> list[Line]:
    """Three lines."""
    return [run_line(session, width), best_line(session, width), slider_line(session, width)]


def run_line(session: ReplaySession, width: int) -> Line:
    """`softmax · H200 · rewrite        replay, 7/20 pulls at 00:31 of 07:12  $0.12`."""
    timeline, state = session.timeline, session.state
    right = LineBuilder().add("replay", "warn")
    if timeline is not None:
        right.add(", ", "warn").add(f"{state.pulls_ended}/{state.iterations}", "strong").add(" pulls", "label")
        right.add(" at ", "label").add(n.duration_text(timeline.elapsed), "strong")
        right.add(f" of {n.duration_text(timeline.length_s)}", "label")
        right.gap(2).add(n.money_text(state.cost_usd), "strong")
    return both_ends(who_line(session, width), right.add(" ").line(), width)


def slider_line(session: ReplaySession, width: int) -> Line:
    """` ● playing 10x  ━━━━━━●──────────  event 123 of 456  14:02:11 `."""
    timeline = session.timeline
    if timeline is None:
        return text_line(" reading the journal ..." if not session.error else "", "dim")
    how = (f" {g.LIVE} playing ", "good") if session.playing else (f" {g.PAUSED} held    ", "label")
    left = LineBuilder().add(*how, action="play").left(f"{session.speed}x", 6, "strong")
    stamp = time.strftime("%H:%M:%S", time.localtime(session.state.last_t)) if timeline.at else "--:--:--"
    right = LineBuilder().add(f"event {timeline.at:,} of {len(timeline):,}", "text").gap(2).add(f"{stamp} ", "dim")
    room = width - left.cells - right.cells - 2
    if room >= SLIDER_LEAST:
        at = round(timeline.at / max(len(timeline), 1) * (room - 1))
        left.add("█" * at, "curve").add(g.LIVE, "accent").add("─" * (room - 1 - at), "dim")
    return both_ends(left.line(), right.line(), width)
