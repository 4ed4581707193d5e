"""Which candidate is the best of a run, what the run amounts to, and the exported kernel."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from weakref import WeakKeyDictionary

from kbtui import paths
from kbtui.state.records import BASELINE_ID, BestSummary, Summary, Timing
from kbtui.state.run_state import Candidate, RunState

DEVICES_DIFFER = 1.05
"""By so much the same version's ratio may differ between two devices of one kind."""


def best_of(state: RunState) -> int | None:
    """The id of the best candidate; None until the baseline is timed, or, in a run from scratch, chosen.

    Measured: only the verdict `faster` promotes over the baseline, the highest ratio wins. Modelled: only `not worse`
    promotes, the highest estimate above the baseline's wins. Of equals the older stays. All figures are of one device:
    who was not timed there is not compared, and the best stays until it was.
    """
    baseline = state.baseline
    if baseline is None or not baseline.correct or baseline.timing is None:
        return None
    device = arena(state)
    if not compared_on(state, device):
        return state.best_id
    if len(state.lanes) == 1:
        return _leader_of(state)
    rising = ((promoting_figure(one, device), one.id) for one in state.frontier if one.id != baseline.id)
    return _ahead(baseline.id, ((number, figure) for figure, number in rising if figure is not None))


def _ahead(baseline_id: int, figures: Iterable[tuple[int, float]]) -> int:
    """The candidate with the highest figure above the baseline's 1, the first of equals; the baseline when there is none."""
    best_id, best_figure = baseline_id, 1.0
    for number, figure in figures:
        if figure > best_figure:
            best_id, best_figure = number, figure
    return best_id


class _Leader:
    """Who is ahead in a run on one device. It looks at what changed; only when the one ahead falls back, at all."""

    def __init__(self) -> None:
        self.version = -1
        self.baseline_id: int | None = None
        self.best_id = BASELINE_ID
        self.figures: dict[int, float] = {}
        """The figures of those on the frontier that have one, the baseline left out."""

    def follow(self, state: RunState) -> None:
        if state.version == self.version:
            return
        over = state.baseline_id != self.baseline_id
        changed = state.candidates if over else state.changed_since(self.version)
        self.version, self.baseline_id = state.version, state.baseline_id
        for number in changed:
            candidate = state.candidates[number]
            counts = candidate.correct and number != state.baseline_id
            figure = promoting_figure(candidate, "") if counts else None
            before = self.figures.get(number, 0.0)
            if figure is not None:
                self.figures[number] = figure
            else:
                self.figures.pop(number, None)
            over = over or (number == self.best_id and (figure or 0.0) < before)
            if not over and figure is not None and self._is_ahead(number, figure):
                self.best_id = number
        if over:
            assert state.baseline_id is not None, "the best is asked for once there is a baseline"
            self.best_id = _ahead(state.baseline_id, sorted(self.figures.items()))

    def _is_ahead(self, number: int, figure: float) -> bool:
        best = self.figures.get(self.best_id, 1.0)
        return figure > best or (figure == best > 1.0 and number < self.best_id)


_leaders: WeakKeyDictionary[RunState, _Leader] = WeakKeyDictionary()


def _leader_of(state: RunState) -> int:
    found = _leaders.setdefault(state, _Leader())
    found.follow(state)
    return found.best_id


def promoting_figure(candidate: Candidate, device: str | None = None) -> float | None:
    """The measured ratio or the modelled estimate that speaks for `candidate`, of its timing on the device (None: of the one
    that counts); None when its verdict does not, when the hidden stage does not confirm it, and when a person wants no
    more of it."""
    timing = candidate.timing if device is None else candidate.timing_on(device)
    if timing is None or candidate.killed_by:
        return None
    if candidate.confirmation is not None and candidate.confirmation.verdict != "correct":
        return None
    match timing.verdict:
        case "faster":
            return timing.ratio
        case "not worse":
            return timing.estimate
    return None


def arena(state: RunState) -> str:
    """The device on which the best and what may become the best are compared: where the best was timed, or, while that is the
    baseline, which has a time on all of them, the oldest version that may rise. Never one that fell out, if any is left."""
    lanes, best = state.live_lanes or state.lanes, state.best
    if len(state.lanes) == 1:
        return state.lanes[0]
    rising: Iterable[Candidate] = [best] if best is not None and best.id != state.baseline_id else _rising(state)
    timed = (device for candidate in rising for device in (candidate.device, *candidate.timings))
    return next((device for device in timed if device in lanes), lanes[0])


def compared_on(state: RunState, device: str) -> bool:
    """Whether the best can be compared on the device. If not, it is timed there before anything may take its place."""
    best = state.best
    return best is None or best.timing_on(device) is not None or promoting_figure(best) is None


def worth_timing_again(state: RunState, candidate: Candidate) -> bool:
    """Whether a version that was timed on another device than the best may yet take its place. A model is the same on each.

    That is not said by their ratios, each to the baseline of its own device; but what is behind by more than the slack
    and both intervals is not given the device's time.
    """
    best, figure, timing = state.best, promoting_figure(candidate), candidate.timing
    if figure is None or timing is None:
        return False
    leading = promoting_figure(best) if best is not None else None
    least = (
        (best.timing.low or leading) if best is not None and best.timing is not None and leading is not None else 1.0
    )
    return (timing.high or figure) * (DEVICES_DIFFER if timing.kind == "measured" else 1.0) > least


def _rising(state: RunState) -> Iterator[Candidate]:
    return (one for one in state.frontier if one.id != state.baseline_id and (promoting_figure(one) or 0.0) > 1.0)


def export_best(run_id: str, source: str) -> Path:
    """Put `source` at `<run dir>/best/kernel.py` in one step: a reader sees the old kernel or the new one, whole."""
    folder = paths.run_dir(run_id) / "best"
    folder.mkdir(mode=0o700, exist_ok=True)
    target, partial = folder / "kernel.py", folder / ".kernel.py.partial"
    with open(partial, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(source)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, target)
    return target


def summary(state: RunState, stopped_by: str) -> Summary:
    """What the run amounts to. `baseline_ms` is the geometric mean of its measured case times; None when modelled."""
    assert state.started is not None, "a run that has not started has no summary"
    return Summary(
        run_id=state.started.run_id,
        problem=state.started.problem.name,
        device=state.started.device.name,
        timing=state.started.timing,
        pulls=state.pulls_ended,
        candidates=len(state.candidates),
        correct=len(state.frontier),
        best=_best_summary(state.best),
        baseline_ms=mean_ms(state.baseline_beside(state.best) if state.best is not None else _timing(state.baseline)),
        cost_usd=state.cost_usd,
        tokens=state.tokens,
        stopped_by=stopped_by,
        baseline_id=state.baseline_id,
        devices=state.started.lanes or (state.started.device.lane,),
        dropped=tuple(state.dropped),
    )


def _best_summary(best: Candidate | None) -> BestSummary | None:
    if best is None or best.timing is None:
        return None
    timing = best.timing
    return BestSummary(
        candidate_id=best.id,
        verdict=timing.verdict,
        speedup=timing.ratio,
        low=timing.low,
        high=timing.high,
        estimate=timing.estimate,
        path=best.path,
    )


def _timing(candidate: Candidate | None) -> Timing | None:
    return candidate.timing if candidate is not None else None


def mean_ms(timing: Timing | None) -> float | None:
    if timing is None:
        return None
    measured = [case.ms for case in timing.cases if case.ms]
    return math.exp(sum(math.log(ms) for ms in measured) / len(measured)) if measured else None
