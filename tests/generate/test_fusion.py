"""Fusion: two loops over a row in one."""

from __future__ import annotations

import pytest

from kbtui.generate.moves.looped_row import LoopedRow
from kbtui.generate.moves.single_pass import SinglePass

ONLINE, SQUARES = "maximum and sum in one pass", "sum and squares in one pass"


def looped(read, style: str) -> str:
    module, move = read(style), LoopedRow()
    return move.apply(module, move.sites(module)[0])


def test_maximum_and_sum_of_exponentials(changes):
    assert changes(SinglePass(), "cross_entropy")[ONLINE] == [
        "-for start in range(0, vocab, BLOCK):",
        "-mask = start + offsets < vocab",
        '-logits = tl.load(row_ptr + (start + offsets) * col_stride, mask=mask, other=-float("inf")).to(tl.float32)',
        "-block_max = tl.maximum(block_max, logits)",
        "-row_max = tl.max(block_max, axis=0)",
        "-",
        "-block_sum += tl.exp(logits - row_max)",
        "+risen = tl.maximum(block_max, logits)",
        '+finite = tl.where(risen == -float("inf"), 0.0, risen)',
        "+block_sum = block_sum * tl.exp(block_max - finite) + tl.exp(logits - finite)",
        "+block_max = risen",
        "+row_max = tl.max(block_max, axis=0)",
        "+block_sum = block_sum * tl.exp(block_max - row_max)",
    ]


def test_a_row_in_pieces_can_be_read_once_less(changes, read):
    assert list(changes(SinglePass(), "softmax", looped(read, "row_softmax"))) == [ONLINE]
    assert list(changes(SinglePass(), "layer_norm", looped(read, "layer_norm"))) == [SQUARES]


def test_squares_around_a_mean_are_kept_by_lane(changes, read):
    lines = changes(SinglePass(), "layer_norm", looped(read, "layer_norm"))[SQUARES]
    assert "+seen += tl.where(inside, 1.0, 0.0)" in lines
    assert "+centre += delta / tl.maximum(seen, 1.0)" in lines
    assert "+sum_parts_2 = squares + seen * (centre - mean) * (centre - mean)" in lines


def test_one_loop_or_none_offers_nothing(changes):
    for style in ("vector_add", "softmax", "rms_norm", "matmul", "attention", "looped_row"):
        assert changes(SinglePass(), style) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Another range, another value, another maximum, another place to start from.
        ("    row_max = tl.max(block_max, axis=0)\n", "    row_max = tl.max(block_max, axis=0)\n    vocab = vocab - 1\n"),
        ("tl.exp(logits - row_max)", "tl.exp(logits * 2 - row_max)"),
        ("tl.exp(logits - row_max)", "tl.exp(logits - row)"),
        ("tl.exp(logits - row_max)", "tl.exp(row_max - logits)"),
        ("row_max = tl.max(block_max, axis=0)", "row_max = tl.min(block_max, axis=0)"),
        ("row_max = tl.max(block_max, axis=0)", "row_max = tl.max(block_max, axis=0)\n    row_ptr += 1"),
        ("row_max = tl.max(block_max, axis=0)", "row_max = tl.max(block_max, axis=0)\n    tl.store(row_ptr, row_max)"),
        ("row_max = tl.max(block_max, axis=0)", "row_max = tl.max(block_max, axis=0)\n    low = tl.min(block_max, axis=0)"),
        ("tl.full((BLOCK,), -float", "tl.full((BLOCK,), float"),
        ("block_sum = tl.zeros((BLOCK,), dtype=tl.float32)", "block_sum = tl.zeros((BLOCK,), dtype=tl.float16)"),
        # What the second loop left is read behind it.
        ("loss = tl.where(target >= 0,", "loss = tl.where(tl.max(logits, axis=0) >= 0,"),
    ],
)  # fmt: skip
def test_loops_that_do_not_belong_together_stay(changes, read, old, new):
    source = read("cross_entropy").source
    assert old in source
    assert changes(SinglePass(), "cross_entropy", source.replace(old, new)) == {}


def test_squares_under_a_mask_that_needs_the_mean_stay(changes, read):
    source = looped(read, "layer_norm")
    assert "tl.where(mask, x - mean, 0.0)" in source
    assert changes(SinglePass(), "layer_norm", source.replace("tl.where(mask, x", "tl.where(x > mean, x")) == {}
