"""From turns to a verdict: simulated processes with known times, spreads, drifts, lies and deaths."""

import contextlib
import itertools
import math
import random

import msgspec
import pytest

from kbtui.evaluate import pairs as pairing
from kbtui.evaluate import timing
from kbtui.evaluate.job import Outcome
from kbtui.evaluate.pairs import PairPlan, disagreement, play
from kbtui.evaluate.targets import TARGETS, device_info
from kbtui.evaluate.turns import (
    AuditTurn,
    BurstTurn,
    CalledTurn,
    DropTurn,
    LoopTurn,
    PlayerLost,
    PreparedTurn,
    ReadTurn,
)
from kbtui.state.records import CaseInfo

CASES = (CaseInfo(name="small", fields={"n": 1}), CaseInfo(name="large", fields={"n": 2}))
DEVICE = device_info(TARGETS["sm_90"])
PLAN = PairPlan(cases=CASES, objective="geomean", noise=0.004, memory_bytes=1 << 40)
BASE_MS = (0.02, 0.5)


class World:
    """The device, its clock and its drift. Turns take the time they claim; `log` keeps who had which turn."""

    def __init__(self, seed=0, drift=0.0):
        self.random = random.Random(seed)
        self.now = 0.0
        self.drift = drift
        self.log = []

    def monotonic(self):
        return self.now


class Simulated:
    """A process whose calls take `ms` (by case), off by a factor of its own that lasts as long as the process."""

    def __init__(self, world, name, ms, *, spread=0.003, block_spread=0.001, dies_at=None, burst_factor=1.0):
        self._world, self.name, self._ms = world, name, ms
        self._own = math.exp(world.random.gauss(0, spread))
        self._block_spread = block_spread
        self._dies_at = dies_at
        self._burst_factor = burst_factor

    def _now_ms(self, case):
        world = self._world
        noise = math.exp(world.random.gauss(0, self._block_spread))
        return self._ms[case] * self._own * noise * math.exp(world.drift * world.now)

    def discard(self):
        self._world.log.append((self.name, "discard", -1))

    def turn(self, kind, do, case, **fields):
        world = self._world
        cases = fields.get("cases", [case])
        world.log += [(self.name, do, one) for one in cases]
        if do == self._dies_at:
            raise PlayerLost(self.name, Outcome(kind="crash", reason="its process died of SIGSEGV"))
        world.now += 0.004
        if kind is PreparedTurn:
            return PreparedTurn(launches=4, reading_ms=1.0, graph=True, why_no_graph="", free_bytes=1 << 38)
        if kind is ReadTurn:
            return ReadTurn(readings_ms=[[self._now_ms(one) for _ in range(7)] for one in cases])
        if kind is CalledTurn:
            return CalledTurn(called_ms=self._now_ms(case) + 0.01)
        if kind is BurstTurn:
            calls = 4 * fields["rounds"]
            spent = calls * self._now_ms(case)
            world.now += spent * self._burst_factor / 1e3
            return BurstTurn(calls=calls, device_ms=spent, host_ms=spent)
        if kind is AuditTurn:
            return AuditTurn(accepted=True)
        if kind is LoopTurn:
            world.now += fields["seconds"]
            return LoopTurn(looped=fields["seconds"])
        assert kind is DropTurn
        return DropTurn(dropped=cases)


@pytest.fixture
def world(monkeypatch):
    made = World()
    monkeypatch.setattr(pairing.clock, "monotonic", made.monotonic)
    return made


def opener(world, factor, **candidate):
    @contextlib.contextmanager
    def open_pair(swapped):
        world.log.append(("pair", "swapped" if swapped else "straight", -1))
        base = Simulated(world, "baseline", BASE_MS)
        other = Simulated(world, "candidate", tuple(ms * factor for ms in BASE_MS), **candidate)
        yield base, other

    return open_pair


def never():
    return False


def measured(world, factor, plan=PLAN, parent=None, **candidate):
    found = timing.measure_candidate(opener(world, factor, **candidate), plan, never)
    return timing.candidate_timing(found, plan, DEVICE, DEVICE, parent)


def test_a_gain_is_faster_after_three_pairs_in_both_orders(world):
    found = measured(world, 0.8)
    assert (found.verdict, found.pairs) == ("faster", 3)
    assert found.ratio == pytest.approx(1.25, rel=0.01)
    assert found.low < found.ratio < found.high
    assert [entry[1] for entry in world.log if entry[0] == "pair"] == ["straight", "swapped", "straight"]
    assert [one.ratio for one in found.cases] == pytest.approx([1.25, 1.25], rel=0.02)
    assert [one.ms for one in found.cases] == pytest.approx([0.016, 0.4], rel=0.02)
    assert all(one.low_ms < one.ms < one.high_ms < one.called_ms for one in found.cases)
    assert found.suspicious == ()
    assert (found.estimate, found.parent_estimate) == (None, None)
    assert all(one.estimate_ms is None and one.estimate_ratio is None for one in found.cases)


