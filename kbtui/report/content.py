"""What a report says, free of any format: pairs and tables of cells. A modelled figure is marked in the cell itself."""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from kbtui.history.evidence import baseline_name, make_card, page
from kbtui.state.records import CaseTiming, Reading
from kbtui.state.run_state import ACT, Candidate, RunState, device_text
from kbtui.text import clean, clean_line
from kbtui.tui.views import numbers as n
from kbtui.tui.views.arms import cells_of, short
from kbtui.tui.views.status import candidate_mark, evidence, origin

MODELLED = "Every time in this report is an estimate from counted traffic and the compiled code, not a measurement."
UNIFIED_CONTEXT = 4
TIME_NAMES = {
    "": "time",
    "total": "time, total of the cases",
    "geomean": "time, geometric mean of the cases",
    "worst": "time, worst of the cases",
}
"""What the one time of a version is called, by `numbers.time_kind`."""


@dataclass(frozen=True)
class Cell:
    """`kind`: "" text, "num" a number, "est" a modelled figure, "good", "bad", "warn" a verdict, "best" the best."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Table:
    """`depths` are the rows' levels of lineage, for a table that is a tree."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    depths: tuple[int, ...] = ()
    note: str = ""


Pairs = tuple[tuple[str, Cell], ...]


def title(state: RunState) -> str:
    """`softmax on NVIDIA H200`."""
    started = state.started
    return f"{started.problem.name} on {device_text(started)}" if started is not None else "a run that did not start"


def figure(candidate: Candidate) -> Cell:
    """Ratio to the baseline: `1.42x [1.39, 1.45]`, or `~1.31 est`."""
    text, role = n.figure(candidate)
    if candidate.timing is not None and text and role != "est":
        text = f"{text} {n.interval_text(candidate.timing)}".rstrip()
    return Cell(text or "not timed", "est" if role == "est" else "num" if text else "")


def verdict(state: RunState, candidate: Candidate) -> Cell:
    """The candidate's state with its glyph."""
    glyph, role = candidate_mark(state, candidate)
    kind = {"accent": "best", "good": "good", "bad": "bad", "ban": "bad", "warn": "warn"}.get(role, "")
    return Cell(f"{glyph} {candidate.status}", kind)


def summary(state: RunState) -> Pairs:
    """The run in a few lines."""
    started, best, base = state.started, state.best, state.baseline
    assert started is not None
    rows: list[tuple[str, Cell]] = []
    if best is not None:
        rows.append(("best", Cell(f"#{best.id} {origin(best)}", "best")))
        rows.append((f"against {baseline_name(state)}", figure(best)))
        rows.append(("verdict", verdict(state, best)))
    timing, before = (best.timing, base.timing) if best is not None and base is not None else (None, None)
    if timing is not None and before is not None and (was := n.objective_time(state, before, timing)):
        kind = "est" if state.modelled else "num"
        worst = n.worst_case(state, timing)
        name = TIME_NAMES[n.time_kind(state, timing)] + (f" ({worst})" if worst else "")
        rows.append((name, Cell(f"{was} → {n.objective_time(state, timing)}", kind)))
        light = n.speed_of_light(state, timing)
        rows.append(
            ("speed of light", Cell("unknown" if light is None else f"{light:.0f} % of it", "num" if light else ""))
        )
    rows += [
        ("times", Cell("modelled, not measured", "est") if state.modelled else Cell("measured")),
        ("pulls", Cell(f"{state.pulls_ended} of {state.iterations}", "num")),
        ("candidates", Cell(f"{len(state.candidates)}, {len(state.frontier)} correct", "num")),
        (
            "spent",
            Cell(
                f"{n.money_text(state.cost_usd)}, {n.plural(state.tokens, 'token')}, {n.duration_text(state.elapsed)}",
                "num",
            ),
        ),
        ("state", Cell(f"stopped by {state.stopped_by}" if state.stopped_by else state.status)),
    ]
    return tuple(rows)


