"""Fusion: copies in the wrapper that the kernel does not need."""

from __future__ import annotations

import pytest

from kbtui.generate.moves.dropped_copy import DroppedCopy

START = "    m, k = a.shape\n"


def with_copy(read, before="", after=""):
    source = read("matmul").source
    assert START in source
    return source.replace(START, f"{START}{before}    a = a.contiguous()\n{after}")


def test_a_copy_before_a_launch_that_takes_the_strides_goes(changes, read):
    assert changes(DroppedCopy(), "matmul", with_copy(read)) == {"no copy of a": ["-a = a.contiguous()"]}


def test_there_is_nothing_to_drop_in_a_plain_wrapper(changes):
    assert changes(DroppedCopy(), "matmul") == {}
    # No strides go to these kernels: they need the copies.
    assert changes(DroppedCopy(), "vector_add") == {}
    assert changes(DroppedCopy(), "rms_norm") == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "    flat = a.view(-1)\n"),
        ("", "    a = a.half()\n"),
        ("", "    like = torch.empty_like(a)\n"),
        ("    if k > 1:\n        pass\n    a = a + 0\n", ""),
    ],
)
def test_a_copy_that_something_else_may_need_stays(changes, read, before, after):
    assert changes(DroppedCopy(), "matmul", with_copy(read, before, after)) == {}


def test_a_copy_in_a_branch_stays(changes, read):
    source = read("matmul").source.replace(START, f"{START}    if not a.is_contiguous():\n        a = a.contiguous()\n")
    assert changes(DroppedCopy(), "matmul", source) == {}


def test_one_stride_is_not_enough(changes, read):
    source = with_copy(read).replace("a.stride(1)", "1")
    assert changes(DroppedCopy(), "matmul", source) == {}
