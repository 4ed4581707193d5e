"""GPU counters: values with their limits, a missing one with its reason, and how old they are."""

from __future__ import annotations

from kbtui.state.events import GpuSampled
from kbtui.tui import glyphs as g
from kbtui.tui.line import Line, LineBuilder, crop, text_line
from kbtui.tui.session import Session
from kbtui.tui.views import numbers as n

ROOMY = 64
"""Cells of a pane that has room for all sparklines."""
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
            lines.append(text_line(f" {_named(session, sample)}", "strong"))
        history = list(session.gpu_history.get(key, ()))
        lines += _device_lines(sample, history, width)
    return lines


def _named(session: Session, sample: GpuSampled) -> str:
    """The run's name for the device; one that another program of the run's looks at has its own."""
    devices = session.state.devices.values()
    return next((one.lane for one in devices if one.uuid and one.uuid == sample.uuid), sample.device)


def note(session: Session) -> Line:
    """Beside the title: whether the clocks are held back, and how old the newest sample is once they stop flowing."""
    samples = session.state.gpu
    if not samples:
        return ()
    out = LineBuilder()
    _throttle(out, list(samples.values()))
    age = min(session.gpu_age(key) for key in samples)
    if age > OLD_S:
        out.gap(2).add(f"{age:.0f} s ago", "warn")
    return out.line()


def why_none(session: Session) -> str:
    """One line: why no counter is shown."""
    started = session.state.started
    if started is not None and started.device.kind == "cpu":
        return f"no GPU in this run: times are modelled for {started.device.target}"
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
    _value(first, sample, "busy", "busy_percent", "%")
    _spark(first, history, "busy_percent", 100.0, width)
    _value(first.gap(2), sample, "SM", "sm_active_percent", "%")
    _value(first.gap(2), sample, "DRAM", "dram_active_percent", "%")
    _spark(first, history, "dram_active_percent", 100.0, width)
    second = LineBuilder().add(" ")
    _memory(second, sample)
    _of(second.gap(2), sample, "power", "power_w", "power_limit_w", "W")
    if width >= ROOMY:
        _spark(second, history, "power_w", sample.values.get("power_limit_w", 0.0), width)
    _value(second.gap(2), sample, "", "temperature_c", "°C")
    _of(second.gap(2), sample, "" if width < 74 else "clock", "sm_clock_mhz", "sm_clock_max_mhz", "MHz")
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


def _of(out: LineBuilder, sample: GpuSampled, word: str, key: str, limit: str, unit: str) -> None:
    if word:
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
    total = sample.values.get("memory_total_bytes")
    if total is None:
        out.add(n.bytes_text(used), "strong")
    else:
        out.add(f"{used / 2**30:.1f}", "strong").add(f"/{total / 2**30:.0f} GB", "label")


def _throttle(out: LineBuilder, samples: list[GpuSampled]) -> None:
    held = [sample for sample in samples if sample.values.get("throttle")]
    if held:
        reasons = sorted({reason for sample in held for reason in sample.reasons})
        out.add(f"{g.ALARM} throttled", "bad").add(f": {', '.join(reasons)}" if reasons else "", "bad")
    elif all("throttle" in sample.values for sample in samples):
        out.add("no throttling", "label")
    else:
        _missing(out.add("throttling ", "label"), samples[0], "throttle")


def _spark(out: LineBuilder, history: list[GpuSampled], key: str, top: float, width: int) -> None:
    cells = 8 if width >= ROOMY else 6
    values = [sample.values[key] for sample in history[-cells:] if key in sample.values]
    if len(values) > 1:
        out.gap().add(g.spark(values, top), "curve")
