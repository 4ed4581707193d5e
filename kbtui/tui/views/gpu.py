"""GPU counters: values with their limits, a missing one with its reason, and how old they are."""

from __future__ import annotations

from kbtui.state.events import GpuSampled
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, crop, text_line
from kbtui.tui.session import Session
from kbtui.tui.views import numbers as n

OLD_S = 5.0
"""Samples come once a second; older than this is said."""


def gpu_lines(session: Session, width: int) -> list[Line]:
    """The pane's lines: two per device, or one that says why there is nothing to show."""
    samples = session.state.gpu
    if not samples:
        return [text_line(f" {why_none(session)}", "dim")]
    lines: list[Line] = []
    for key, sample in samples.items():
        if len(samples) > 1:
            lines.append(text_line(f" {sample.device}", "strong"))
        history = list(session.gpu_history.get(key, ()))
        lines += _device_lines(sample, history, width)
    return lines


def age_note(session: Session) -> Line:
    """`12 s ago` where the newest sample is old; nothing while they flow."""
    if not session.state.gpu:
        return ()
    age = min(session.gpu_age(key) for key in session.state.gpu)
    return text_line(f"{age:.0f} s ago", "warn") if age > OLD_S else ()


def why_none(session: Session) -> str:
    """One line: why no counter is shown."""
    started = session.state.started
    if started is not None and started.device.kind == "cpu":
        return f"no GPU in this run: values from the interpreter, times modelled for {started.device.target}"
    if session.feed.connected:
        return "no sample yet: the run process sends one a second"
    return "no live counters: they come from a run process, and none is connected"


def summary(session: Session) -> str:
    """`busy 64 % DRAM 78 % 52 °C`, "" without samples."""
    for sample in session.state.gpu.values():
        v = sample.values
        parts = [
            f"{word} {v[key]:.0f} {unit}"
            for word, key, unit in (
                ("busy", "busy_percent", "%"),
                ("DRAM", "dram_active_percent", "%"),
                ("", "temperature_c", "°C"),
            )
            if key in v
        ]
        return " ".join(part.strip() for part in parts)
    return ""


def _device_lines(sample: GpuSampled, history: list[GpuSampled], width: int) -> list[Line]:
    first = LineBuilder().add(" ")
    _percent(first, sample, "busy", "busy_percent")
    _spark(first, history, "busy_percent", 100.0, width)
    _percent(first.gap(2), sample, "SM", "sm_active_percent")
    _percent(first.gap(2), sample, "DRAM", "dram_active_percent")
    _spark(first, history, "dram_active_percent", 100.0, width)
    _of(first.gap(2), sample, "clock", "sm_clock_mhz", "sm_clock_max_mhz", "MHz")
    second = LineBuilder().add(" ")
    _memory(second, sample)
    _of(second.gap(2), sample, "power", "power_w", "power_limit_w", "W")
    _spark(second, history, "power_w", sample.values.get("power_limit_w", 0.0), width)
    _value(second.gap(2), sample, "", "temperature_c", "°C")
    _throttle(second.gap(2), sample)
    return [crop(first.line(), width), crop(second.line(), width)]


def _missing(out: LineBuilder, sample: GpuSampled, key: str) -> None:
    reason = sample.missing.get(key, "")
    out.add("n/a", "dim")
    if reason:
        out.add(f" ({reason})", "dim")


def _value(out: LineBuilder, sample: GpuSampled, word: str, key: str, unit: str) -> None:
    if word:
        out.add(f"{word} ", "label")
    value = sample.values.get(key)
    if value is None:
        _missing(out, sample, key)
    else:
        out.add(f"{value:.0f} {unit}", "strong")


def _percent(out: LineBuilder, sample: GpuSampled, word: str, key: str) -> None:
    _value(out, sample, word, key, "%")


def _of(out: LineBuilder, sample: GpuSampled, word: str, key: str, limit: str, unit: str) -> None:
    out.add(f"{word} ", "label")
    value = sample.values.get(key)
    if value is None:
        _missing(out, sample, key)
        return
    out.add(f"{value:.0f}", "strong")
    if limit in sample.values:
        out.add(f"/{sample.values[limit]:.0f}", "label")
    out.add(f" {unit}", "label")


def _memory(out: LineBuilder, sample: GpuSampled) -> None:
    out.add("mem ", "label")
    used = sample.values.get("memory_used_bytes")
    if used is None:
        _missing(out, sample, "memory_used_bytes")
        return
    out.add(n.bytes_text(used), "strong")
    total = sample.values.get("memory_total_bytes")
    if total is not None:
        out.add(f" of {n.bytes_text(total)}", "label")


def _throttle(out: LineBuilder, sample: GpuSampled) -> None:
    throttled = sample.values.get("throttle")
    if throttled is None:
        _missing(out.add("throttling ", "label"), sample, "throttle")
    elif throttled:
        out.add(f"{g.ALARM} throttled", "bad").add(f": {', '.join(sample.reasons)}" if sample.reasons else "", "bad")
    else:
        out.add(f"{g.GOOD} no throttling", "good")


def _spark(out: LineBuilder, history: list[GpuSampled], key: str, top: float, width: int) -> None:
    cells = 8 if width >= 64 else 0
    values = [sample.values[key] for sample in history[-cells:] if key in sample.values] if cells else []
    if len(values) > 1:
        out.gap().add(g.spark(values, top), "curve")
