"""Which candidate is the best of a run, what the run amounts to, and the exported kernel."""

from __future__ import annotations

import math
import os
from pathlib import Path

from kbtui import paths
from kbtui.state.records import BestSummary, Summary
from kbtui.state.run_state import Candidate, RunState


def best_of(state: RunState) -> int | None:
    """The id of the best candidate; None until the baseline is timed, or, in a run from scratch, chosen.

    Measured: only the verdict `faster` promotes over the baseline, the highest ratio wins. Modelled: only `not worse`
    promotes, the highest estimate above the baseline's wins. Of equals the older stays.
    """
    baseline = state.baseline
    if baseline is None or not baseline.correct or baseline.timing is None:
        return None
    best_id, best_figure = baseline.id, 1.0
    for candidate in state.frontier:
        figure = promoting_figure(candidate)
        if candidate.id != baseline.id and figure is not None and figure > best_figure:
            best_id, best_figure = candidate.id, figure
    return best_id


def promoting_figure(candidate: Candidate) -> float | None:
    """The measured ratio or the modelled estimate that speaks for `candidate`; None when its verdict does not, when the
    hidden stage does not confirm it, and when a person wants no more of it."""
    if candidate.timing is None or candidate.killed_by:
        return None
    if candidate.confirmation is not None and candidate.confirmation.verdict != "correct":
        return None
    match candidate.timing.verdict:
        case "faster":
            return candidate.ratio
        case "not worse":
            return candidate.estimate
    return None


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
        baseline_ms=_mean_ms(state.baseline),
        cost_usd=state.cost_usd,
        tokens=state.tokens,
        stopped_by=stopped_by,
        baseline_id=state.baseline_id,
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


def _mean_ms(candidate: Candidate | None) -> float | None:
    if candidate is None or candidate.timing is None:
        return None
    measured = [case.ms for case in candidate.timing.cases if case.ms]
    return math.exp(sum(math.log(ms) for ms in measured) / len(measured)) if measured else None
