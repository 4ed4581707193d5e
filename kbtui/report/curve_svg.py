"""The best-so-far curve as an SVG drawing that takes its colours from the page around it."""

from __future__ import annotations

import html

from kbtui.state.counting import iterations_by_candidate, iterations_by_pull
from kbtui.state.run_state import RunState
from kbtui.text import plural
from kbtui.tui.views.numbers import speed_of_light

WIDTH, HEIGHT = 860, 280
LEFT, RIGHT, TOP, BOTTOM = 76, 16, 16, 34


def curve_svg(state: RunState) -> str:
    """The curve over pulls, the trials as dots, the speed of light as a dashed line where it is in sight; "" of nothing."""
    if not state.curve:
        return ""
    ratios = [ratio for _, ratio in state.curve]
    at = iterations_by_pull(state)
    reached = max(at.values())
    stands = iterations_by_candidate(state, at)
    trials = [
        (stands[candidate.id], value, candidate.id)
        for candidate in state.candidates.values()
        if candidate.correct and (value := _value(candidate.ratio, candidate.estimate)) is not None
    ]
    light = _light(state)
    high = max(1.0, *ratios)
    in_sight = light is not None and light < 1.0 + 2.5 * max(high - 1.0, 0.1)
    if in_sight and light is not None:
        high = max(high, light)
    # trials far below would press the curve flat: they lie on the bottom
    floor = min([1.0, *ratios]) - 1.5 * max(high - 1.0, 0.1)
    low = max(floor, min([1.0, *ratios, *(value for _, value, _ in trials)]))
    pad = max((high - low) * 0.08, 0.02)
    low, high = low - pad, high + pad
    end = max(state.iterations, reached, 1)

    def x(pull: float) -> float:
        return round(LEFT + pull / end * (WIDTH - LEFT - RIGHT), 1)

    def y(ratio: float) -> float:
        return round(TOP + (high - ratio) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    parts = [_line("axis", x(0), y(low), x(end), y(low)), _line("one", x(0), y(1.0), x(end), y(1.0))]
    parts.append(_text(LEFT - 8, y(1.0) + 4, _label(state, 1.0), "end"))
    if in_sight and light is not None:
        parts.append(_line("light", x(0), y(light), x(end), y(light)))
        parts.append(_text(x(end), y(light) - 6, f"speed of light {light:.2f}x", "end"))
    parts += [
        f'<circle class="trial" cx="{x(pull)}" cy="{y(max(value, low))}" r="3"><title>#{number} '
        f"{html.escape(_label(state, value))}</title></circle>"
        for pull, value, number in trials
    ]
    path = [f"M{x(at[state.curve[0][0]])} {y(ratios[0])}"]
    path += [f"H{x(at[pull])}V{y(ratio)}" for pull, ratio in state.curve[1:]]
    path.append(f"H{x(reached)}")
    parts.append(f'<path class="curve" d="{"".join(path)}"/>')
    if abs(y(ratios[-1]) - y(1.0)) > 14:
        parts.append(_text(LEFT - 8, y(ratios[-1]) + 4, _label(state, ratios[-1]), "end"))
    parts += [_text(x(0), HEIGHT - 12, "0", "start"), _text(x(end), HEIGHT - 12, plural(end, "pull"), "end")]
    what = "modelled ratio" if state.modelled else "speedup"
    name = f"Best {what} so far over pulls, {_label(state, ratios[0])} to {_label(state, ratios[-1])}"
    body = "\n".join(parts)
    return (
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(name)}">\n{body}\n</svg>'
    )


def _value(ratio: float | None, estimate: float | None) -> float | None:
    return ratio if ratio is not None else estimate


def _light(state: RunState) -> float | None:
    base = state.baseline
    percent = speed_of_light(state, base.timing) if base is not None and base.timing is not None else None
    return 100.0 / percent if percent else None


def _label(state: RunState, ratio: float) -> str:
    return f"~{ratio:.2f} est" if state.modelled else f"{ratio:.2f}x"


def _line(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(text)}</text>'
