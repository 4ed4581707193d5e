"""The figures of a benchmark, and its table as Markdown, CSV and JSON. Modelled figures say so wherever they stand."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence

import msgspec

from kbtui.bench.rows import Row
from kbtui.evaluate.estimate import UNCERTAINTY
from kbtui.state.records import Record, TimingKind
from kbtui.text import clean_line

OTHER = "other"
NEAR_LIMIT = 80.0
"""Percent of the speed of light from which on it is a reason of its own that nothing moves."""


class Figures(Record, frozen=True, kw_only=True):
    """Over all tasks that are over. Percentages are of `tasks`; a failed task counts as 1.0x in `geomean_all`.
    `waiting` for replies and `unfinished` ones count for nothing yet, `not_applicable` ones not at all.

    `correct_percent`: at least one correct version beside the baseline. `fast_percent` (Fast@1): the best is faster than
    the baseline, measured beyond doubt, or modelled beyond the estimate's uncertainty. `sum_over_sum`: TritonBench's own
    speedup, by kernel all baseline times over all times of the best, the mean over correct tasks.
    """

    timing: TimingKind
    tasks: int
    failed: int
    waiting: int
    unfinished: int
    not_applicable: int
    correct_percent: float
    fast_percent: float
    geomean_correct: float | None
    geomean_all: float | None
    median: float | None
    sum_over_sum: float | None
    seconds: float
    cost_usd: float
    tokens: int


def figures(rows: Sequence[Row]) -> Figures:
    """The figures of a benchmark's rows, all of one kind of timing."""
    over = [row for row in rows if row.status in ("done", "failed")]
    gains = [row.gain for row in over if row.gain is not None]
    sums = [row.sum_ratio for row in over if row.gain is not None and row.sum_ratio is not None]
    count = len(over)
    return Figures(
        timing=next((row.timing for row in sorted(rows, key=lambda row: row.status != "done")), "modelled"),
        tasks=count,
        failed=sum(row.status == "failed" for row in over),
        waiting=sum(row.status == "waiting" for row in rows),
        unfinished=sum(row.status in ("started", "stopped") for row in rows),
        not_applicable=sum(row.status == "not applicable" for row in rows),
        correct_percent=_percent(sum(row.correct > 0 for row in over), count),
        fast_percent=_percent(sum(map(_fast, over)), count),
        geomean_correct=_geomean(gains),
        geomean_all=_geomean([row.gain if row.gain is not None else 1.0 for row in over]),
        median=statistics.median(gains) if gains else None,
        sum_over_sum=statistics.fmean(sums) if sums else None,
        seconds=sum(row.seconds for row in rows),
        cost_usd=sum(row.cost_usd for row in rows),
        tokens=sum(row.tokens for row in rows),
    )


def by_family(rows: Sequence[Row]) -> dict[str, Figures]:
    """The figures of every family that rows were given, sorted; of what has none under "other"."""
    if not any(row.family for row in rows):
        return {}
    names = sorted({row.family or OTHER for row in rows}, key=lambda name: (name == OTHER, name))
    return {name: figures([row for row in rows if (row.family or OTHER) == name]) for name in names}


def _fast(row: Row) -> bool:
    if row.gain is None:
        return False
    return row.verdict == "faster" if row.timing == "measured" else math.log(row.gain) > UNCERTAINTY


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _geomean(values: Sequence[float]) -> float | None:
    positive = [value for value in values if value > 0]
    return math.exp(statistics.fmean(map(math.log, positive))) if positive else None


def figure(value: float | None, timing: TimingKind) -> str:
    """`1.23x`, or `~1.23 est` for what is modelled: never a speedup then."""
    if value is None:
        return "-"
    return f"{value:.2f}x" if timing == "measured" else f"~{value:.2f} est"


