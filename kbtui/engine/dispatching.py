"""Whether the run's versions together are faster than the best of them: which wins on which sizes. Pure.

Nothing here decides anything: what comes of it is one more version, judged like any other, and the best only by verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kbtui.evaluate.objective import CasePair, combine
from kbtui.generate.moves.dispatch import MOST_INTERVALS, Interval, Rule
from kbtui.state.records import CaseInfo, Timing
from kbtui.state.run_state import Candidate, RunState

LEAST_GAIN = 1.02
"""What picking by size has to promise over the best version, by the run's objective: it costs a comparison a call, and
winners of single cases are picked by their luck in part."""
WORTH_A_CUT = 1.005
"""What each further cut has to add to that."""


@dataclass(frozen=True)
class Merge:
    """`parents` are the versions, the best first, and `rule` says which serves which sizes; `gain` is what that promises over
    the best version, by the objective and each version's own times."""

    parents: tuple[int, ...]
    rule: Rule
    gain: float


def merge_of(state: RunState, parameters: Sequence[str]) -> Merge | None:
    """The best way to pick among the run's versions by one size of the inputs; None where none promises `LEAST_GAIN`, or
    what promises most was tried already. `parameters` are the names of the entry's parameters, by position.

    Sizes are the inputs' dimensions, counted from the last, and their numbers of elements, where all cases have them.
    """
    best, started = state.best, state.started
    if started is None or best is None or best.timing is None or len(started.problem.cases) < 2:
        return None
    cases, reference = started.problem.cases, _times(best.timing, started.problem.cases)
    # Only what was timed where the best was: milliseconds of two devices are not compared.
    timed = ((one.id, one.timing_on(best.device)) for one in state.frontier if _usable(one))
    times = {number: row for number, timing in timed if (row := _times(timing, cases)) is not None}
    if reference is None or len(times) < 2:
        return None
    trial = _Trial(cases, started.objective, times, reference, best.id)
    found: Merge | None = None
    for size, values in _sizes(cases, parameters).items():
        for cuts in trial.partitions(values):
            merge = trial.merge(size, values, cuts)
            needed = found.gain * WORTH_A_CUT if found is not None else LEAST_GAIN
            if merge.gain >= needed:
                found = merge
    return found if found is not None and not _tried(state, found) else None


def _usable(candidate: Candidate) -> bool:
    """Whether a case may be left to the candidate: also one that is slower on the whole, if nothing is held against it."""
    timing, confirmed = candidate.timing, candidate.confirmation
    if timing is None or timing.suspicious or candidate.killed_by or candidate.parents or candidate.empty:
        return False
    return confirmed is None or confirmed.verdict == "correct"


def _times(timing: Timing | None, cases: Sequence[CaseInfo]) -> dict[str, float] | None:
    """Milliseconds by case, measured or modelled as the run is; None where one is missing."""
    if timing is None:
        return None
    measured = timing.kind == "measured"
    found = {case.case: case.ms if measured else case.estimate_ms for case in timing.cases}
    known = {name: ms for name, ms in found.items() if ms}
    return known if all(case.name in known for case in cases) else None


def _sizes(cases: Sequence[CaseInfo], parameters: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Code over the entry's parameters to its value in each case; what is the same in all cases tells nothing apart."""
    found: dict[str, tuple[int, ...]] = {}
    for position, name in enumerate(parameters):
        shapes = [case.shapes[position] if position < len(case.shapes) else None for case in cases]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(cases):
            continue
        for back in range(1, min(map(len, known)) + 1):
            found[f"{name}.shape[-{back}]"] = tuple(shape[-back] for shape in known)
        found[f"{name}.numel()"] = tuple(math.prod(shape) for shape in known)
    distinct: dict[tuple[int, ...], str] = {}
    for code, values in found.items():
        if len(set(values)) > 1:
            distinct.setdefault(values, code)
    return {code: values for values, code in distinct.items()}


Cuts = list[tuple[int, int, int]]
"""(first, end, version) over the distinct sizes in ascending order."""


@dataclass(frozen=True)
class _Trial:
    """`times` are milliseconds by version and case, `reference` those of the best version."""

    cases: Sequence[CaseInfo]
    objective: str
    times: Mapping[int, Mapping[str, float]]
    reference: Mapping[str, float]
    best: int

    def partitions(self, values: Sequence[int]) -> list[Cuts]:
        """For 2, 3, ... intervals of the sizes, the cheapest with one version in each, by dynamic programming."""
        ordered = sorted(set(values))
        count = len(ordered)
        groups = [[case for case, value in zip(self.cases, values, strict=True) if value == size] for size in ordered]
        cheapest = {
            (first, end): self._cheapest([case for group in groups[first:end] for case in group])
            for first in range(count)
            for end in range(first + 1, count + 1)
        }
        table = {(1, end): (cheapest[0, end][0], [(0, end, cheapest[0, end][1])]) for end in range(1, count + 1)}
        for pieces in range(2, min(MOST_INTERVALS, count) + 1):
            for end in range(pieces, count + 1):
                ways = []
                for middle in range(pieces - 1, end):
                    before, cuts = table[pieces - 1, middle]
                    cost, version = cheapest[middle, end]
                    ways.append((self._joined(before, cost), [*cuts, (middle, end, version)]))
                table[pieces, end] = min(ways)
        found = [table[pieces, count][1] for pieces in range(2, min(MOST_INTERVALS, count) + 1)]
        return [cuts for cuts in found if all(one[2] != other[2] for one, other in pairwise(cuts))]

    def merge(self, size: str, values: Sequence[int], cuts: Cuts) -> Merge:
        ordered = sorted(set(values))
        versions = {version for _, _, version in cuts}
        parents = sorted(versions, key=lambda version: (version != self.best, version))
        serving = {value: version for first, end, version in cuts for value in ordered[first:end]}
        pairs = [
            CasePair(case.weight, self.reference[case.name], self.times[serving[value]][case.name])
            for case, value in zip(self.cases, values, strict=True)
        ]
        places = [
            Interval(_cut(ordered[end - 1], ordered[end]) if end < len(ordered) else None, parents.index(version))
            for _, end, version in cuts
        ]
        return Merge(tuple(parents), Rule(size, tuple(places)), combine(pairs, self.objective))

    def _cheapest(self, cases: Sequence[CaseInfo]) -> tuple[float, int]:
        """The cost of the version that serves the cases best, the run's best among equals, and which it is."""
        cost, _, version = min((self._cost(cases, ms), one != self.best, one) for one, ms in self.times.items())
        return cost, version

    def _cost(self, cases: Sequence[CaseInfo], ms: Mapping[str, float]) -> float:
        match self.objective:
            case "total":
                return math.fsum(case.weight * ms[case.name] for case in cases)
            case "worst":
                return max(ms[case.name] / self.reference[case.name] for case in cases)
        return math.fsum(case.weight * math.log(ms[case.name]) for case in cases)

    def _joined(self, one: float, other: float) -> float:
        return max(one, other) if self.objective == "worst" else one + other


def _cut(here: int, after: int) -> int:
    """The most that the smaller side serves: the geometric mean, since sizes are doubled rather than increased."""
    return max(here, math.isqrt(here * after))


def _tried(state: RunState, merge: Merge) -> bool:
    made = (one.parents for one in state.candidates.values() if one.parents)
    return merge.parents in made or merge.parents in state.unmerged
