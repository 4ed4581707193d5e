"""Measured timing of a candidate: as many process pairs as its verdict needs, then times, ratios and intervals.

A loser goes after one pair, what looks like nothing after two. Anything that looks like a gain is measured in at least three
fresh pairs with the order of the two processes swapped, up to five while the interval leaves it open.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from kbtui.evaluate import verdict as verdicts
from kbtui.evaluate.pairs import Contestant, Pair, PairPlan, play
from kbtui.evaluate.roofline import REFUSED_BELOW, floor_ms, physical_floor_ms
from kbtui.evaluate.turns import DropTurn, PreparedTurn, ReadTurn
from kbtui.state.records import CaseTiming, DeviceInfo, SpeedVerdict, Timing

MOST_PAIRS = 5
AUDITED_CASES = 8
"""Cases of a pair that are looked at again with new data and by a second clock: drawn anew for every pair, and all of them have
had their turn in the pairs that `faster` needs."""
COLD_S = 0.005
"""Device time of the calls behind a cold time, flushes left out."""
COLD_FLUSH_BYTES = 1 << 28
"""Written before every cold call, at least. On an H200 the CPU's launch showed through a flush of 128 MB (spread of 76 % at
5 us), and hardly through one of 256 (3 to 5 %)."""
OpenPair = Callable[[bool], contextlib.AbstractContextManager[tuple[Contestant, Contestant]]]
"""`open_pair(swapped)`: fresh processes (baseline, candidate), started in the order of their turns, gone afterwards."""
Throttled = Callable[[], bool]
"""Whether the device's clocks are held down at this moment."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """All pairs of one measurement. `held_down`: one of them was taken while the clocks were held down."""

    pairs: tuple[Pair, ...]
    held_down: bool


def measure_baseline(open_pair: OpenPair, plan: PairPlan, throttled: Throttled) -> Measured:
    """The baseline against itself: its times, and by their spread the run's noise floor."""
    series = _Series(open_pair, plan, throttled)
    for _ in range(verdicts.PAIRS_FOR_FLOOR):
        series.measure()
    return series.result()


def measure_candidate(open_pair: OpenPair, plan: PairPlan, throttled: Throttled) -> Measured:
    """Pairs of baseline and candidate until there is a verdict, or MOST_PAIRS."""
    series = _Series(open_pair, plan, throttled)
    for _ in range(MOST_PAIRS):
        pair = series.measure()
        if pair.dropped or settled(series.pairs, plan):
            break
    return series.result()


def measure_cold(player: Contestant, plan: PairPlan) -> dict[int, float]:
    """Times by case in ms on the device with the L2 cache flushed before every call, by a process that was started so. They go
    with the baseline's, to be looked at; nothing is compared by them. Raises PlayerLost."""
    found: dict[int, float] = {}
    for number in range(len(plan.cases)):
        if number not in plan.skipped:
            player.turn(PreparedTurn, "prepare", number)
            read = player.turn(ReadTurn, "read", number, cases=[number], seconds=COLD_S)
            found[number] = statistics.median(read.readings_ms[0])
            player.turn(DropTurn, "drop", number, cases=[number])
    return found


def with_cold(timing: Timing, cold: Mapping[int, float]) -> Timing:
    cases = (msgspec.structs.replace(case, cold_ms=cold.get(number)) for number, case in enumerate(timing.cases))
    return msgspec.structs.replace(timing, cases=tuple(cases))


class _Series:
    """Pairs one after the other, every second one swapped."""

    def __init__(self, open_pair: OpenPair, plan: PairPlan, throttled: Throttled) -> None:
        self.pairs: list[Pair] = []
        self._open_pair = open_pair
        self._plan = plan
        self._throttled = throttled
        self._repeated = False
        self._held_down = False
        timed = [number for number in range(len(plan.cases)) if number not in plan.skipped]
        self._share = max(AUDITED_CASES, math.ceil(len(timed) / verdicts.PAIRS_FOR_FASTER))
        self._drawn = itertools.cycle(random.sample(timed, len(timed)))

    def measure(self) -> Pair:
        """One more pair. The first that ends with the clocks held down is taken again; from then on they are marked: a
        kernel that runs into the power limit does so every time."""
        pair = self._play()
        if self._throttled():
            if self._repeated:
                self._held_down = True
            else:
                self._repeated = True
                pair = self._play()
                self._held_down = self._throttled()
        self.pairs.append(pair)
        return pair

    def _play(self) -> Pair:
        swapped = len(self.pairs) % 2 == 1
        with self._open_pair(swapped) as (reference, candidate):
            return play(reference, candidate, self._plan, swapped=swapped, audited=self._audited())

    def _audited(self) -> Collection[int]:
        """The cases that this pair looks at again."""
        return set(itertools.islice(self._drawn, self._share))

    def result(self) -> Measured:
        return Measured(pairs=tuple(self.pairs), held_down=self._held_down)


