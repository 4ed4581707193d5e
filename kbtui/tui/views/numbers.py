"""How numbers are written in the cockpit. A modelled number never looks like a measured one."""

from __future__ import annotations

import math

from kbtui import text
from kbtui.state.records import Reading, Timing
from kbtui.state.run_state import Candidate, RunState


def ratio_text(ratio: float) -> str:
    """A measured speedup: `1.42x`."""
    return f"{ratio:.2f}x"


def estimate_text(estimate: float) -> str:
    """A modelled ratio: `~1.31 est`."""
    return f"~{estimate:.2f} est"


def figure(candidate: Candidate) -> tuple[str, str]:
    """(text, role) of a candidate's ratio to the baseline; ("", ...) when it has none."""
    if candidate.ratio is not None:
        return ratio_text(candidate.ratio), "text"
    if candidate.estimate is not None:
        return estimate_text(candidate.estimate), "est"
    return "", "dim"


def ratio_in(timing: Timing) -> str:
    """The ratio of one timing, measured or modelled and said so; "" when it has none."""
    if timing.ratio is not None:
        return ratio_text(timing.ratio)
    return estimate_text(timing.estimate) if timing.estimate is not None else ""


def interval_text(timing: Timing) -> str:
    """`[1.39, 1.45]`, "" where there is no interval."""
    return f"[{timing.low:.2f}, {timing.high:.2f}]" if timing.low is not None and timing.high is not None else ""


def time_text(ms: float) -> str:
    """A duration given in milliseconds, as everywhere: `33.5 µs`, `1.42 ms`."""
    return text.time_text(ms)


def measured_ms(state: RunState, timing: Timing) -> float | None:
    """The measured times of all cases as one, by the run's objective; None when a case has none."""
    return _combined(state, timing, [case.ms for case in timing.cases])


def modelled_ms(state: RunState, timing: Timing) -> float | None:
    """The modelled times of all cases as one, by the run's objective; None when a case has none."""
    return _combined(state, timing, [case.estimate_ms for case in timing.cases])


def _combined(state: RunState, timing: Timing, times: list[float | None]) -> float | None:
    """Their sum for `total`, else their geometric mean, each with the weights of the cases, in ms.

    A sum beside a geometric mean of ratios would contradict it: one long case decides the sum. For `worst` the mean is what
    candidates are shown by beside one another, since the worst case is another one for each: `objective_time` has that.
    """
    known = [time for time in times if time is not None and time > 0]
    if state.started is None or not times or len(known) < len(times):
        return None
    weight_of = {case.name: case.weight for case in state.started.problem.cases}
    weights = [weight_of.get(case.case, 1.0) for case in timing.cases]
    if state.started.objective == "total":
        return sum(weight * time for weight, time in zip(weights, known, strict=True))
    logs = sum(weight * math.log(time) for weight, time in zip(weights, known, strict=True))
    return math.exp(logs / sum(weights))


def time_kind(state: RunState, timing: Timing) -> str:
    """What `objective_time` is, by the objective's own name; "" where there is one case, and of a baseline under `worst`: none of
    its cases is behind."""
    if state.started is None or len(state.started.problem.cases) < 2:
        return ""
    worst = state.started.objective == "worst"
    return "" if worst and worst_case(state, timing) is None else state.started.objective


def worst_case(state: RunState, timing: Timing) -> str | None:
    """The case that decides under `worst`, by name; None under another objective, and where all cases are as before."""
    if state.started is None or state.started.objective != "worst":
        return None
    ratios = {case.case: case.ratio or case.estimate_ratio for case in timing.cases}
    known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
    return min(known, key=known.__getitem__) if any(ratio != 1.0 for ratio in known.values()) else None


def objective_time(state: RunState, timing: Timing, of: Timing | None = None) -> str:
    """A timing's time by the run's objective, as `time_of` writes it: under `worst` that of the case which decides for `of`, or
    for the timing itself."""
    deciding = worst_case(state, of or timing)
    case = next((case for case in timing.cases if case.case == deciding), None)
    if case is None:
        return time_in(state, timing)
    if case.ms is not None:
        return time_text(case.ms)
    return f"~{time_text(case.estimate_ms)}" if case.estimate_ms is not None else ""


def time_of(state: RunState, candidate: Candidate) -> str:
    """A candidate's time over the cases: measured, or modelled with `~`; "" when it has none."""
    return time_in(state, candidate.timing) if candidate.timing is not None else ""


def time_in(state: RunState, timing: Timing) -> str:
    """A timing's time over the cases, as `time_of` writes it."""
    measured = measured_ms(state, timing)
    if measured is not None:
        return time_text(measured)
    modelled = modelled_ms(state, timing)
    return f"~{time_text(modelled)}" if modelled is not None else ""


def speed_of_light(state: RunState, timing: Timing) -> float | None:
    """Least time (`CaseTiming.limit_ms`) over measured time in percent, by the run's objective (of `worst` the mean over the
    cases); None when either is unknown."""
    measured = measured_ms(state, timing)
    least = _combined(state, timing, [case.limit_ms for case in timing.cases])
    return None if measured is None or least is None else 100.0 * least / measured


def percent_text(reading: Reading) -> str:
    """A share of peak: `83 %`, `~77 %` when modelled, `?` when unknown."""
    if reading.percent is None:
        return "?"
    return f"~{reading.percent:.0f} %" if reading.source == "model" else f"{reading.percent:.0f} %"


def duration_text(seconds: float) -> str:
    """`07:12`, `1:02:03`, `2 d 03:00`."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d}:{rest // 60:02d}"
    if hours:
        return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{rest // 60:02d}:{rest % 60:02d}"


def age_text(seconds: float) -> str:
    """`now`, `5 min ago`, `3 h ago`, `2 d ago`: as coarse as a person cares."""
    if seconds < 60:
        return "now"
    if seconds < 3600:
        return f"{int(seconds // 60)} min ago"
    if seconds < 48 * 3600:
        return f"{int(seconds // 3600)} h ago"
    return f"{int(seconds // 86400)} d ago"


def number_text(value: float) -> str:
    """`232,448`, `62.5`, `0.0313`: whole numbers whole, with thousands marks, others to four digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def bytes_text(count: float) -> str:
    """`2.1 GB`, in powers of 1024 as memory is sold."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def money_text(dollars: float) -> str:
    """`$0.38`; `$0.0042` for small sums, so that a cheap run is not shown as free."""
    return f"${dollars:.4f}" if 0 < dollars < 0.01 else f"${dollars:.2f}"


def plural(count: int, noun: str) -> str:
    """`1 pull`, `2 pulls`."""
    return text.plural(count, noun)
