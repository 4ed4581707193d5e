"""The first lines of the cockpit: is it alive, how good is the best and can it be trusted, what does it cost; and the
line below the panes."""

from __future__ import annotations

import statistics
import textwrap

from kbtui.state.run_state import RunState
from kbtui.text import clean_line
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, both_ends, crop, text_line, width_of
from kbtui.tui.session import Session
from kbtui.tui.views import numbers as n
from kbtui.tui.views.status import RUN

PACED_BY, PACED_BY_LEAST = 7, 3
"""How many of the last pulls give the pace, and how many it takes to say one."""
PAUSE_ROWS = 3
"""Rows that a pause's reason may take; the log has all of it."""


def header(session: Session, width: int) -> list[Line]:
    """Two lines: the run, and its best."""
    return [run_line(session, width), best_line(session, width)]


def run_line(session: Session, width: int) -> Line:
    """`softmax · H200 · rewrite      ● live  14/20 pulls  $0.38 of $1.00  07:12`."""
    state = session.state
    glyph, role = RUN[session.status]
    right = LineBuilder()
    if session.read_only:
        right.add("read-only", "warn").gap(2)
    right.add(f"{glyph} {session.status}", role)
    if state.started is not None:
        right.gap(2).add(f"{state.pulls_ended}/{state.iterations}", "strong").add(" pulls", "label")
        right.gap(2).add(n.money_text(state.cost_usd), "strong")
        if state.budget_usd is not None:
            right.add(f" of {n.money_text(state.budget_usd)}" if width >= 100 else f"/{state.budget_usd:.2f}", "label")
        right.gap(2).add(n.duration_text(session.elapsed()), "strong")
        left = time_left(state)
        if left is not None and session.status == "live" and width >= 100:
            about = "about " if width >= 110 else ""
            right.add(f", {about}{n.duration_text(left)} left", "label")
    return both_ends(who_line(session, width), right.add(" ").line(), width)


def who_line(session: Session, width: int) -> Line:
    """`softmax · H200 · rewrite · ucb`."""
    started = session.state.started
    if started is None:
        return LineBuilder().add(" kbtui  ", "accent").add(session.run_id, "strong").line()
    left = LineBuilder().add(" ").add(started.problem.name, "accent")
    _devices(left, session.state, width)
    if started.timing == "modelled":
        left.add(f" {g.NONE} ", "text").add("modelled", "est")
    if width >= 100:
        left.add(f" {g.NONE} {started.generator}" + (f" {started.model}" if started.model else ""), "label")
        left.add(f" {g.NONE} {started.policy}", "label")
    return left.line()


def _devices(out: LineBuilder, state: RunState, width: int) -> None:
    """`· H200`, of several `· 2 x H200 as cuda:0, cuda:1`, and which of them fell out."""
    started = state.started
    assert started is not None, "asked of a run that started"
    device = started.device
    where = device.name if device.kind == "cuda" else f"cpu for {device.target}"
    if not started.lanes:
        out.add(f" {g.NONE} {where}", "text")
        return
    live, gone = state.live_lanes, [lane for lane in started.lanes if lane in state.dropped]
    out.add(f" {g.NONE} ", "text")
    if not gone:
        out.add(f"{len(live)} x {where}", "text")
    elif width < 100:
        out.add(f"{g.ALARM} {len(live)}/{len(started.lanes)}", "warn").add(f" {where}", "text")
    else:
        out.add(f"{len(live)} of {len(started.lanes)} x {where}", "text")
    if live and width >= 140:
        out.add(f" as {', '.join(live)}", "label")
    if gone and width >= 100:
        out.gap().add(f"{g.ALARM} {', '.join(gone)} out", "warn")


def best_line(session: Session, width: int) -> Line:
    """`best #17 1.42x [1.39, 1.45] faster   54.1 → 38.1 µs   71 % of speed of light`."""
    state = session.state
    best = state.best
    if session.error:
        return crop(LineBuilder().add(f" {g.BAD} ", "bad").add(session.error, "bad").line(), width)
    if session.status in ("crashed", "missing", "stale") and not session.read_only:
        return crop(LineBuilder().add(f" {g.ALARM} ", "warn").add(session.why_no_commands, "warn").line(), width)
    if best is None or best.timing is None:
        if state.from_scratch:
            return text_line(
                " no kernel yet: models write one from scratch, the first correct one is the baseline", "dim"
            )
        return text_line(" no candidate has been timed yet", "dim")
    out = LineBuilder().add(f" {g.BEST} best ", "accent").add(f"#{best.id} ", "accent")
    text, role = n.figure(best)
    plain = best.id == state.baseline_id
    out.add(text or ("baseline" if plain else "1.00x"), "accent" if role == "text" else role)
    if state.from_scratch:
        out.gap().add("the baseline" if plain else f"over #{state.baseline_id}", "label")
    timing = best.timing
    if interval := n.interval_text(timing):
        out.gap().add(interval, "text")
    out.gap().add(timing.verdict, "good" if timing.verdict in ("faster", "not worse") else "text")
    if state.stopped_by:
        out.gap(3).add(f"stopped by {state.stopped_by}", "info")
    if times := _times(state):
        out.gap(3).add(times)
        if (kind := n.time_kind(state, timing)) and width >= 100:
            out.gap().add(kind, "label")
    light = n.speed_of_light(state, timing)
    if light is not None:
        out.gap(3).add(f"{light:.0f} %", "strong").add(" of speed of light" if width >= 100 else " SOL", "label")
    if timing.noise is not None and width >= 110:
        out.gap(3).add("noise floor ", "label").add(f"±{timing.noise * 100:.1f} %")
    if timing.kind == "modelled":
        out.gap(3).add("an estimate, not a measurement", "est")
    return crop(out.line(), width)