def settled(pairs: Sequence[Pair], plan: PairPlan) -> bool:
    if verdicts.out_of_reach([pair.log_ratio(plan.cases, plan.objective) for pair in pairs], plan.noise):
        return True
    return len(pairs) >= verdicts.PAIRS_FOR_FASTER and judged(pairs, plan).verdict != "ambiguous"


def judged(pairs: Sequence[Pair], plan: PairPlan) -> verdicts.Verdict:
    logs = [pair.log_ratio(plan.cases, plan.objective) for pair in pairs]
    if pairs[-1].dropped:
        # Its blocks were enough to say so, and it was stopped for that reason.
        return verdicts.Verdict(verdict="slower", ratio=math.exp(logs[-1]), low=None, high=None, pairs=len(pairs))
    return verdicts.judge(logs, plan.noise, both_orders=len({pair.swapped for pair in pairs}) == 2)


def baseline_timing(measured: Measured, plan: PairPlan, device: DeviceInfo, physical: DeviceInfo) -> Timing:
    """The baseline's timing: ratio 1.0 by definition, verdict "same", and the noise floor in `noise`."""
    logs = [pair.log_ratio(plan.cases, plan.objective) for pair in measured.pairs]
    cases, doubts = _cases(measured.pairs, plan, device, physical)
    return Timing(
        kind="measured",
        verdict="same",
        cases=tuple(msgspec.structs.replace(one, ratio=1.0 if one.ms is not None else None) for one in cases),
        ratio=1.0,
        pairs=len(measured.pairs),
        noise=verdicts.noise_floor(logs),
        suspicious=_doubts(measured, doubts),
    )


def candidate_timing(
    measured: Measured, plan: PairPlan, device: DeviceInfo, physical: DeviceInfo, parent: Timing | None
) -> Timing:
    """The candidate's timing with its verdict. `device` has the peaks for display, `physical` the nominal ones.

    The ratio to the parent goes by way of the baseline, which both were measured against.
    """
    found = judged(measured.pairs, plan)
    cases, doubts = _cases(measured.pairs, plan, device, physical)
    impossible = any(one.failed for number, one in enumerate(cases) if number not in plan.skipped)
    clocks = tuple(doubt for pair in measured.pairs for doubt in pair.suspicious)
    return Timing(
        kind="measured",
        verdict=_believed(found.verdict, impossible=impossible, contradicted=bool(clocks)),
        cases=cases,
        ratio=None if impossible else found.ratio,
        low=None if impossible else found.low,
        high=None if impossible else found.high,
        parent_ratio=None if impossible or parent is None or not parent.ratio else found.ratio / parent.ratio,
        pairs=len(measured.pairs),
        noise=plan.noise,
        suspicious=_doubts(measured, doubts),
    )


def _believed(verdict: SpeedVerdict, *, impossible: bool, contradicted: bool) -> SpeedVerdict:
    """A gain is not claimed on a time that cannot be, nor while two clocks contradict one another."""
    if impossible:
        return "unknown"
    return "ambiguous" if contradicted and verdict == "faster" else verdict


def _doubts(measured: Measured, doubts: list[str]) -> tuple[str, ...]:
    clocks = [doubt for pair in measured.pairs for doubt in pair.suspicious]
    held = ["the clocks were held down"] if measured.held_down else []
    return tuple(dict.fromkeys((*clocks, *doubts, *held)))


def _cases(
    pairs: Sequence[Pair], plan: PairPlan, device: DeviceInfo, physical: DeviceInfo
) -> tuple[tuple[CaseTiming, ...], list[str]]:
    """Times by case over all pairs, and sentences about those that are hard to believe."""
    found, doubts = [], []
    for number, info in enumerate(plan.cases):
        timed = [pair.cases[number] for pair in pairs if number in pair.cases]
        if not timed:
            why = plan.skipped.get(number, "not measured")
            found.append(CaseTiming(case=info.name, floor_ms=floor_ms(info, device), failed=why))
            continue
        logs = [math.log(one.ms) for one in timed]
        ms = math.exp(statistics.fmean(logs))
        least = physical_floor_ms(info, physical)
        if ms < REFUSED_BELOW * least:
            sentence = f"{ms:.4g} ms is faster than the hardware allows ({least:.4g} ms)"
            found.append(CaseTiming(case=info.name, floor_ms=floor_ms(info, device), failed=sentence))
            doubts.append(f"{info.name}: {sentence}")
            continue
        if ms < least:
            doubts.append(f"{info.name}: {ms:.4g} ms is below the least that the traffic allows ({least:.4g} ms)")
        span = verdicts.interval(logs) if len(logs) > 1 else None
        found.append(
            CaseTiming(
                case=info.name,
                ms=ms,
                low_ms=math.exp(span.low) if span is not None else None,
                high_ms=math.exp(span.high) if span is not None else None,
                ratio=math.exp(statistics.fmean(math.log(one.reference_ms / one.ms) for one in timed)),
                called_ms=statistics.median(one.called_ms for one in timed),
                floor_ms=floor_ms(info, device),
            )
        )
    return tuple(found), doubts
