"""The list of runs on the home screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbtui.tui.line import Line, LineBuilder, crop
from kbtui.tui.views import numbers as n
from kbtui.tui.views.status import RUN

if TYPE_CHECKING:
    from kbtui.history.runs import RunEntry


VERDICT_FROM, COST_FROM, DEVICE_FROM, ROOMY_FROM, WIDE = 79, 67, 103, 112, 128
"""Widths from which there is room for the verdict, the cost, the device, longer problem names, and who wrote the versions: a
column is whole or not there."""
WRITERS_MOST = 40
MARK = "+"
"""Before a run that is marked for a comparison."""


class RunsSource:
    """The runs as lines. `now` is the time of day the ages are counted to, `marked` the ids of those to compare."""

    def __init__(self, runs: list[RunEntry], now: float, marked: tuple[str, ...] = ()) -> None:
        self.runs = runs
        self._now = now
        self._marked = marked

    def __len__(self) -> int:
        return len(self.runs)

    def line(self, index: int, width: int) -> Line:
        run = self.runs[index]
        return run_line(run, width, self._now, marked=run.run_id in self._marked)


def head_line(width: int) -> Line:
    """The names of the columns."""
    out = LineBuilder().add("   ").left("state", 9, "label").left("problem", _problem(width), "label")
    out.right("best", 12, "label")
    if width >= VERDICT_FROM:
        out.gap(2).left("verdict", 10, "label")
    out.right("pulls", 8, "label")
    if width >= COST_FROM:
        out.right("cost", 9, "label")
    if width >= DEVICE_FROM:
        out.gap(2).left("device", 22, "label")
    if width >= WIDE:
        out.left("written by", _writers(width), "label")
    return crop(out.right("last", 11, "label").line(), width)


def run_line(run: RunEntry, width: int, now: float, *, marked: bool = False) -> Line:
    """`● live  softmax  1.42x  faster  14/20  $0.38  NVIDIA H200  rewrite  now`."""
    glyph, role = RUN.get(run.status, RUN["missing"])
    out = LineBuilder().add(MARK if marked else " ", "accent").add(f"{glyph} ", role).left(run.status, 9, role)
    if run.error:
        return crop(out.add(f"{run.run_id}  ", "strong").add(run.error, "bad").line(), width)
    out.left(run.problem or run.run_id, _problem(width), "strong")
    if run.best_ratio is not None:
        out.right(n.ratio_text(run.best_ratio), 12, "accent")
    elif run.best_estimate is not None:
        out.right(n.estimate_text(run.best_estimate), 12, "est")
    else:
        out.right("", 12)
    if width >= VERDICT_FROM:
        out.gap(2).left(run.best_verdict, 10, "text")
    out.right(f"{run.pulls}/{run.iterations}", 8)
    if width >= COST_FROM:
        out.right(n.money_text(run.cost_usd), 9)
    if width >= DEVICE_FROM:
        out.gap(2).left(
            "modelled" if run.timing == "modelled" else run.device, 22, "est" if run.timing == "modelled" else "text"
        )
    if width >= WIDE:
        out.left(f"{run.generator} {run.model}".strip(), _writers(width), "label")
    return crop(out.right(n.age_text(max(0.0, now - run.last_t)), 11, "dim").line(), width)


def describe(run: RunEntry, width: int) -> list[Line]:
    """The chosen run in two lines."""
    first = LineBuilder().add(f" {run.run_id}", "strong").add(f"  {run.device}", "label")
    first.add(f"  {run.generator} {run.model}".rstrip(), "label")
    first.add(f"  tagged {', '.join(run.tags)}" if run.tags else "", "info")
    second = LineBuilder().add(f" {n.plural(run.candidates, 'candidate')}, {run.correct} correct", "label")
    second.add(f"  policy {run.policy}" if run.policy else "", "label")
    second.add(f"  stopped by {run.stopped_by}" if run.stopped_by else "", "label")
    if run.pid is not None:
        second.add(f"  process {run.pid}", "label")
    if run.status in ("crashed", "stopped"):
        second.add("  C", "key").add(" goes on with it", "label")
    return [crop(first.line(), width), crop(second.line(), width)]


def _problem(width: int) -> int:
    return 15 if width < ROOMY_FROM else 24


def _writers(width: int) -> int:
    return min(width - ROOMY_FROM, WRITERS_MOST)
