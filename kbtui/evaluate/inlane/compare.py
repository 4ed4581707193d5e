"""The comparison of outputs with the oracle's: shapes, strides, NaN and Inf masks, and the error by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

FLOORS = {"float64": 1e-11, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""The least error that is allowed, by dtype of the output."""
TF32_FLOOR = 2e-3
"""float32 outputs of a problem that allows TF32 products, whose inputs have 10 bits of mantissa."""
NARROW_FLOOR = 0.13
"""fp8 and the like: an eighth, one step of a 3-bit mantissa."""


PIECE = 1 << 23
"""Elements compared at a time: in float64 and with its intermediate results a piece takes half a gigabyte."""


@dataclass(frozen=True)
class Comparison:
    """One output against its expected values. `reason` "" means that it is within `allowed`.

    `error` is the worst |y - ref| / (|ref| + RMS of the row), infinite where masks or exact values differ;
    `index` the first place that is wrong, `wrong` how many of `elements` are.
    """

    reason: str
    error: float
    allowed: float
    index: tuple[int, ...] | None
    wrong: int
    elements: int

    def plain(self) -> dict[str, Any]:
        """For a frame: JSON has no infinity."""
        return {
            **asdict(self),
            "error": min(self.error, 1e308),
            "index": list(self.index) if self.index is not None else None,
        }


def floor_for(dtype: torch.dtype, precision: str, tolerance: float | dict[str, float] | None) -> float:
    """The least allowed error for outputs of a dtype: the problem's tolerance if it gives one, else by dtype."""
    name = str(dtype).removeprefix("torch.")
    if isinstance(tolerance, dict) and name in tolerance:
        return float(tolerance[name])
    if isinstance(tolerance, int | float):
        return float(tolerance)
    if name == "float32" and precision == "tf32":
        return TF32_FLOOR
    return FLOORS.get(name, NARROW_FLOOR if dtype.is_floating_point else 0.0)


def compare(actual: torch.Tensor, expected: torch.Tensor, allowed: float) -> Comparison:
    """Compare an output with its expected values, of equal shape and on one device. `expected` may be of a wider dtype.

    Integers and booleans have to be equal. Where the expected value is beyond nine tenths of what the output's dtype
    can hold, rounding decides between the largest number and Inf, and neither is wrong.
    """
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected.to(torch.complex128))
    if actual.numel() <= PIECE or actual.dim() < 2:
        return _piece(actual, expected, allowed)
    width = actual.shape[-1]
    count = max(1, PIECE // width)
    rows, right = actual.reshape(-1, width), expected.reshape(-1, width)
    pieces = [_piece(rows[at : at + count], right[at : at + count], allowed) for at in range(0, len(rows), count)]
    return _whole(pieces, count, actual.shape)


def _whole(pieces: Sequence[Comparison], rows: int, shape: torch.Size) -> Comparison:
    """The comparison that its pieces of so many rows make; wrong masks anywhere are all that counts, as in one piece."""
    masked = [one for one in pieces if one.reason not in ("", "error", "differs")]
    bad = masked or [one for one in pieces if one.reason]
    first = next((at for at, one in enumerate(pieces) if bad and one is bad[0]), 0)
    index = None
    if bad and bad[0].index is not None:
        row, column = bad[0].index
        index = (*_unraveled(first * rows + row, shape[:-1]), column)
    return Comparison(
        bad[0].reason if bad else "",
        max(one.error for one in masked or pieces),
        pieces[0].allowed,
        index,
        sum(one.wrong for one in bad),
        sum(one.elements for one in pieces),
    )


def _unraveled(row: int, shape: Sequence[int]) -> tuple[int, ...]:
    places = []
    for length in reversed(shape):
        row, place = divmod(row, length)
        places.append(place)
    return tuple(reversed(places))


def _piece(actual: torch.Tensor, expected: torch.Tensor, allowed: float) -> Comparison:
    if not actual.is_floating_point():
        wrong = actual != expected.to(actual.dtype) if not expected.is_floating_point() else actual.double() != expected
        return _judge(wrong, torch.where(wrong, float("inf"), 0.0), 0.0, "differs")
    y, ref = actual.double(), expected.double()
    beyond = ref.isfinite() & (ref.abs() > 0.9 * torch.finfo(actual.dtype).max)
    masks = (y.isnan() != ref.isnan()) | (y.isposinf() != ref.isposinf()) | (y.isneginf() != ref.isneginf())
    masks &= ~beyond
    if bool(masks.any()):
        return _judge(masks, torch.where(masks, float("inf"), 0.0), allowed, _mask_reason(y, ref, masks))
    counted = ref.isfinite() & ~beyond
    error = torch.where(counted, (y - ref).abs() / _scale(ref, counted, actual.dtype), 0.0)
    return _judge(error > allowed, error, allowed, "error")


def _scale(ref: torch.Tensor, counted: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """|ref| + RMS of the row over what is counted, and no less than what a flushed denormal may be off by."""
    shape = (-1, ref.shape[-1]) if ref.dim() and ref.numel() else (1, -1)
    rows, members = torch.where(counted, ref, 0.0).reshape(shape), counted.reshape(shape)
    # by the row's own largest value first: squares of 1e200 would overflow, those of 1e-200 vanish
    largest = rows.abs().amax(dim=-1, keepdim=True).clamp(min=1e-300) if rows.numel() else rows
    rms = (
        largest
        * ((rows / largest).square().sum(dim=-1, keepdim=True) / members.sum(-1, keepdim=True).clamp(min=1)).sqrt()
    )
    info = torch.finfo(dtype)
    # GPUs flush float32 and bfloat16 denormals to zero and keep those of float16
    least = info.tiny if dtype == torch.float16 else info.tiny / info.eps
    return (rows.abs() + rms).reshape(ref.shape).clamp(min=least)


def _mask_reason(y: torch.Tensor, ref: torch.Tensor, masks: torch.Tensor) -> str:
    first = tuple(int(at) for at in masks.nonzero()[0])
    return f"is {_named(float(y[first]))} where {_named(float(ref[first]))} is right"


def _named(value: float) -> str:
    return {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}.get(str(value), f"{value:.4g}")


def _judge(wrong: torch.Tensor, error: torch.Tensor, allowed: float, reason: str) -> Comparison:
    count = int(wrong.sum())
    index = tuple(int(at) for at in wrong.nonzero()[0]) if count else None
    worst = float(error.max()) if error.numel() else 0.0
    return Comparison(reason if count else "", worst, allowed, index, count, wrong.numel())
