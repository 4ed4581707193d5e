"""The roofline as text: how far each case is under the roof that the memory and the arithmetic units put over it.

Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 2009. Both axes are logarithmic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kbtui.state.peaks import peak_of
from kbtui.state.records import CaseInfo, DeviceInfo, Timing
from kbtui.state.run_state import Candidate, RunState
from kbtui.tui.glyphs import STEEP
from kbtui.tui.line import Line, LineBuilder, text_line

HEIGHT = 9
WIDEST = 72
AXIS = 8
"""Cells of the scale on the left."""
MARKS = "123456789abcdefghijklmnopqrstuvwxyz"
FLAT = "─"


@dataclass(frozen=True)
class Point:
    """A case under its roof. `intensity` in operations/byte, `rate` and `roof` in operations/s."""

    case: str
    intensity: float
    rate: float
    roof: float
    memory_bound: bool

    @property
    def percent(self) -> float:
        return 100.0 * self.rate / self.roof


def roofline_lines(state: RunState, candidate: Candidate, width: int) -> list[Line]:
    """The plot and a line for each case; or one that says what is unknown."""
    lines: list[Line] = [text_line(" roofline", "label")]
    if state.started is None or candidate.timing is None:
        return [*lines, text_line("   not timed", "dim")]
    device = state.device_of(candidate)
    points, unknown = points_of(state.started.problem.cases, device, candidate.timing)
    if not points:
        return [*lines, text_line(f"   unknown: {unknown}", "dim")]
    peak = max(peak_of(case, device) for case in state.started.problem.cases)
    modelled = candidate.timing.kind == "modelled"
    lines += _plot(points, device.peak_bytes_per_s, peak, min(width, WIDEST))
    lines += [_legend(MARKS[index % len(MARKS)], point, width, modelled) for index, point in enumerate(points)]
    peaks = f"{device.peak_bytes_per_s / 1e9:,.0f} GB/s, {ops_text(peak)}"
    source = "by its data sheet" if device.nominal else "as measured on it"
    return [*lines, text_line(f"   roof: {peaks} {source}" + (", times modelled" if modelled else ""), "dim")]


def points_of(cases: tuple[CaseInfo, ...], device: DeviceInfo, timing: Timing) -> tuple[list[Point], str]:
    """The cases that have a place in the plot, and why others have none ("" when all have one)."""
    by_name = {case.case: case for case in timing.cases}
    points, unknown = [], ""
    for case in cases:
        timed = by_name.get(case.name)
        ms = None if timed is None else timed.ms if timed.ms is not None else timed.estimate_ms
        peak = peak_of(case, device)
        if not device.peak_bytes_per_s or not peak:
            unknown = "no peak rates are known of the device"
        elif not case.bytes_moved or not case.operations:
            unknown = "the problem's traffic(case) gives no bytes or no operations"
        elif not ms:
            unknown = "no time"
        else:
            intensity = case.operations / case.bytes_moved
            slope = intensity * device.peak_bytes_per_s
            points.append(Point(case.name, intensity, case.operations / ms * 1e3, min(slope, peak), slope < peak))
    return points, unknown


def ops_text(rate: float) -> str:
    """`3.1 Tops/s`."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if rate >= size:
            return f"{rate / size:.3g} {unit}ops/s"
    return f"{rate:.3g} ops/s"


def _plot(points: list[Point], bandwidth: float, peak: float, width: int) -> list[Line]:
    ridge = peak / bandwidth
    left = math.log10(min(*(p.intensity for p in points), ridge) / 3)
    right = math.log10(max(*(p.intensity for p in points), ridge) * 4)
    low = math.log10(min(p.rate for p in points) / 3)
    high = math.log10(peak * 2)
    columns = max(width - AXIS - 3, 20)
    grid = [[(" ", "text")] * columns for _ in range(HEIGHT)]

    def row(rate: float) -> int:
        return round((high - math.log10(rate)) / (high - low) * (HEIGHT - 1))

    def column(intensity: float) -> int:
        return min(columns - 1, max(0, round((math.log10(intensity) - left) / (right - left) * (columns - 1))))

    for x in range(columns):
        intensity = 10 ** (left + (right - left) * x / (columns - 1))
        y = row(min(intensity * bandwidth, peak))
        if 0 <= y < HEIGHT:
            grid[y][x] = (STEEP if intensity < ridge else FLAT, "sol")
    for index, point in enumerate(points):
        y = min(HEIGHT - 1, max(0, row(point.rate)))
        grid[y][column(point.intensity)] = (MARKS[index % len(MARKS)], "accent")
    lines = []
    for y, cells in enumerate(grid):
        label = ops_text(10 ** (high - (high - low) * y / (HEIGHT - 1))).split("ops")[0] if y % 4 == 0 else ""
        out = LineBuilder().right(label, AXIS, "label").add(" │", "faint")
        for glyph, role in cells:
            out.add(glyph, role)
        lines.append(_joined(out.line()))
    first, last = f"{10**left:.2g}", f"{10**right:.3g} operations/byte"
    foot = LineBuilder().gap(AXIS + 2).add(first, "dim").to(AXIS + 2 + columns - len(last)).add(last, "dim")
    return [*lines, foot.line()]


def _joined(line: Line) -> Line:
    """Neighbours of one role as one span: fewer bytes to send."""
    out = LineBuilder()
    run: list[str] = []
    role = ""
    for span in line:
        if span.role != role and run:
            out.add("".join(run), role)
            run = []
        role = span.role
        run.append(span.text)
    return out.add("".join(run), role).line()


def _legend(mark: str, point: Point, width: int, modelled: bool) -> Line:
    bound = "under the memory's roof" if point.memory_bound else "under the arithmetic's roof"
    about = "~" if modelled else ""
    share = f"{about}{point.percent:.0f} %"
    out = LineBuilder().add(f"   {mark} ", "accent").left(point.case, max(16, min(44, width - 40)), "text")
    out.right(share, 6, "est" if modelled else "strong").add(f" {bound}", "label")
    if width >= 96:
        out.add(f"  {about}{ops_text(point.rate)} at {point.intensity:.2g} operations/byte", "label")
    return out.line()
