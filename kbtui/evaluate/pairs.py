"""One process pair: baseline and candidate take turns over all cases, and what their turns say.

Turns go A B B A within a round, so that a drift of clocks or temperature weighs on both alike; which of the two is A
changes from pair to pair. Blocks of one pair are only used together, since they agree better than pairs do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from kbtui import clock
from kbtui.evaluate.objective import CasePair, combine
from kbtui.evaluate.turns import AuditTurn, BurstTurn, CalledTurn, DropTurn, LoopTurn, PreparedTurn, ReadTurn
from kbtui.evaluate.verdict import ConfidenceSequence, clearly_slower
from kbtui.state.records import CaseInfo

WARM_S = 0.1
"""How long the device is kept busy before the first block of a pair: clocks that fell while processes started come up."""
ROUNDS = 8
READ_S = 0.0009
"""Device time of one block: with ROUNDS rounds of two blocks 15 ms a case and process, enough for the median within 1 %, and
short, since a loser goes after a round or three."""
SECTION_S = 0.02
"""Device time of one turn: blocks of as many cases as fit are read in it, since a turn costs a millisecond of its own."""
BURST_S = 0.03
CLOCKS_AGREE = 0.15
"""Share by which two clocks may differ on the same work, beyond TURN_S."""
TURN_S = 0.03
"""What a turn may cost the run process beyond the device's work."""
GROUP_SHARE = 0.1
"""Share of the device's memory that the inputs of the cases that are prepared together may take in one process."""
FAR_SLOWER = 0.85
"""A candidate below this speedup, in both halves of a round, is dropped after that round: blocks of one pair differ by a per cent
or two where kernels are shortest, and pairs no more."""

T = TypeVar("T", bound=msgspec.Struct)


class Contestant(Protocol):
    """What a pair needs of a process; `turns.Player` is one."""

    def turn(self, kind: type[T], do: str, case: int, **fields: Any) -> T:
        """Give a turn and return its result."""

    def discard(self) -> None:
        """End it without waiting for its end."""


