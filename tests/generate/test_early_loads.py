"""Pipeline: loads that are issued before what they do not need."""

from __future__ import annotations

import pytest

from kbtui.generate.moves.early_loads import EarlyLoads

WEIGHT = "weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)"
ALONE = "load of weight before what it does not need"


def test_a_load_rises_over_a_reduction(changes):
    assert changes(EarlyLoads(), "rms_norm") == {ALONE: [f"+{WEIGHT}", f"-{WEIGHT}"]}


def test_all_loads_rise_together(changes):
    found = changes(EarlyLoads(), "layer_norm")
    assert list(found) == [ALONE, ALONE.replace("weight", "bias"), "2 loads before what they do not need"]
    assert len(found["2 loads before what they do not need"]) == 4


def test_an_address_rises_with_its_load(changes, read):
    source = read("rms_norm").source.replace(f"    {WEIGHT}\n", f"    at = weight_ptr + offsets\n    {WEIGHT}\n")
    source = source.replace("tl.load(weight_ptr + offsets", "tl.load(at")
    assert [line[0] for line in changes(EarlyLoads(), "rms_norm", source)[ALONE]] == ["+", "+", "-", "-"]


def test_a_load_rises_over_a_loop_with_what_it_depends_on(changes):
    found = changes(EarlyLoads(), "cross_entropy")
    assert list(found) == [
        "load of target before what it does not need",
        "load of picked before what it does not need",
    ]
    lines = found["load of picked before what it does not need"]
    assert "+target = tl.load(targets_ptr + row * target_stride)" in lines


def test_nothing_rises_where_nothing_is_slow(changes):
    for style in ("vector_add", "swiglu", "rope", "matmul", "softmax"):
        assert changes(EarlyLoads(), style) == {}


@pytest.mark.parametrize(
    "before",
    [
        "tl.store(out_ptr + row, scale)",  # may write what is loaded
        "tl.debug_barrier()",
        "weight_ptr += row",
        "offsets = offsets * tl.sum(x * 0, axis=0).to(tl.int32)",
        "helper(weight_ptr)",
    ],
)
def test_a_load_stays_behind_what_it_may_need(changes, read, before):
    source = read("rms_norm").source.replace(f"    {WEIGHT}\n", f"    {before}\n    {WEIGHT}\n")
    assert before in source
    assert changes(EarlyLoads(), "rms_norm", source) == {}