def configuration(state: RunState) -> Pairs:
    """How the run was set up. Who ran it where is left out: a report is for others to read."""
    started = state.started
    assert started is not None
    device = started.device
    rows = [
        ("run", started.run_id),
        ("begun", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(state.first_t))),
        ("problem", f"{started.problem.name}, sha256 {started.problem.digest[:16]}"),
        ("device", f"{device.name} ({device.target})"),
        ("generator", f"{started.generator} {started.model}".strip()),
        ("policy", _settings(started.policy, started.policy_parameters)),
        ("objective", started.objective),
        ("seed", str(started.seed)),
        ("parallel", str(started.parallel)),
        ("limits", _limits(state)),
        ("versions", ", ".join(f"{name} {version}" for name, version in sorted(started.versions.items()))),
        ("isolation", ", ".join(f"{name}: {how}" for name, how in sorted(started.isolation.items()))),
    ]
    if state.hint:
        rows.append(("hint", state.hint))
    return tuple((name, Cell(clean_line(value))) for name, value in rows if value)


def _settings(name: str, parameters: dict[str, int | float | str | bool]) -> str:
    return name + (f" ({', '.join(f'{key} {value}' for key, value in parameters.items())})" if parameters else "")


def _limits(state: RunState) -> str:
    parts = [n.plural(state.iterations, "pull")]
    if state.budget_usd is not None:
        parts.append(n.money_text(state.budget_usd))
    if state.budget_tokens is not None:
        parts.append(n.plural(state.budget_tokens, "token"))
    if state.budget_s is not None:
        parts.append(f"{state.budget_s / 60:g} minutes")
    if state.patience is not None:
        parts.append(f"{n.plural(state.patience, 'pull')} without a gain")
    return ", ".join(parts)


def tree(state: RunState) -> Table:
    """Every candidate under its parent, with what became of it."""
    rows, depths = [], []
    for depth, candidate in _lineage(state):
        why = evidence(candidate)
        marks = [f"[{tag}]" for tag in candidate.tags]
        if candidate.id == state.pinned:
            marks.append("[pinned]")
        time_text = n.time_of(state, candidate)
        rows.append((
            Cell(f"#{candidate.id}", "best" if candidate.id == state.best_id else ""),
            Cell(" ".join([origin(candidate), *marks])),
            figure(candidate),
            Cell(time_text, "est" if time_text.startswith("~") else "num"),
            verdict(state, candidate),
            Cell(clean_line(why, 160)),
            Cell(n.money_text(candidate.cost_usd) if candidate.cost_usd else "", "num"),
        ))  # fmt: skip
        depths.append(depth)
    head = ("", "made by", "ratio", "time", "verdict", "why", "cost")
    return Table(head, tuple(rows), tuple(depths))


def _lineage(state: RunState) -> Iterator[tuple[int, Candidate]]:
    roots = [c.id for c in state.candidates.values() if c.parent_id not in state.candidates]
    stack = [(0, number) for number in reversed(roots)]
    while stack:
        depth, number = stack.pop()
        candidate = state.candidates[number]
        yield depth, candidate
        stack += [(depth + 1, child) for child in reversed(candidate.children)]


def arms(state: RunState) -> Table:
    """What the bandit believes of each arm, and what is held back and why."""
    rows = []
    for cell in cells_of(state).values():
        if cell.mean is None and not cell.held:
            continue
        held = f"{cell.held}: {cell.reason}" if cell.reason else cell.held
        chosen = "chosen last" if cell.chosen else "next best" if cell.runner_up else ""
        rows.append((
            Cell(f"c{cell.cluster}"), Cell(cell.strategy), Cell(f"{cell.pulls:.3g}", "num"), Cell(short(cell.mean), "num"),
            Cell(short(cell.bonus), "num"), Cell(short(cell.score), "num"), Cell(held, "warn" if held else ""), Cell(chosen),
        ))  # fmt: skip
    return Table(("cluster", "strategy", "pulls", "mean", "bonus", "score", "held back", ""), tuple(rows))


