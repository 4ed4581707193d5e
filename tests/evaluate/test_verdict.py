"""Verdicts on simulated measurements: false alarms on equal kernels, planted ratios found, peeking paid for."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.evaluate.verdict import (
    PAIRS_FOR_FASTER,
    ConfidenceSequence,
    clearly_slower,
    interval,
    judge,
    noise_floor,
    out_of_reach,
    student,
)

PAIR_SPREAD = 0.003
"""Spread between process pairs of one kernel, as seen on real devices."""


def pairs(random_source: random.Random, true_log: float, count: int, spread: float = PAIR_SPREAD) -> list[float]:
    return [true_log + random_source.gauss(0, spread) for _ in range(count)]


def test_equal_kernels_are_rarely_called_faster_or_slower():
    source = random.Random(1)
    trials = 2000
    false = 0
    for _ in range(trials):
        floor = noise_floor(pairs(source, 0.0, 3))
        false += judge(pairs(source, 0.0, 3), floor, both_orders=True).verdict in ("faster", "slower")
    assert false / trials < 0.02


def test_a_planted_gain_is_found_and_its_interval_covers_it():
    source = random.Random(2)
    trials, found, covered = 400, 0, 0
    for _ in range(trials):
        verdict = judge(pairs(source, math.log(1.1), 5), 0.01, both_orders=True)
        found += verdict.verdict == "faster"
        covered += verdict.low <= 1.1 <= verdict.high
    assert found / trials > 0.99
    assert 0.92 < covered / trials < 0.98


def test_a_planted_loss_is_slower():
    source = random.Random(3)
    verdicts = [judge(pairs(source, math.log(0.8), 3), 0.01, both_orders=True).verdict for _ in range(200)]
    assert verdicts.count("slower") > 190


def test_equal_within_a_tight_interval_is_same():
    assert judge([0.0005, -0.0004, 0.0002, 0.0001], 0.004, both_orders=True).verdict == "same"


def test_a_wide_interval_is_ambiguous():
    assert judge([0.2, -0.2, 0.1], 0.01, both_orders=True).verdict == "ambiguous"


def test_faster_needs_enough_pairs_in_both_orders():
    gains = [0.3, 0.3001, 0.2999]
    assert judge(gains, 0.01, both_orders=True).verdict == "faster"
    assert judge(gains, 0.01, both_orders=False).verdict == "ambiguous"
    assert judge(gains[: PAIRS_FOR_FASTER - 1], 0.01, both_orders=True).verdict == "ambiguous"


def test_one_pair_drops_a_clear_loser_and_nothing_else():
    assert judge([math.log(0.9)], 0.01, both_orders=False).verdict == "slower"
    assert judge([math.log(0.99)], 0.01, both_orders=False).verdict == "ambiguous"
    assert judge([math.log(1.9)], 0.01, both_orders=False).verdict == "ambiguous"


def test_no_pair_is_an_error():
    with pytest.raises(ValueError, match="no process pair"):
        judge([], 0.01, both_orders=True)
    with pytest.raises(ValueError, match="two values"):
        interval([0.1])


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=40))
def test_no_verdict_is_finer_than_the_floor(logs):
    floor = 2.0
    assert judge(logs, floor, both_orders=True).verdict in ("same", "ambiguous")


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20), st.floats(0, 0.5))
def test_swapping_the_two_kernels_mirrors_the_verdict(logs, floor):
    mirrored = {"faster": "slower", "slower": "faster", "ambiguous": "ambiguous", "same": "same"}
    one = judge(logs, floor, both_orders=True)
    other = judge([-x for x in logs], floor, both_orders=True)
    if len(logs) >= PAIRS_FOR_FASTER:
        assert other.verdict == mirrored[one.verdict]
    assert other.ratio == pytest.approx(1 / one.ratio)


@pytest.mark.parametrize(("freedom", "value"), [(1, 12.706), (2, 4.303), (30, 2.042), (500, 2.042)])
def test_student_quantiles(freedom, value):
    assert student(freedom) == value


def test_peeking_at_equal_kernels_costs_at_most_the_stated_error():
    source = random.Random(4)
    trials, crossed = 500, 0
    for _ in range(trials):
        sequence = ConfidenceSequence()
        for _ in range(300):
            sequence.add(source.gauss(0, 0.01))
            seen = sequence.interval()
            if seen.low > 0 or seen.high < 0:
                crossed += 1
                break
    assert crossed / trials <= 0.05


def test_a_peeking_t_test_would_have_erred_far_more_often():
    """The control of the test above: the same peeking with an interval that is not made for it."""
    source = random.Random(4)
    trials, crossed = 200, 0
    for _ in range(trials):
        readings: list[float] = []
        for _ in range(300):
            readings.append(source.gauss(0, 0.01))
            if (
                len(readings) > 2
                and abs(interval(readings).middle) > interval(readings).high - interval(readings).middle
            ):
                crossed += 1
                break
    assert crossed / trials > 0.3


def test_the_sequence_narrows_and_finds_a_clear_loser_soon():
    source = random.Random(5)
    needed = []
    for _ in range(100):
        sequence = ConfidenceSequence()
        while not clearly_slower(sequence, 0.01):
            sequence.add(source.gauss(math.log(0.8), 0.01))
            assert sequence.count < 100
        needed.append(sequence.count)
    assert sorted(needed)[50] <= 8


def test_an_equal_kernel_is_not_dropped_as_a_loser():
    source = random.Random(6)
    for _ in range(200):
        sequence = ConfidenceSequence()
        for _ in range(100):
            sequence.add(source.gauss(0, 0.02))
            assert not clearly_slower(sequence, 0.005)


def test_the_sequence_says_nothing_before_two_readings():
    sequence = ConfidenceSequence()
    sequence.add(-5.0)
    assert math.isinf(sequence.interval().high)
    assert not clearly_slower(sequence, 0.0)


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=50), st.floats(-1, 1))
def test_the_sequence_moves_with_its_readings(readings, shift):
    one, other = ConfidenceSequence(), ConfidenceSequence()
    for reading in readings:
        one.add(reading)
        other.add(reading + shift)
    assert other.interval().middle == pytest.approx(one.interval().middle + shift, abs=1e-9)
    if math.isfinite(one.interval().high):
        width = one.interval().high - one.interval().low
        assert other.interval().high - other.interval().low == pytest.approx(width, abs=1e-6)


def test_two_pairs_within_the_floor_in_both_orders_are_the_same():
    assert judge([0.004, -0.006], 0.004, both_orders=True).verdict == "same"
    assert judge([0.004, -0.006], 0.004, both_orders=False).verdict == "ambiguous"
    assert judge([0.004, 0.02], 0.004, both_orders=True).verdict == "ambiguous"


@pytest.mark.parametrize(
    ("logs", "stop"),
    [([-0.02], True), ([-0.005], False), ([0.005], False), ([0.02, -0.01], True), ([0.02, 0.01], False)],
)
def test_a_measurement_ends_where_a_gain_is_out_of_reach(logs, stop):
    assert out_of_reach(logs, 0.01) is stop
