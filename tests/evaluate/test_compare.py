"""The error metric: by row, against float64, with masks, overflow and denormals."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
from kbtui.evaluate.inlane import compare as comparison  # noqa: E402  needs torch
from kbtui.evaluate.inlane.compare import FLOORS, compare, floor_for  # noqa: E402


def test_rounding_stays_below_the_floors() -> None:
    exact = torch.randn(64, 256, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for name, floor in FLOORS.items():
        found = compare(exact.to(getattr(torch, name)), exact, floor)
        assert found.reason == "", name
        assert found.error < floor / 3


def test_the_error_is_relative_to_value_and_row() -> None:
    expected = torch.tensor([[3.0, 4.0], [300.0, 400.0]], dtype=torch.float64)
    actual = expected.float()
    actual[0, 0] += 0.1
    found = compare(actual, expected, 1e-5)
    assert (found.index, found.wrong, found.elements) == ((0, 0), 1, 4)
    assert found.error == pytest.approx(0.1 / (3 + math.sqrt(12.5)), rel=1e-4)


@pytest.mark.parametrize("magnitude", [1e-280, 1e-30, 1.0, 1e30, 1e280])
def test_a_wrong_element_shows_at_any_magnitude(magnitude: float) -> None:
    expected = torch.full((2, 8), magnitude, dtype=torch.float64)
    actual = expected.clone()
    actual[1, 3] *= 1.01
    assert compare(expected.clone(), expected, 1e-11).reason == ""
    assert compare(actual, expected, 1e-5).index == (1, 3)


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        ([1.0, math.nan], [1.0, 2.0], "is NaN where 2 is right"),
        ([1.0, 2.0], [1.0, math.nan], "is 2 where NaN is right"),
        ([1.0, math.inf], [1.0, -math.inf], "is Inf where -Inf is right"),
        ([1.0, 2.0], [1.0, math.inf], "is 2 where Inf is right"),
    ],
)
def test_masks_have_to_agree(actual: list[float], expected: list[float], words: str) -> None:
    found = compare(torch.tensor(actual), torch.tensor(expected, dtype=torch.float64), 1e9)
    assert found.reason == words
    assert found.index == (1,)
    same = torch.tensor(expected)
    assert compare(same, same.double(), 1e-5).reason == ""


def test_either_side_of_the_largest_number_is_right() -> None:
    expected = torch.tensor([65510.0, 1.0], dtype=torch.float64)
    for value in (65504.0, math.inf):
        assert compare(torch.tensor([value, 1.0], dtype=torch.float16), expected, 2e-3).reason == ""
    assert compare(torch.tensor([65504.0, 2.0], dtype=torch.float16), expected, 2e-3).index == (1,)


def test_flushed_denormals_pass_and_lost_normals_do_not() -> None:
    denormal = torch.full((4,), 1e-40, dtype=torch.float64)
    assert compare(torch.zeros(4), denormal, 1e-5).reason == ""
    small = torch.full((4,), 1e-30, dtype=torch.float64)
    assert compare(torch.zeros(4), small, 1e-5).reason == "error"


def test_integers_and_booleans_are_equal_or_wrong() -> None:
    expected = torch.tensor([1, 2, 3])
    assert compare(torch.tensor([1, 2, 3]), expected, 0.0).reason == ""
    assert compare(torch.tensor([1, 2, 4]), expected, 0.0).index == (2,)
    assert compare(torch.tensor([True, False]), torch.tensor([True, True]), 0.0).wrong == 1


def test_empty_and_scalar_outputs() -> None:
    assert compare(torch.empty(0, 4), torch.empty(0, 4, dtype=torch.float64), 1e-5).reason == ""
    assert compare(torch.tensor(1.0), torch.tensor(1.5, dtype=torch.float64), 1e-5).index == ()


def test_floors_follow_tolerance_and_precision() -> None:
    assert floor_for(torch.float32, "ieee", None) == 1e-5
    assert floor_for(torch.float32, "tf32", None) == 2e-3
    assert floor_for(torch.float16, "tf32", None) == 2e-3
    assert floor_for(torch.float16, "ieee", 0.1) == 0.1
    assert floor_for(torch.float16, "ieee", {"float16": 0.2, "float32": 0.3}) == 0.2
    assert floor_for(torch.bfloat16, "ieee", {"float16": 0.2}) == 1.6e-2
    assert floor_for(torch.int32, "ieee", None) == 0.0


SHAPES = [(7, 5), (3, 4, 5), (64, 3), (1, 40), (33,), (2, 0, 3)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spoil", ["nothing", "values", "a NaN", "both", "integers"])
def test_in_pieces_the_finding_is_the_same(monkeypatch, shape, spoil):
    generator = torch.Generator().manual_seed(sum(shape))
    expected = torch.randn(shape, generator=generator, dtype=torch.float64)
    actual = expected.float()
    if expected.numel():
        flat = actual.view(-1)
        if spoil in ("values", "both"):
            flat[-1] += 3.0
            flat[len(flat) // 2] -= 1.0
        if spoil in ("a NaN", "both"):
            flat[-2] = float("nan")
    if spoil == "integers":
        expected, actual = (
            (expected * 100).int(),
            (expected * 100).int() + (torch.arange(expected.numel()) % 11 == 9).view(shape),
        )
    whole = compare(actual, expected, 1e-5)
    monkeypatch.setattr(comparison, "PIECE", 10)
    assert compare(actual, expected, 1e-5) == whole
