"""The numeric search: between the policy's own pulls, one number of the fastest version is set one step up or down.

Block sizes, warps and stages have an order, and what doubling one of them did says what doubling it once more, or halving
it, may do. The policy cannot know: to it all moves of a strategy are one arm. So a pull goes to the step that promises
most, by what the run has seen (`promise`), where that is more than the policy's own pulls earn (`earned`). It is a pull
like any other, of the arm whose strategy the number belongs to, and that arm learns from it. Nothing is kept between
calls: all evidence is in the pull log.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kbtui.search.reward import log_gain
from kbtui.search.settings import settings_of
from kbtui.state.records import NumberChange, Strategy
from kbtui.state.run_state import Candidate, RunState

SLOPE = 0.1
"""Standard deviation, in log time a doubling, of what a step does that nothing is known of."""
BEND = 0.05
"""How much the slope is expected to fall with one doubling more; and the standard deviation of that."""
ERROR = 0.03
"""Of a slope that was seen, as one of a line: noise, and what else was changed since."""
HOPE = 0.03
"""Log gain that a pull of the policy's own counts as having earned before there is one."""
FAILURE = -0.2
"""Log gain that a version which failed counts as: as far from a gain as a good step is from none."""
WORTH = 0.01
"""A step that is worth less, in log time, is left to the policy, whatever that has earned."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One number of a version, one step up or down, to a version that the run has not seen. `move` is the title."""

    strategy: Strategy
    move: str
    change: NumberChange


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """Mean and standard deviation of the log gain that is believed of a step."""

    mean: float
    deviation: float


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What one change of a number did: `place` is between the logarithms of old and new, `slope` the log gain of going up
    by one step there."""

    parameter: str
    place: float
    slope: float


def its_turn(state: RunState) -> bool:
    """Whether the next pull is the numeric search's: after `tune` pulls of it in a row the policy has one; with `tune` 0 all
    are the policy's."""
    most, row = settings_of(state).tune, 0
    if not most:
        return False
    for pull in sorted(state.pulls.values(), key=lambda pull: pull.number, reverse=True):
        if pull.ended and not pull.seen:
            continue  # dropped: it was nobody's turn
        if not pull.tuned or row >= most:
            break
        row += 1
    return row < most


def tuned_parent(state: RunState) -> Candidate | None:
    """The version whose numbers are searched: the pinned one, else the fastest; None when it has no time."""
    if state.pinned is not None:
        pinned = state.candidates.get(state.pinned)
        return pinned if pinned is not None and pinned.correct and _speed(pinned) else None
    timed = [one for one in state.frontier if _speed(one) and not one.killed_by and not one.parents]
    return max(timed, key=lambda one: (_speed(one), -one.id), default=None)


def evidence(state: RunState) -> list[Evidence]:
    """What changes of numbers did so far, whoever chose them. One that failed teaches as a loss; one that could not be
    judged, or has the machine code of another, teaches nothing."""
    found = []
    for child in state.candidates.values():
        change, parent = child.change, state.candidates.get(child.parent_id if child.parent_id is not None else -1)
        if change is None or parent is None or child.killed_by or child.pruned is not None:
            continue
        gain = log_gain(parent, child)
        if gain is None and child.verification is not None and child.verification.verdict in ("correct", "unknown"):
            continue
        if gain is None and child.verification is None and (child.compilation is None or child.compilation.ok):
            continue
        sign = 1.0 if change.new > change.old else -1.0
        slope = sign * (gain if gain is not None else FAILURE)
        found.append(Evidence(parameter=change.parameter, place=_place(change), slope=slope))
    return found


def promise(step: Step, seen: Sequence[Evidence]) -> Promise:
    """What the step may gain, from what changes of the same number did, near or far.

    The slope of log time over log2 of a number is taken for a line, slope(x) = a + b·(x − place), since most numbers have
    one best value; a ~ N(0, `SLOPE`²), b ~ N(−`BEND`, `BEND`²), and a slope seen has an error of `ERROR`: Bayesian linear
    regression, whose posterior for the slope at the step's place is that of a.
    """
    sign = 1.0 if step.change.new > step.change.old else -1.0
    place = _place(step.change)
    # Precision matrix and its product with the mean, of (a, b).
    aa, ab, bb = SLOPE**-2, 0.0, BEND**-2
    ya, yb = 0.0, -BEND * BEND**-2
    for one in seen:
        if one.parameter == step.change.parameter:
            x, weight = one.place - place, ERROR**-2
            aa, ab, bb = aa + weight, ab + weight * x, bb + weight * x * x
            ya, yb = ya + weight * one.slope, yb + weight * one.slope * x
    determinant = aa * bb - ab * ab
    mean, variance = (bb * ya - ab * yb) / determinant, bb / determinant
    return Promise(mean=sign * mean, deviation=math.sqrt(variance))


def hoped(found: Promise) -> float:
    """E[max(0, gain)] of a normal gain: what a pull of the step is worth to someone who keeps only the fastest version."""
    z = found.mean / found.deviation
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return found.mean * (1 + math.erf(z / math.sqrt(2))) / 2 + found.deviation * density


def earned(state: RunState) -> float:
    """What the policy's own pulls earn on average, in its unit of reward, with one pull of `HOPE` at first: what a step has to
    be worth to be taken instead."""
    rewards = [pull.reward or 0.0 for pull in state.pulls.values() if pull.seen and not pull.tuned]
    return max(WORTH, (HOPE + math.fsum(rewards)) / (1 + len(rewards)))


def _place(change: NumberChange) -> float:
    """Between two numbers, on the logarithm's scale: the middle of 4 → 8 is as far from that of 8 → 16 as any two steps."""
    return (math.log2(max(change.old, 1)) + math.log2(max(change.new, 1))) / 2


def _speed(candidate: Candidate) -> float:
    return candidate.ratio or candidate.estimate or 0.0