def _times(state: RunState) -> str:
    """Baseline's time and the best's, both of one kind and of the same cases."""
    best = state.best
    base = state.baseline_beside(best) if best is not None else None
    if best is None or base is None or best.id == state.baseline_id:
        return n.time_of(state, best) if best is not None else ""
    if best.timing is None:
        return ""
    before, after = n.objective_time(state, base, best.timing), n.objective_time(state, best.timing)
    return f"{before} → {after}" if before and after else ""


def time_left(state: RunState) -> float | None:
    """Seconds to the nearest end: of the pulls and the dollars at the pace of late, or of the time that the run may take.

    The pace is the median of the last pulls, which a pause or a slow start does not change. None until there are
    `PACED_BY_LEAST` of them, and where nothing is left.
    """
    took = [
        pull.took for pull in list(state.pulls.values())[-PACED_BY - len(state.open_pulls) :] if pull.took is not None
    ]
    if len(took) < PACED_BY_LEAST:
        return None
    in_flight = state.started.parallel if state.started is not None else 1
    pace = statistics.median(took[-PACED_BY:]) / max(in_flight, 1)
    left = [pace * (state.iterations - state.pulls_ended)]
    if state.budget_s is not None:
        left.append(state.budget_s - state.elapsed)
    if state.budget_usd is not None and state.cost_usd > 0:
        left.append(pace * (state.budget_usd - state.cost_usd) / (state.cost_usd / max(state.pulls_ended, 1)))
    return min(left) if min(left) > 0 else None


def pause_lines(session: Session, width: int) -> list[Line]:
    """Why the run is paused, whole as far as `PAUSE_ROWS` go; empty where it is not, or where nobody gave a reason."""
    reason = clean_line(session.state.pause_reason)
    if session.status != "paused" or not reason:
        return []
    glyph, role = RUN["paused"]
    head = f" {glyph} paused: "
    rows = textwrap.wrap(reason, max(width - width_of(text_line(head)) - 1, 20))
    out = [LineBuilder().add(head, role).add(rows[0], "warn").line()]
    out += [LineBuilder().gap(len(head)).add(row, "warn").line() for row in rows[1:PAUSE_ROWS]]
    if len(rows) > PAUSE_ROWS:
        out[-1] = crop((*out[-1], *text_line(f" {rows[PAUSE_ROWS]}", "warn")), width)
    return out


def summary_line(session: Session, width: int) -> Line:
    """For one-pane screens, the other panes in a line: `next c1 fusion .61 · busy 64 % · #31 writing`."""
    from kbtui.tui.views.arms import choice_text
    from kbtui.tui.views.gpu import summary

    state = session.state
    out = LineBuilder().add(" ")
    left = time_left(state) if session.status == "live" else None
    to_go = f"{n.duration_text(left)} left" if left is not None else ""
    parts = [choice_text(state), summary(session), to_go, work_text(state)]
    for index, part in enumerate(part for part in parts if part):
        if index:
            out.add(f" {g.NONE} ", "dim")
        out.add(part, "label")
    return crop(out.line(), width)


def work_text(state: RunState) -> str:
    """What is being done: `⟳ #31 verifying: case 3 of 9`."""
    progress = state.progress
    if progress is None or progress.stage == "idle" or state.status == "stopped":
        return ""
    number = f"#{progress.candidate_id} " if progress.candidate_id is not None else ""
    reply = state.reply_deltas.get(progress.pull)
    if progress.stage == "generating" and reply is not None:
        how = "thinking" if reply.thinking else "writing"
        return f"{g.WORK} {number}{how}, {n.plural(reply.tokens, 'token')}"
    return f"{g.WORK} {number}{progress.stage}" + (f": {progress.text}" if progress.text else "")