class PairCase(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one case in one pair, in ms on the device; `called_ms` with the wrapper's CPU work."""

    reference_ms: float
    ms: float
    called_ms: float
    in_graph: bool


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """`cases` by number, those that were measured; `dropped` when blocks showed a clear loser and the rest was skipped."""

    cases: dict[int, PairCase]
    swapped: bool
    dropped: bool
    suspicious: tuple[str, ...]

    def log_ratio(self, infos: Sequence[CaseInfo], objective: str) -> float:
        """The objective's speedup in this pair, as a logarithm; a case that was not measured counts as equal."""
        pairs = []
        for number, info in enumerate(infos):
            case = self.cases.get(number)
            reference, ms = (case.reference_ms, case.ms) if case is not None else (None, None)
            pairs.append(CasePair(info.weight, reference, ms))
        return math.log(combine(pairs, objective))


class PairPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What every pair of a measurement has in common. `noise` is the run's noise floor as a log-ratio; `skipped` are numbers
    of cases that are not measured, with the reason."""

    cases: tuple[CaseInfo, ...]
    objective: str
    noise: float
    memory_bytes: int
    skipped: Mapping[int, str] = {}


def play(
    reference: Contestant,
    candidate: Contestant,
    plan: PairPlan,
    *,
    swapped: bool,
    audited: Collection[int] | None = None,
) -> Pair:
    """Measure all cases with one pair of processes that have started; of those in `audited`, None for all, look at the outputs
    again and hold a second clock to the times. Raises PlayerLost from either."""
    order = (candidate, reference) if swapped else (reference, candidate)
    cases: dict[int, PairCase] = {}
    suspicious: list[str] = []
    groups = list(_groups(plan))
    for group in groups:
        prepared = {number: _prepare(order, candidate, number) for number in group}
        if not cases:
            order[0].turn(LoopTurn, "loop", group[0], seconds=WARM_S)
        sequence = ConfidenceSequence() if len(groups) == 1 else None
        blocks, dropped = _rounds(order, reference, _sections(group, prepared), plan, sequence)
        for number in group:
            # nothing is claimed on the times of a loser
            audit = not dropped and (audited is None or number in audited)
            found, doubts = _finish_case(candidate, number, plan, blocks[number], prepared[number], audit=audit)
            cases[number] = found
            suspicious += doubts
        if dropped:
            for player in order:
                player.discard()
            return Pair(cases=cases, swapped=swapped, dropped=True, suspicious=tuple(suspicious))
        if group is not groups[-1]:  # the last one's memory goes with the processes
            for player in order:
                player.turn(DropTurn, "drop", group[0], cases=group)
    return Pair(cases=cases, swapped=swapped, dropped=False, suspicious=tuple(suspicious))


def _groups(plan: PairPlan) -> Iterator[list[int]]:
    """Cases that are held in memory together; a case of unknown size is counted as a quarter of the limit."""
    limit = plan.memory_bytes * GROUP_SHARE
    group: list[int] = []
    held = 0.0
    for number, case in enumerate(plan.cases):
        if number in plan.skipped:
            continue
        size = case.bytes_moved or limit / 4
        if group and held + size > limit:
            yield group
            group, held = [], 0.0
        group.append(number)
        held += size
    yield group


def _prepare(order: tuple[Contestant, Contestant], candidate: Contestant, number: int) -> PreparedTurn:
    found = {id(player): player.turn(PreparedTurn, "prepare", number) for player in order}
    return found[id(candidate)]


def _sections(group: Sequence[int], prepared: Mapping[int, PreparedTurn]) -> list[list[int]]:
    """Cases whose blocks are read in one turn: for SECTION_S of the device together, or a single one that takes longer."""
    sections: list[list[int]] = []
    filled = math.inf
    for number in group:
        takes = max(READ_S, prepared[number].reading_ms / 1e3)
        if filled + takes > SECTION_S:
            sections.append([])
            filled = 0.0
        sections[-1].append(number)
        filled += takes
    return sections


class _Blocks(msgspec.Struct):
    reference: list[float]
    candidate: list[float]


def _rounds(
    order: tuple[Contestant, Contestant],
    reference: Contestant,
    sections: Sequence[Sequence[int]],
    plan: PairPlan,
    sequence: ConfidenceSequence | None,
) -> tuple[dict[int, _Blocks], bool]:
    """Blocks by case, and whether a clear loser was dropped on the way."""
    blocks = {number: _Blocks([], []) for section in sections for number in section}
    first, second = order
    for _ in range(ROUNDS):
        for section in sections:
            for player in (first, second, second, first):
                read = player.turn(ReadTurn, "read", section[0], cases=section, seconds=READ_S)
                for number, readings in zip(section, read.readings_ms, strict=True):
                    of = blocks[number].reference if player is reference else blocks[number].candidate
                    of.append(statistics.median(readings))
        if sequence is not None:
            sequence.add(math.log(_speedup(blocks, plan, slice(-2, None))))
            if clearly_slower(sequence, plan.noise) or _far_slower(blocks, plan):
                return blocks, True
    return blocks, False


def _speedup(blocks: dict[int, _Blocks], plan: PairPlan, which: slice) -> float:
    """The objective's speedup over the blocks `which` of every case."""
    pairs = [
        CasePair(plan.cases[number].weight, math.fsum(of.reference[which]), math.fsum(of.candidate[which]))
        for number, of in blocks.items()
    ]
    return combine(pairs, plan.objective)


def _far_slower(blocks: dict[int, _Blocks], plan: PairPlan) -> bool:
    """Whether both halves of the last round put the candidate below FAR_SLOWER."""
    return all(_speedup(blocks, plan, half) < FAR_SLOWER for half in (slice(-2, -1), slice(-1, None)))


def _finish_case(
    candidate: Contestant, number: int, plan: PairPlan, blocks: _Blocks, prepared: PreparedTurn, *, audit: bool
) -> tuple[PairCase, list[str]]:
    """The case's times, checked against a second clock, and the outputs once more at the timed addresses."""
    ms = statistics.median(blocks.candidate)
    reference_ms = statistics.median(blocks.reference)
    name = plan.cases[number].name
    doubts: list[str] = []
    called = candidate.turn(CalledTurn, "called", number).called_ms
    if not audit:
        return PairCase(reference_ms=reference_ms, ms=ms, called_ms=called, in_graph=prepared.graph), doubts
    began = clock.monotonic()
    rounds = max(1, round(1e3 * BURST_S / (ms * prepared.launches)))
    burst = candidate.turn(BurstTurn, "burst", number, rounds=rounds)
    doubt = disagreement(ms, burst, clock.monotonic() - began)
    if doubt:
        doubts.append(f"{name}: {doubt}")
    candidate.turn(AuditTurn, "audit", number, call=0)
    if prepared.graph:
        candidate.turn(AuditTurn, "audit_graph", number, call=1)
    return PairCase(reference_ms=reference_ms, ms=ms, called_ms=called, in_graph=prepared.graph), doubts


def disagreement(ms: float, burst: BurstTurn, turn_s: float) -> str:
    """Where the clocks contradict one another: readings, device events, and the run process's own clock; "" if nowhere.

    `turn_s` is how long the turn took for the run process: the device's work in it cannot have taken longer, nor much
    less.
    """
    per_call = burst.device_ms / burst.calls
    if abs(math.log(per_call / ms)) > CLOCKS_AGREE:
        return f"a call takes {ms:.4g} ms in readings and {per_call:.4g} ms in a burst"
    turn_ms = 1e3 * turn_s
    if burst.device_ms > turn_ms:
        return f"device events say {burst.device_ms:.4g} ms where {turn_ms:.4g} ms passed"
    if turn_ms > (1 + CLOCKS_AGREE) * burst.device_ms + 1e3 * TURN_S:
        return f"device events say {burst.device_ms:.4g} ms, the run process waited {turn_ms:.4g} ms"
    return ""