def test_turns_alternate_a_b_b_a(world):
    measured(world, 0.8)
    reads = [name for name, do, case in world.log if do == "read" and case == 0][:4]
    assert reads == ["baseline", "candidate", "candidate", "baseline"]


def test_drift_of_the_device_does_not_become_a_verdict(world):
    """1 % in 100 ms: a measurement of one after the other would see it whole."""
    world.drift = 0.1
    found = measured(world, 1.0)
    assert found.verdict in ("same", "ambiguous")
    assert found.ratio == pytest.approx(1.0, abs=0.01)


def test_a_clear_loser_goes_during_its_first_pair(world):
    found = measured(world, 1.5)
    assert (found.verdict, found.pairs) == ("slower", 1)
    assert found.ratio == pytest.approx(1 / 1.5, rel=0.05)
    reads = sum(1 for name, do, case in world.log if do == "read" and name == "candidate" and case == 0)
    assert reads < 2 * pairing.ROUNDS
    assert not any(do == "audit" for _, do, _ in world.log)


@pytest.mark.parametrize("factor", [1.25, 3.0])
def test_a_candidate_a_fifth_slower_goes_after_one_round(world, factor):
    found = measured(world, factor)
    assert (found.verdict, found.pairs) == ("slower", 1)
    assert found.ratio == pytest.approx(1 / factor, rel=0.05)
    assert sum(name == "candidate" for name, do, case in world.log if do == "read" and case == 0) == 2
    assert [name for name, do, _ in world.log if do == "discard"] == ["baseline", "candidate"]


def test_short_cases_are_read_in_one_turn_and_a_long_one_alone():
    def prepared(ms):
        return PreparedTurn(launches=4, reading_ms=ms, graph=True, why_no_graph="", free_bytes=1)

    turns = dict(enumerate(map(prepared, [0.1, 0.1, 90.0, 15.0, *[0.1] * 30])))
    fit = int(1e3 * (pairing.SECTION_S - 0.015) / (1e3 * pairing.READ_S))
    assert fit == 5
    sections = pairing._sections(list(turns), turns)
    assert sections[:3] == [[0, 1], [2], [3, 4, 5, 6, 7, 8]]
    assert [number for section in sections for number in section] == list(range(34))
    assert all(len(section) * pairing.READ_S <= pairing.SECTION_S for section in sections)


def test_many_cases_are_looked_at_again_over_the_pairs_of_a_gain(world):
    """Eight of twelve in every pair, and all twelve in three; a second clock goes with it."""
    cases = tuple(CaseInfo(name=f"case {number}", fields={"n": number + 1}) for number in range(12))
    plan = msgspec.structs.replace(PLAN, cases=cases)

    @contextlib.contextmanager
    def open_pair(swapped):
        world.log.append(("pair", "", -1))
        yield Simulated(world, "baseline", [0.5] * 12), Simulated(world, "candidate", [0.4] * 12)

    found = timing.measure_candidate(open_pair, plan, never)
    pairs = [i for i, entry in enumerate(world.log) if entry[0] == "pair"] + [len(world.log)]
    looked = [
        {case for _, do, case in world.log[begin:end] if do == "audit"} for begin, end in itertools.pairwise(pairs)
    ]
    assert len(found.pairs) == 3
    assert [len(one) for one in looked] == [8, 8, 8]
    assert set().union(*looked) == set(range(12))
    assert {case for _, do, case in world.log if do == "burst"} == set(range(12))


def test_equal_kernels_are_not_told_apart(monkeypatch):
    verdicts = []
    for seed in range(60):
        world = World(seed)
        monkeypatch.setattr(pairing.clock, "monotonic", world.monotonic)
        base = timing.measure_baseline(opener(world, 1.0), msgspec.structs.replace(PLAN, noise=0.0), never)
        noise = timing.baseline_timing(base, PLAN, DEVICE, DEVICE).noise
        verdicts.append(measured(world, 1.0, msgspec.structs.replace(PLAN, noise=noise)).verdict)
    assert verdicts.count("faster") + verdicts.count("slower") <= 2
    assert verdicts.count("same") > 30


def test_the_baseline_is_one_by_definition_and_gives_the_noise_floor(world):
    base = timing.measure_baseline(opener(world, 1.0), PLAN, never)
    found = timing.baseline_timing(base, PLAN, DEVICE, DEVICE)
    assert (found.verdict, found.ratio, found.pairs) == ("same", 1.0, 5)
    assert 0.0005 < found.noise < 0.05
    assert [one.ratio for one in found.cases] == [1.0, 1.0]


def test_the_ratio_to_the_parent_goes_by_way_of_the_baseline(world):
    parent = measured(world, 0.8)
    assert measured(world, 0.6, parent=parent).parent_ratio == pytest.approx(0.8 / 0.6, rel=0.02)


