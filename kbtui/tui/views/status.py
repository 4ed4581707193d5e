"""The words, glyphs and roles of states: of a run and of a candidate. A glyph and a word beside every colour."""

from __future__ import annotations

from kbtui.state.run_state import Candidate, RunState
from kbtui.tui import glyphs as g

RUN: dict[str, tuple[str, str]] = {
    "live": (g.LIVE, "good"),
    "starting": (g.LIVE, "info"),
    "loading": (g.NONE, "dim"),
    "paused": (g.PAUSED, "warn"),
    "stopped": (g.STOPPED, "info"),
    "stale": (g.ALARM, "warn"),
    "crashed": (g.BAD, "bad"),
    "missing": (g.UNKNOWN, "bad"),
}
"""State of a run -> glyph and role."""

_CANDIDATE: dict[str, tuple[str, str]] = {
    "faster": (g.GOOD, "good"),
    "not worse": (g.GOOD, "good"),
    "same": (g.SAME, "dim"),
    "ambiguous": (g.SAME, "warn"),
    "slower": (g.SLOWER, "dim"),
    "worse": (g.SLOWER, "dim"),
    "wrong": (g.BAD, "bad"),
    "crash": (g.BAD, "bad"),
    "hang": (g.BAD, "bad"),
    "invalid": (g.BAD, "bad"),
    "cheat": (g.ALARM, "ban"),
    "unknown": (g.UNKNOWN, "warn"),
    "pruned": (g.PRUNED, "dim"),
    "killed": (g.PRUNED, "warn"),
}
_ON_THE_WAY = ("generated", "compiled", "verified")
"""How far a candidate without a verdict has come."""


def candidate_mark(state: RunState, candidate: Candidate) -> tuple[str, str]:
    """Glyph and role of a candidate among others: the best stands out, the others have their verdict's."""
    return (g.BEST, "accent") if candidate.id == state.best_id else verdict_mark(state, candidate)


def verdict_mark(state: RunState, candidate: Candidate) -> tuple[str, str]:
    """Glyph and role of a candidate's verdict, whatever its rank."""
    if candidate.parent_id is None and candidate.strategy is None and candidate.pull == 0:
        return g.ORIGIN, "text"
    if is_suspicious(candidate):
        return g.ALARM, "warn"
    if candidate.status not in _ON_THE_WAY:
        return _CANDIDATE.get(candidate.status, (g.NONE, "dim"))
    return (g.NONE, "dim") if _is_left(state, candidate) else (g.WORK, "info")


def _is_left(state: RunState, candidate: Candidate) -> bool:
    """Whether nobody is judging a candidate that is on the way: the run ended, or its pull, by a machine that failed, say."""
    pull = state.pulls.get(candidate.pull)
    return state.status == "stopped" or (pull is not None and pull.ended)


def is_suspicious(candidate: Candidate) -> bool:
    """Timed, but with something about the times that a person should look at."""
    return candidate.timing is not None and bool(candidate.timing.suspicious)


def in_work(state: RunState, candidate: Candidate) -> bool:
    """Whether the candidate is being judged: its pull has not ended, nor has the run."""
    return state.status != "stopped" and _without_end(state, candidate)


def is_unfinished(state: RunState, candidate: Candidate) -> bool:
    """Whether the run ended before the candidate was judged; it is judged when the run is continued."""
    return state.status == "stopped" and _without_end(state, candidate)


def _without_end(state: RunState, candidate: Candidate) -> bool:
    pull = state.pulls.get(candidate.pull)
    return pull is not None and not pull.ended and candidate.status in _ON_THE_WAY


def status_word(state: RunState, candidate: Candidate) -> str:
    """One or two words: the verdict, or what is being done."""
    if is_unfinished(state, candidate):
        return "unfinished"
    if candidate.timing is None and candidate.status in _ON_THE_WAY:
        progress = state.progress
        if progress is not None and progress.candidate_id == candidate.id and in_work(state, candidate):
            return progress.stage
        return candidate.status
    if is_suspicious(candidate):
        return f"{candidate.status}, suspicious"
    return candidate.status


def evidence(candidate: Candidate) -> str:
    """The shortest reason for a verdict that is not about speed; "" when there is none."""
    if candidate.pruned is not None:
        return candidate.pruned.reason
    if candidate.compilation is not None and not candidate.compilation.ok:
        return candidate.compilation.reason
    seen = candidate.verification
    if seen is not None and seen.verdict != "correct":
        if seen.verdict == "wrong" and seen.error is not None:
            return f"error {seen.error:.1e}"
        return seen.reason
    return ""


SHORT = {
    "tiling": "tile",
    "vectorization": "vec",
    "fusion": "fuse",
    "pipeline": "pipe",
    "reordering": "order",
    "access_layout": "layout",
}
"""The strategies where there is no room for their names."""


def origin(candidate: Candidate, *, short: bool = False) -> str:
    """Where it comes from: `tiling · BLOCK 2048`, `baseline`, `inject · mine.py`."""
    if candidate.strategy is None:
        if candidate.generator == "inject":
            return f"inject {g.NONE} {candidate.move}"
        return candidate.move or "baseline"
    made_by = f" {g.NONE} {candidate.generator}" if candidate.generator not in ("rewrite", "replay") else ""
    strategy = SHORT[candidate.strategy] if short else candidate.strategy
    return f"{strategy} {g.NONE} {candidate.move}{made_by}"
