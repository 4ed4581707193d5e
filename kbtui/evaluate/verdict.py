"""Faster, slower, same or ambiguous: from log-ratios of process pairs to a verdict, and when to stop measuring a loser.

All ratios here are natural logarithms of (reference time / candidate time): positive is faster. Two sources of spread
are kept apart. Blocks within one pair of processes agree better than pairs do (placement of memory and contexts stays for
the life of a process), so the interval of a verdict is over pairs, and blocks only serve to drop clear losers early.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from kbtui.state.records import SpeedVerdict

PAIRS_FOR_FASTER = 3
"""Fresh process pairs behind a `faster`; both orders of the two processes must be among them."""
PAIRS_FOR_FLOOR = 5
"""Pairs of the baseline with itself behind the noise floor, once a run: with three the floor is twice as high, and of kernels 2 %
faster a third fewer were seen (H200, spread of pairs 0.4 to 0.9 %); with five no more were wrongly called faster."""
SAME_WITHIN = 0.01
"""Equal for all purposes, as a log-ratio, unless the noise floor is wider."""
DROP_MARGIN = 0.02
"""How clearly slower the blocks of one pair must say before the rest of a measurement is skipped."""
CONFIDENCE = 0.95

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom."""


class Interval(msgspec.Struct, frozen=True):
    """A log-ratio with its 95 % interval."""

    low: float
    middle: float
    high: float


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Ratios (not logarithms) of reference over candidate. `low` and `high` are None with fewer than two pairs."""

    verdict: SpeedVerdict
    ratio: float
    low: float | None
    high: float | None
    pairs: int


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond 30 degrees the value for 30, which is a little wide."""
    if freedom < 1:
        raise ValueError("an interval needs two values or more")
    return _STUDENT[min(freedom, len(_STUDENT)) - 1]


def interval(logs: Sequence[float]) -> Interval:
    """Student's t interval of the mean of `logs`, one per process pair. Raises ValueError for fewer than two."""
    n = len(logs)
    reach = student(n - 1)
    middle = math.fsum(logs) / n
    variance = math.fsum((x - middle) ** 2 for x in logs) / (n - 1)
    half = reach * math.sqrt(variance / n)
    return Interval(middle - half, middle, middle + half)


def noise_floor(logs: Sequence[float]) -> float:
    """What a candidate measured against itself shows, as a log-ratio: no verdict may be finer.

    The larger end of the interval over A/A pairs: bias and spread count alike. Raises ValueError for fewer than two.
    """
    seen = interval(logs)
    return max(abs(seen.low), abs(seen.high))


def judge(logs: Sequence[float], noise: float, *, both_orders: bool) -> Verdict:
    """The verdict on a candidate from the log-ratio of each process pair, by interval and noise floor.

    `faster`: the whole interval is above the floor, over PAIRS_FOR_FASTER pairs that ran in both orders. `slower`: the
    whole interval is below minus the floor; with a single pair, the ratio is below it by DROP_MARGIN more. `same`: the
    whole interval lies within the floor or SAME_WITHIN, whichever is wider; of two pairs, whose interval says nothing, both
    in both orders. Else `ambiguous`, which is an answer.
    Raises ValueError without pairs.
    """
    if not logs:
        raise ValueError("no process pair was measured")
    if len(logs) == 1:
        only = logs[0]
        verdict: SpeedVerdict = "slower" if only < -(noise + DROP_MARGIN) else "ambiguous"
        return Verdict(verdict=verdict, ratio=math.exp(only), low=None, high=None, pairs=1)
    seen = interval(logs)
    found = _verdict(seen, noise, enough=len(logs) >= PAIRS_FOR_FASTER and both_orders)
    if len(logs) == 2 and both_orders and found == "ambiguous" and all(abs(x) <= max(noise, SAME_WITHIN) for x in logs):
        found = "same"
    return Verdict(
        verdict=found,
        ratio=math.exp(seen.middle),
        low=math.exp(seen.low),
        high=math.exp(seen.high),
        pairs=len(logs),
    )


def _verdict(seen: Interval, noise: float, *, enough: bool) -> SpeedVerdict:
    if seen.low > noise:
        return "faster" if enough else "ambiguous"
    if seen.high < -noise:
        return "slower"
    equal = max(noise, SAME_WITHIN)
    return "same" if -equal <= seen.low and seen.high <= equal else "ambiguous"


def out_of_reach(logs: Sequence[float], noise: float) -> bool:
    """Whether further pairs are not worth their time: the first one is below minus the floor, or two or more are on average
    within it, so that `faster`, whose whole interval is above the floor, is hardly to be had."""
    return logs[0] < -noise if len(logs) == 1 else math.fsum(logs) / len(logs) <= noise


class ConfidenceSequence:
    """An interval for the mean of log-ratios that holds at all times at once, so that peeking costs nothing.

    The anytime-valid t-test: the likelihood ratio of a standardised effect drawn from N(0, `spread`^2) against none, under
    the right Haar prior on the variance, is a test martingale (Robbins 1970 for mixtures; Lai 1976; Pérez-Ortiz et al.,
    "E-statistics, group invariance and anytime-valid testing", Ann. Statist. 2024; Wang and Ramdas, arXiv 2310.03722).
    Solving it for the mean gives the half-width below in closed form.

    Scale-free: needs no bound on the noise. Readings should be roughly independent and normal; use medians of blocks.
    """

    def __init__(self, confidence: float = CONFIDENCE, spread: float = 3.0) -> None:
        if not 0 < confidence < 1 or spread <= 0:
            raise ValueError("confidence is between 0 and 1, and spread above 0")
        self._alpha = 1 - confidence
        self._prior = spread**2
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0

    def add(self, log_ratio: float) -> None:
        """One more reading (Welford's update)."""
        self._count += 1
        step = log_ratio - self._mean
        self._mean += step / self._count
        self._squares += step * (log_ratio - self._mean)

    @property
    def count(self) -> int:
        return self._count

    def interval(self) -> Interval:
        """Infinite until there are enough readings to say anything."""
        half = self._half_width()
        return Interval(self._mean - half, self._mean, self._mean + half)

    def _half_width(self) -> float:
        n = self._count
        if n < 2:
            return math.inf
        shrink = 1 / (1 + n * self._prior)
        needed = (1 / (self._alpha * math.sqrt(shrink))) ** (2 / n)
        if needed * shrink >= 1:
            return math.inf
        # (1 + u) / (1 + shrink u) >= needed, with u = T^2 / (n - 1) and T the t statistic.
        u = (needed - 1) / (1 - needed * shrink)
        return math.sqrt(u * self._squares / n)


def clearly_slower(sequence: ConfidenceSequence, noise: float) -> bool:
    """Whether a pair's blocks have shown a loser: the sequence lies wholly below the floor by DROP_MARGIN."""
    return sequence.interval().high < -(noise + DROP_MARGIN)
