"""One kernel's result, and the file that a benchmark's results lie in: JSON lines, appended, the last word on a kernel holds."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from kbtui.bench.reasons import what_became
from kbtui.engine.stops import share_of_light
from kbtui.errors import HistoryError
from kbtui.state.records import Record, Summary, Timing, TimingKind
from kbtui.state.run_state import RunState

Status = Literal["started", "waiting", "stopped", "done", "failed", "not applicable"]

AGAIN = ("environment", "provider", "kbtui")
"""Owners of failures that a kernel had no part in."""


class Row(Record, frozen=True, kw_only=True):
    """What a method made of one kernel.

    `ratio` (measured, with `low` and `high`) or `estimate` (modelled) is the best version against the baseline, 1 where
    nothing beat it. `sum_ratio` is all baseline times over all of the best's, measured or modelled as `timing` says.
    `correct` counts correct versions beside the baseline. `reason` says of what failed why, of a result that is no gain
    what became of its versions. `owner` of a failure: the candidate, or one of `AGAIN`, which `--resume` tries again. A
    `stopped` one has what its run had found when the time was over; it counts for nothing before it is done, and one that the
    method is `not applicable` to never does. Without a `run_id` no run was made.
    `of_limit_percent` is the best version's share of the speed of light.
    """

    benchmark: str
    suite: str
    method: str
    kernel: str
    status: Status
    run_id: str = ""
    device: str = ""
    timing: TimingKind = "modelled"
    verdict: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    estimate: float | None = None
    sum_ratio: float | None = None
    baseline_ms: float | None = None
    pulls: int = 0
    candidates: int = 0
    correct: int = 0
    cost_usd: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""
    owner: str = ""
    finished_at: float = 0.0
    stopped_by: str = ""
    of_limit_percent: float | None = None
    family: str = ""

    @property
    def gain(self) -> float | None:
        """Best against baseline, measured or modelled; None where there is no correct version."""
        if self.status != "done" or not self.correct:
            return None
        return self.ratio if self.timing == "measured" else self.estimate

    @property
    def over(self) -> bool:
        """Whether `--resume` leaves it as it is."""
        final = self.status in ("done", "not applicable")
        return final or (self.status == "failed" and self.owner not in AGAIN)


def row_of(started: Row, state: RunState, summary: Summary, seconds: float, at: float) -> Row:
    """The result of a run that came to its end, or to one before it where somebody stopped it."""
    best = state.best
    is_baseline = best is None or best.id == summary.baseline_id
    timing = best.timing if best is not None else None
    measured = summary.timing == "measured"
    share = share_of_light(state)
    return msgspec.structs.replace(
        started,
        status="stopped" if summary.stopped_by == "user" else "done",
        device=summary.device,
        timing=summary.timing,
        verdict="" if is_baseline or timing is None else timing.verdict,
        ratio=_figure(is_baseline, timing.ratio if timing else None) if measured else None,
        low=timing.low if timing is not None and measured and not is_baseline else None,
        high=timing.high if timing is not None and measured and not is_baseline else None,
        estimate=None if measured else _figure(is_baseline, timing.estimate if timing else None),
        sum_ratio=1.0 if is_baseline else sum_over_sum(timing),
        baseline_ms=summary.baseline_ms,
        pulls=summary.pulls,
        candidates=summary.candidates,
        correct=sum(one.id != summary.baseline_id for one in state.frontier),
        cost_usd=summary.cost_usd,
        tokens=summary.tokens,
        seconds=seconds,
        finished_at=at,
        stopped_by=summary.stopped_by,
        of_limit_percent=100 * share if share is not None else None,
        reason="" if not is_baseline else what_became(state, summary),
    )


def _figure(is_baseline: bool, figure: float | None) -> float | None:
    return 1.0 if is_baseline else figure


def sum_over_sum(timing: Timing | None) -> float | None:
    """Total time of the baseline over total time of what was timed, on the cases that have both."""
    base = own = 0.0
    for case in timing.cases if timing is not None else ():
        ms, ratio = (case.ms, case.ratio) if case.ms is not None else (case.estimate_ms, case.estimate_ratio)
        if ms and ratio:
            own += ms
            base += ms * ratio
    return base / own if own else None


class RowFile:
    """The results of one shard of a benchmark."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Row) -> None:
        """Add a row for good: it survives a power cut."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def read_rows(files: Iterable[Path]) -> dict[str, Row]:
    """The last row of every kernel, sorted by kernel; of several files that which is over, else that which came last.

    A line that was cut off by a crash is passed over if it is the last. Raises HistoryError naming file and line.
    """
    found: dict[str, Row] = {}
    for file in sorted(files):
        for kernel, row in _last_rows(file).items():
            other = found.get(kernel)
            if other is None or (row.over, row.finished_at) >= (other.over, other.finished_at):
                found[kernel] = row
    return dict(sorted(found.items()))


def _last_rows(file: Path) -> dict[str, Row]:
    found: dict[str, Row] = {}
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = msgspec.json.decode(line, type=Row)
        except msgspec.DecodeError as error:
            if number == len(lines):
                continue
            raise HistoryError(f"{file}, line {number} is no result ({error}): remove that line") from None
        found[row.kernel] = row
    return found