def test_a_time_below_the_physical_floor_is_no_time(world):
    impossible = CaseInfo(name="large", fields={"n": 2}, bytes_moved=40_000_000_000)
    plan = msgspec.structs.replace(PLAN, cases=(CASES[0], impossible))
    found = measured(world, 0.8, plan)
    assert (found.verdict, found.ratio, found.low) == ("unknown", None, None)
    assert "faster than the hardware allows" in found.cases[1].failed
    assert found.cases[1].ms is None
    assert found.cases[0].ms is not None
    assert any("large" in doubt for doubt in found.suspicious)


def test_a_time_just_below_the_floor_is_doubted_and_kept(world):
    tight = CaseInfo(
        name="large", fields={"n": 2}, bytes_moved=round(0.45e-3 * DEVICE.peak_bytes_per_s) + DEVICE.l2_bytes
    )
    found = measured(world, 0.8, msgspec.structs.replace(PLAN, cases=(CASES[0], tight)))
    assert found.verdict == "faster"
    assert any("below the least" in doubt for doubt in found.suspicious)


def test_clocks_that_contradict_each_other_take_the_gain_away(world):
    """Device events that claim half of what passes: for a burst of 50 ms the run process waits 100 ms."""
    found = measured(world, 0.8, burst_factor=2.5)
    assert found.verdict == "ambiguous"
    assert any("the run process waited" in doubt for doubt in found.suspicious)


@pytest.mark.parametrize(
    ("ms", "device_ms", "turn_s", "piece"),
    [
        (1.0, 50.0, 0.052, ""),
        (1.0, 50.0, 0.075, ""),
        (1.0, 50.0, 0.02, "passed"),
        (1.0, 50.0, 0.2, "waited"),
        (0.5, 50.0, 0.052, "in readings"),
    ],
)
def test_two_clocks(ms, device_ms, turn_s, piece):
    said = disagreement(ms, BurstTurn(calls=50, device_ms=device_ms, host_ms=device_ms), turn_s)
    assert piece in said
    assert bool(said) == bool(piece)


def test_a_candidate_that_dies_ends_the_measurement(world):
    with pytest.raises(PlayerLost, match="SIGSEGV") as lost:
        measured(world, 0.8, dies_at="audit")
    assert lost.value.name == "candidate"


def test_a_pair_under_held_down_clocks_is_taken_again_and_then_marked(world):
    answers = iter([True, False, False, True])
    found = timing.measure_candidate(opener(world, 0.8), PLAN, lambda: next(answers, False))
    assert len(found.pairs) == 3
    assert found.held_down
    assert sum(1 for entry in world.log if entry[0] == "pair") == 4
    assert "held down" in " ".join(timing.candidate_timing(found, PLAN, DEVICE, DEVICE, None).suspicious)


def test_cases_that_do_not_fit_together_are_measured_one_after_the_other(world):
    big = tuple(msgspec.structs.replace(case, bytes_moved=1 << 30) for case in CASES)
    plan = msgspec.structs.replace(PLAN, cases=big, memory_bytes=15 << 30)
    with opener(world, 0.9)(False) as (base, candidate):
        pair = play(base, candidate, plan, swapped=False)
    assert set(pair.cases) == {0, 1}
    order = [(do, case) for name, do, case in world.log if name == "candidate" and do in ("prepare", "drop")]
    # what the last ones hold goes with the processes
    assert order == [("prepare", 0), ("drop", 0), ("prepare", 1)]


def test_cold_times_go_with_the_cases_and_change_no_verdict(world):
    plan = msgspec.structs.replace(PLAN, skipped={1: "the baseline is not right here"})
    player = Simulated(world, "candidate", (0.03, 0.7))
    cold = timing.measure_cold(player, plan)
    assert set(cold) == {0}
    assert [(do, case) for _, do, case in world.log] == [("prepare", 0), ("read", 0), ("drop", 0)]
    base = timing.baseline_timing(timing.measure_baseline(opener(world, 1.0), PLAN, never), PLAN, DEVICE, DEVICE)
    found = timing.with_cold(base, cold)
    assert [case.cold_ms for case in found.cases] == [pytest.approx(0.03, rel=0.02), None]
    assert msgspec.structs.replace(found, cases=base.cases) == base
    assert [case.ms for case in found.cases] == [case.ms for case in base.cases]


def test_an_unmeasured_case_counts_as_equal():
    case = pairing.PairCase(reference_ms=2.0, ms=1.0, called_ms=1.0, in_graph=True)
    pair = pairing.Pair(cases={0: case}, swapped=False, dropped=False, suspicious=())
    assert pair.log_ratio(CASES, "geomean") == pytest.approx(math.log(2.0) / 2)
    assert pair.log_ratio(CASES, "worst") == 0.0


def test_a_case_that_cannot_be_timed_is_listed_and_counts_as_equal(world):
    plan = msgspec.structs.replace(PLAN, skipped={0: "the baseline is not right here: it faults"})
    found = measured(world, 0.8, plan)
    assert not any(case == 0 for _, do, case in world.log if do == "read")
    assert (found.verdict, found.cases[0].failed) == ("faster", "the baseline is not right here: it faults")
    assert found.ratio == pytest.approx(1.25**0.5, rel=0.02)
