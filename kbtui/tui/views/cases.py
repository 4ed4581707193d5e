"""A candidate's time by case, against the baseline and the speed of light: measured, or modelled and said so."""

from __future__ import annotations

from kbtui.state.records import CaseTiming, Timing
from kbtui.state.run_state import Candidate, RunState
from kbtui.tui.line import Line, LineBuilder, text_line
from kbtui.tui.views import numbers as n

NAME_MOST = 46
BESIDE_NAME = 90
"""Columns that the figures take: on a wide screen a name may have what is left, since names differ at their ends."""


def case_lines(state: RunState, candidate: Candidate, width: int) -> list[Line]:
    """A table with one line per case."""
    timing = candidate.timing
    if timing is None:
        return [text_line(f" not timed: {candidate.status}", "dim")]
    lines = [_headline(timing, width), ()]
    base = state.baseline_beside(candidate)
    before = {case.case: case for case in base.cases} if base is not None else {}
    name = (
        min(max(NAME_MOST, width - BESIDE_NAME), max(len(case.case) for case in timing.cases) + 1, max(width - 50, 16))
        if timing.cases
        else 16
    )
    lines.append(_head(timing, name, width))
    lines += [_case(case, before.get(case.case), name, width) for case in timing.cases]
    lines += [(), *_conditions(timing)]
    return lines


def _headline(timing: Timing, width: int) -> Line:
    out = LineBuilder().add(" ")
    if timing.kind == "modelled":
        out.add("modelled", "est").add(
            ": an estimate from counted traffic and the compiled code, not a measurement", "label"
        )
        if timing.estimate is not None:
            out.add("   ").add(n.estimate_text(timing.estimate), "est").add(f"  {timing.verdict}", "strong")
        return out.line()
    out.add("measured", "strong").add(f" over {n.plural(timing.pairs, 'fresh process pair')}", "label")
    if timing.ratio is not None:
        out.add(f"   {n.ratio_text(timing.ratio)} ", "accent").add(n.interval_text(timing))
        out.add(f"  {timing.verdict}", "strong")
    if timing.parent_ratio is not None:
        out.add("   against its parent ", "label").add(n.ratio_text(timing.parent_ratio))
    if timing.noise is not None and width >= 100:
        out.add("   noise floor ", "label").add(f"±{timing.noise * 100:.1f} %")
    return out.line()


def _head(timing: Timing, name: int, width: int) -> Line:
    out = LineBuilder().add(" ").left("case", name, "label").right("baseline", 11, "label").right("this", 11, "label")
    if timing.kind == "measured" and width >= 100:
        out.right("interval", 20, "label")
    out.right("ratio", 11, "label").right("% of SOL" if timing.kind == "measured" else "least time", 11, "label")
    if width >= 90:
        out.add("  bound", "label")
    return out.line()


def _case(case: CaseTiming, before: CaseTiming | None, name: int, width: int) -> Line:
    out = LineBuilder().add(" ").left(case.case, name)
    if case.failed:
        return out.add(f"  failed: {case.failed}", "bad").line()
    if case.ms is not None:
        _measured(out, case, before, width)
    elif case.estimate_ms is not None:
        _modelled(out, case, before)
    else:
        return out.add("  no time", "dim").line()
    if width >= 90 and case.bound:
        out.add(f"  {case.bound}", "label")
    return out.line()


def _measured(out: LineBuilder, case: CaseTiming, before: CaseTiming | None, width: int) -> None:
    assert case.ms is not None
    out.right(n.time_text(before.ms) if before is not None and before.ms is not None else "", 11, "label")
    out.right(n.time_text(case.ms), 11, "strong")
    if width >= 100:
        interval = ""
        if case.low_ms is not None and case.high_ms is not None:
            interval = f"{n.time_text(case.low_ms)}..{n.time_text(case.high_ms)}"
        out.right(interval, 20, "label")
    better = case.ratio is not None and case.ratio > 1.0
    out.right(n.ratio_text(case.ratio) if case.ratio is not None else "", 11, "good" if better else "text")
    out.right(f"{100 * case.floor_ms / case.ms:.0f} %" if case.floor_ms and case.ms else "?", 11)


def _modelled(out: LineBuilder, case: CaseTiming, before: CaseTiming | None) -> None:
    assert case.estimate_ms is not None
    known = before is not None and before.estimate_ms is not None
    out.right(f"~{n.time_text(before.estimate_ms)}" if known else "", 11, "est")  # type: ignore[union-attr, arg-type]
    out.right(f"~{n.time_text(case.estimate_ms)}", 11, "est")
    out.right(n.estimate_text(case.estimate_ratio) if case.estimate_ratio is not None else "", 11, "est")
    out.right(f"~{n.time_text(case.floor_ms)}" if case.floor_ms else "?", 11, "label")


def _conditions(timing: Timing) -> list[Line]:
    lines: list[Line] = [text_line(f" suspicious: {reason}", "warn") for reason in timing.suspicious]
    seen = timing.conditions
    if seen is None:
        return lines
    out = LineBuilder().add(" conditions, before and after:  ", "label")
    for word, pair, unit in (
        ("SM clock", seen.sm_clock_mhz, "MHz"),
        ("memory clock", seen.memory_clock_mhz, "MHz"),
        ("temperature", seen.temperature_c, "°C"),
    ):
        first, last = ("?" if value is None else str(value) for value in pair)
        out.add(f"{word} {first}, {last} {unit}   ")
    lines.append(out.line())
    if seen.reasons:
        lines.append(text_line(f" clocks were held back: {', '.join(seen.reasons)}", "warn"))
    if seen.other_processes:
        lines.append(text_line(f" {n.plural(seen.other_processes, 'other process')} on the device", "warn"))
    return lines