def summary_lines(found: Figures) -> list[tuple[str, str]]:
    """(name, value) of every figure, for people."""
    t = found.timing
    beside = [
        ("waiting for replies", found.waiting),
        ("begun and not finished, not counted", found.unfinished),
        ("method not applicable, not counted", found.not_applicable),
    ]
    return [
        ("tasks", f"{found.tasks}" + (f", {found.failed} failed" if found.failed else "")),
        *((name, str(number)) for name, number in beside if number),
        ("correct", f"{found.correct_percent:.1f} %"),
        ("Fast@1" if t == "measured" else "Fast@1 (modelled)", f"{found.fast_percent:.1f} %"),
        ("geometric mean, correct tasks", figure(found.geomean_correct, t)),
        ("geometric mean, all tasks", figure(found.geomean_all, t)),
        ("median, correct tasks", figure(found.median, t)),
        ("sum over sum, mean", figure(found.sum_over_sum, t)),
        ("wall time of all runs, added up", f"{found.seconds:.0f} s"),
        ("dollars", f"${found.cost_usd:.2f}"),
    ]


def cells(row: Row) -> tuple[str, ...]:
    """A row for people, in the order of `HEADINGS`."""
    if row.status != "done":
        return (row.kernel, row.status, "-", "-", "-", "-", f"{row.seconds:.0f}", clean_line(row.reason, 120))
    best = figure(row.gain, row.timing) if row.correct else "-"
    if row.low is not None and row.high is not None:
        best += f" [{row.low:.2f}, {row.high:.2f}]"
    made = f"{row.correct} of {max(row.candidates - 1, 0)}"
    sums = figure(row.sum_ratio, row.timing) if row.correct else "-"
    return (
        row.kernel,
        # the best is the baseline; where times are modelled no kernel is known to be the same
        row.verdict or ("same" if row.timing == "measured" else "not worse"),
        best,
        sums,
        made,
        f"{row.cost_usd:.2f}",
        f"{row.seconds:.0f}",
        _remark(row),
    )


def _remark(row: Row) -> str:
    """The run, or why nothing came of it."""
    if not row.reason:
        return row.run_id
    near = row.of_limit_percent is not None and row.of_limit_percent >= NEAR_LIMIT
    return clean_line(row.reason, 120) + (f"; at {row.of_limit_percent:.0f} % of the speed of light" if near else "")


FAMILY_HEADINGS = ("family", "tasks", "correct", "Fast@1", "all tasks", "median")


def family_cells(name: str, found: Figures) -> tuple[str, ...]:
    """A family for people, in the order of `FAMILY_HEADINGS`."""
    return (
        name,
        str(found.tasks),
        f"{found.correct_percent:.0f} %",
        f"{found.fast_percent:.0f} %",
        figure(found.geomean_all, found.timing),
        figure(found.median, found.timing),
    )


HEADINGS = ("kernel", "verdict", "best", "sum/sum", "correct", "$", "s", "run or reason")


def markdown(title: str, rows: Sequence[Row]) -> str:
    """The whole table as Markdown."""
    found = figures(rows)
    lines = [f"# {title}", ""]
    if found.timing == "modelled":
        lines += [
            "All figures are **modelled**: no GPU was used, nothing was timed, and none of them is a speedup.",
            "",
        ]
    lines += ["| figure | value |", "| --- | ---: |"]
    lines += [f"| {name} | {value} |" for name, value in summary_lines(found)]
    families = by_family(rows)
    if families:
        lines += ["", *_grid(FAMILY_HEADINGS, [family_cells(name, one) for name, one in families.items()])]
    lines += ["", *_grid(HEADINGS, [cells(row) for row in rows])]
    return "\n".join(lines) + "\n"


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", f"|{' --- |' * len(headings)}"]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def as_csv(rows: Sequence[Row]) -> str:
    """Every field of every row."""
    out = io.StringIO()
    writer = csv.DictWriter(out, Row.__struct_fields__)
    writer.writeheader()
    writer.writerows(msgspec.to_builtins(row) for row in rows)
    return out.getvalue()


def as_json(title: str, rows: Sequence[Row]) -> bytes:
    """Title, figures, those of every family, and rows."""
    value = {"title": title, "figures": figures(rows), "families": by_family(rows), "rows": list(rows)}
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"
