"""Vectorization, pipeline and the warps side of reordering."""

from __future__ import annotations

import pytest

from kbtui.generate.moves.stages import LaunchStages, LoopStages
from kbtui.generate.moves.unroll import LoopUnroll
from kbtui.generate.moves.warps import FewerWarps, MoreWarps


def test_warps_that_nobody_wrote_are_added_to_the_launch(changes):
    before = "-scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=1024)"
    after = "+scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=1024, num_warps={})"
    assert changes(FewerWarps(), "lambda_grid") == {"num_warps 4 (default) → 2": [before, after.format(2)]}
    assert changes(MoreWarps(), "lambda_grid") == {"num_warps 4 (default) → 8": [before, after.format(8)]}


def test_written_warps_change_where_they_stand(changes):
    assert changes(FewerWarps(), "matmul") == {"num_warps 4 → 2": ["-num_warps=4,", "+num_warps=2,"]}
    assert changes(MoreWarps(), "matmul") == {"num_warps 4 → 8": ["-num_warps=4,", "+num_warps=8,"]}


def test_a_launch_over_several_lines_gets_one_more(changes):
    assert changes(MoreWarps(), "rms_norm")["num_warps 4 (default) → 8"] == [
        "-rms_norm_kernel[(rows,)](x, weight, out, cols, eps, BLOCK=BLOCK)",
        "+rms_norm_kernel[(rows,)](x, weight, out, cols, eps, BLOCK=BLOCK, num_warps=8)",
    ]


def test_computed_warps_are_replaced_at_the_launch(changes):
    assert changes(FewerWarps(), "row_softmax") == {
        "num_warps computed → 2": ["-num_warps=num_warps,", "+num_warps=2,"],
    }
    assert changes(MoreWarps(), "row_softmax") == {
        "num_warps computed → 8": ["-num_warps=num_warps,", "+num_warps=8,"],
    }


def test_warps_in_an_autotune_list(changes):
    found = changes(MoreWarps(), "autotuned")
    assert found == {
        "num_warps 8 → 16": [
            '+triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=16),'
        ],
        "num_warps 4 → 8": [
            '+triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=4, num_warps=8),'
        ],
    }


@pytest.mark.parametrize(
    ("move", "launched", "titles"),
    [
        (FewerWarps(), "num_warps=1)", []),
        (MoreWarps(), "num_warps=16)", []),
        (FewerWarps(), "num_warps=6)", []),
        (FewerWarps(), "**options)", []),
        (FewerWarps(), "num_warps=8, **options)", ["num_warps 8 → 4"]),
    ],
)
def test_warps_preconditions(changes, read, move, launched, titles):
    source = read("lambda_grid").source.replace("factor, BLOCK_SIZE=1024)", f"factor, BLOCK_SIZE=1024, {launched}")
    assert list(changes(move, "scale", source)) == titles


def test_launch_stages_only_with_a_dot_in_a_loop(changes):
    assert changes(LaunchStages(), "matmul") == {
        "num_stages 3 → 4": ["-num_stages=3,", "+num_stages=4,"],
        "num_stages 3 → 2": ["-num_stages=3,", "+num_stages=2,"],
    }
    assert list(changes(LaunchStages(), "flat_tiles")) == ["num_stages 3 (default) → 4", "num_stages 3 (default) → 2"]
    assert changes(LaunchStages(), "looped_row") == {}
    assert changes(LaunchStages(), "row_softmax") == {}


def test_loop_stages_become_a_tl_range(changes):
    found = changes(LoopStages(), "matmul")
    assert list(found) == ["loop num_stages 2", "loop num_stages 3", "loop num_stages 4"]
    assert found["loop num_stages 3"] == [
        "-for start in range(0, k, BLOCK_K):",
        "+for start in tl.range(0, k, BLOCK_K, num_stages=3):",
    ]


def test_loop_stages_that_are_written_step_by_one(changes):
    assert changes(LoopStages(), "flat_tiles") == {
        "loop num_stages 2 → 3": [
            "-for k in tl.range(0, K, BK, num_stages=2):",
            "+for k in tl.range(0, K, BK, num_stages=3):",
        ],
        "loop num_stages 2 → 1": [
            "-for k in tl.range(0, K, BK, num_stages=2):",
            "+for k in tl.range(0, K, BK, num_stages=1):",
        ],
    }


def test_two_loops_have_titles_of_their_own(changes):
    # The first loop loads through a helper only.
    assert len(changes(LoopStages(), "looped_row")) == 6
    assert all(" at line " in title for title in changes(LoopStages(), "looped_row"))


def test_no_loop_stages_without_a_load(changes, read):
    source = read("row_softmax").source.replace(
        "    numerator = tl.exp(row_minus_max)\n",
        "    numerator = tl.exp(row_minus_max)\n    for _ in range(0, n_cols):\n        numerator += 0.0\n",
    )
    assert changes(LoopStages(), "softmax", source) == {}
    assert list(changes(LoopUnroll(), "softmax", source)) == ["loop unroll 2", "loop unroll 4"]


def test_loop_moves_need_a_name_for_the_language(changes, read):
    source = read("looped_row").source.replace("import triton.language as tl", "from mine import tl")
    assert changes(LoopStages(), "norm", source) == {}


def test_unroll(changes, read):
    found = changes(LoopUnroll(), "matmul")
    assert found["loop unroll 2"] == [
        "-for start in range(0, k, BLOCK_K):",
        "+for start in tl.range(0, k, BLOCK_K, loop_unroll_factor=2):",
    ]
    source = read("flat_tiles").source.replace("num_stages=2):", "num_stages=2, loop_unroll_factor=4):")
    assert list(changes(LoopUnroll(), "product", source)) == ["loop unroll 4 → 8", "loop unroll 4 → 2"]