def cases(state: RunState, candidate: Candidate) -> Table:
    """The candidate's time by case against the baseline and the speed of light."""
    timing = candidate.timing
    if timing is None:
        return Table((), (), note="not timed")
    base = state.baseline_beside(candidate)
    before = {case.case: case for case in base.cases} if base is not None else {}
    modelled = timing.kind == "modelled"
    rows = tuple(_case(case, before.get(case.case), modelled) for case in timing.cases)
    return Table(("case", "baseline", "this", "interval", "ratio", "least time", "bound"), rows)


def _case(case: CaseTiming, before: CaseTiming | None, modelled: bool) -> tuple[Cell, ...]:
    kind, about = ("est", "~") if modelled else ("num", "")
    ms = case.estimate_ms if modelled else case.ms
    was = None if before is None else before.estimate_ms if modelled else before.ms
    ratio = case.estimate_ratio if modelled else case.ratio
    interval = ""
    if case.low_ms is not None and case.high_ms is not None:
        interval = f"{n.time_text(case.low_ms)} … {n.time_text(case.high_ms)}"
    ratio_text = "" if ratio is None else n.estimate_text(ratio) if modelled else n.ratio_text(ratio)
    return (
        Cell(case.case),
        Cell(f"{about}{n.time_text(was)}" if was is not None else "", kind),
        Cell(
            f"{about}{n.time_text(ms)}" if ms is not None else case.failed or "no time",
            kind if ms is not None else "bad",
        ),
        Cell(interval, "num"),
        Cell(ratio_text, kind),
        Cell(n.time_text(case.floor_ms) if case.floor_ms else "?", "num"),
        Cell(case.bound),
    )


def facts(candidate: Candidate) -> Pairs:
    """What the compiler made of it, and the hardware signature."""
    rows: list[tuple[str, Cell]] = []
    for kernel in candidate.compilation.kernels if candidate.compilation is not None else ():
        constants = ", ".join(f"{name} {value}" for name, value in kernel.constants.items())
        text = (
            f"{kernel.registers} registers, {kernel.spill_bytes} B spilled, {kernel.shared_bytes} B shared, "
            f"{kernel.num_warps} warps, {kernel.num_stages} stages, occupancy {kernel.occupancy_percent:g} %"
        )
        row = (kernel.name, Cell(f"{text}{f', {constants}' if constants else ''}"))
        if row not in rows:  # one kernel compiled alike for several cases is one line
            rows.append(row)
    signature = candidate.signature
    for name, reading in (
        (("SM", signature.sm), ("DRAM", signature.dram), ("L2", signature.l2)) if signature is not None else ()
    ):
        rows.append((f"{name}, % of peak", _reading(reading)))
    return tuple((clean_line(name), cell) for name, cell in rows)


def _reading(reading: Reading) -> Cell:
    if reading.percent is None:
        return Cell(f"? {reading.reason}".rstrip())
    source = "modelled" if reading.source == "model" else reading.source
    return Cell(f"{n.percent_text(reading)}, {source}", "est" if reading.source == "model" else "num")


def difference(state: RunState, candidate: Candidate) -> list[str]:
    """The unified diff from the baseline to a candidate, without its two head lines."""
    base = state.baseline
    before = clean(base.source).split("\n") if base is not None else []
    after = clean(candidate.source).split("\n")
    lines = list(difflib.unified_diff(before, after, lineterm="", n=UNIFIED_CONTEXT))
    return lines[2:]


def card(state: RunState, candidate: Candidate) -> str:
    """The page of the evidence card; why there is none for one that was not verified correct and timed."""
    if not candidate.correct or candidate.timing is None:
        reason = evidence(candidate) or candidate.status
        return f"No evidence card: #{candidate.id} is {candidate.status} ({reason})."
    return clean(page(make_card(state, candidate)))


def people(state: RunState) -> tuple[tuple[str, str], ...]:
    """(time, what) of what people did to the run. Of very long runs the newest."""
    return tuple(
        (time.strftime("%H:%M:%S UTC", time.gmtime(line.t)), clean_line(line.text))
        for line in state.log
        if line.level == ACT
    )
