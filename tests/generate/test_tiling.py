"""Tiling: block sizes with their grid, and several tiles a program."""

from __future__ import annotations

import pytest

from kbtui.generate.moves.block_size import BlockSize
from kbtui.generate.moves.looped_row import LoopedRow
from kbtui.generate.moves.program_loop import PipelinedTiles, TilesPerProgram


def test_literal_at_the_launch_with_a_lambda_grid(changes):
    assert changes(BlockSize(), "lambda_grid") == {
        "BLOCK_SIZE 1024 → 2048": [
            "-scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=1024)",
            "+scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=2048)",
        ],
        "BLOCK_SIZE 1024 → 512": [
            "-scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=1024)",
            "+scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=512)",
        ],
    }


def test_literals_of_the_grid_change_with_the_block_and_unreached_kernels_stay(changes):
    assert changes(BlockSize(), "literal_grid") == {
        "BLOCK 256 → 512": [
            "-copy_kernel[((n + 255) // 256,)](src, dst, n, 256)",
            "+copy_kernel[((n + 511) // 512,)](src, dst, n, 512)",
        ],
        "BLOCK 256 → 128": [
            "-copy_kernel[((n + 255) // 256,)](src, dst, n, 256)",
            "+copy_kernel[((n + 127) // 128,)](src, dst, n, 128)",
        ],
    }


def test_equal_literals_that_cannot_be_told_apart_change_together(changes):
    launch = (
        "transpose_kernel[triton.cdiv(rows, {0}), triton.cdiv(cols, {0})](x, y, rows, cols, BLOCK_R={0}, BLOCK_C={0})"
    )
    assert changes(BlockSize(), "square_tiles") == {
        "BLOCK_R, BLOCK_C 32 → 64": ["-" + launch.format(32), "+" + launch.format(64)],
        "BLOCK_R, BLOCK_C 32 → 16": ["-" + launch.format(32), "+" + launch.format(16)],
    }


def test_module_constant_and_default_of_a_wrapper(changes):
    assert changes(BlockSize(), "wrapper_values") == {
        "ROWS_PER 4 → 8": ["-ROWS = 4", "+ROWS = 8"],
        "ROWS_PER 4 → 2": ["-ROWS = 4", "+ROWS = 2"],
        "COLS_PER 128 → 256": [
            "-def _launch(x, bias, out, cols_per=128):",
            "+def _launch(x, bias, out, cols_per=256):",
        ],
        "COLS_PER 128 → 64": ["-def _launch(x, bias, out, cols_per=128):", "+def _launch(x, bias, out, cols_per=64):"],
    }


def test_a_value_passed_by_the_caller_is_changed_at_the_caller(changes, read):
    source = read("wrapper_values").source.replace("_launch(x, bias, out)\n", "_launch(x, bias, out, cols_per=64)\n")
    found = changes(BlockSize(), "add_bias", source)
    assert found["COLS_PER 64 → 32"] == [
        "-_launch(x, bias, out, cols_per=64)",
        "+_launch(x, bias, out, cols_per=32)",
    ]
    assert [title for title in found if title.startswith("COLS_PER")] == ["COLS_PER 64 → 128", "COLS_PER 64 → 32"]


def test_autotune_list_keeps_its_configurations_and_gets_one_more(changes):
    found = changes(BlockSize(), "autotuned")
    assert found["BLOCK_M 128 → 64 in config 1 of 2"] == [
        '+triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=8),'
    ]
    assert found["BLOCK_K 32 → 64 in config 2 of 2"] == [
        '+triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8}, num_stages=4, num_warps=4),'
    ]
    # GROUP_M sizes no tile.
    assert {title.split()[0] for title in found} == {"BLOCK_M", "BLOCK_N", "BLOCK_K"}


def test_single_configuration_changes_in_place(changes, read):
    lines = read("autotuned").source.splitlines(keepends=True)
    source = "".join(line for line in lines if "# small" not in line)
    found = changes(BlockSize(), "matmul", source)
    assert found["BLOCK_N 64 → 32 in config 1 of 1"] == [
        '-triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=8),',
        '+triton.Config({"BLOCK_M": 128, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 8}, num_stages=3, num_warps=8),',
    ]


def test_a_configuration_that_the_list_has_already_is_not_added(changes, read):
    source = read("autotuned").source.replace("num_stages=4, num_warps=4),  # small", "num_stages=3, num_warps=8),")
    found = changes(BlockSize(), "matmul", source)
    assert "BLOCK_M 128 → 64 in config 1 of 2" not in found
    assert "BLOCK_M 128 → 256 in config 1 of 2" in found


def test_whole_row_sized_by_next_power_of_2_stays(changes):
    assert changes(BlockSize(), "row_softmax") == {}


def test_cap_of_a_looped_row_moves_and_is_followed_into_the_helper(changes):
    found = changes(BlockSize(), "looped_row")
    assert list(found) == ["BLOCK 1024 → 2048", "BLOCK 1024 → 512"]
    assert found["BLOCK 1024 → 512"][1].endswith("BLOCK=min(512, triton.next_power_of_2(n)))")


def test_looped_row_sized_by_next_power_of_2_is_halved_only(changes, read):
    source = read("looped_row").source.replace("min(1024, triton.next_power_of_2(n))", "triton.next_power_of_2(n)")
    found = changes(BlockSize(), "norm", source)
    assert list(found) == ["BLOCK next_power_of_2 → half"]
    (line,) = (line for line in found["BLOCK next_power_of_2 → half"] if line.startswith("+"))
    assert line.endswith("BLOCK=triton.next_power_of_2(triton.cdiv(n, 2)))")


LAUNCHED = "factor, BLOCK_SIZE=1024)"


@pytest.mark.parametrize(
    ("replaced", "titles"),
    [
        # Without a mask a larger block would overhang; half of it still divides what the whole divided.
        ({", mask=mask": "", "mask = offsets < n_elements": "pass"}, ["BLOCK_SIZE 1024 → 512"]),
        # A grid that does not follow.
        ({'triton.cdiv(n_elements, meta["BLOCK_SIZE"])': "n_elements // step"}, []),
        # Not a power of two: tl.arange would not take it either.
        ({LAUNCHED: "factor, BLOCK_SIZE=1000)"}, []),
        # At the bounds.
        ({LAUNCHED: "factor, BLOCK_SIZE=65536)"}, ["BLOCK_SIZE 65536 → 32768"]),
        ({LAUNCHED: "factor, BLOCK_SIZE=16)"}, ["BLOCK_SIZE 16 → 32"]),
        # Not known before it runs.
        ({LAUNCHED: "factor, BLOCK_SIZE=pick(n_elements))"}, []),
        ({LAUNCHED: "factor, **options)"}, []),
    ],
)
def test_preconditions(changes, read, replaced, titles):
    source = read("lambda_grid").source
    for old, new in replaced.items():
        assert old in source
        source = source.replace(old, new)
    assert list(changes(BlockSize(), "scale", source)) == titles


def test_tiles_of_a_dot_stay_between_16_and_256(changes):
    found = changes(BlockSize(), "flat_tiles")
    assert list(found) == ["BM 32 → 64", "BM 32 → 16", "BN 16 → 32", "BK 16 → 32"]
    assert found["BM 32 → 64"] == ["-BM, BN = 32, 16", "+BM, BN = 64, 16"]


def test_several_rows_a_program(changes):
    found = changes(TilesPerProgram(), "row_softmax")
    assert list(found) == ["2 tiles a program", "4 tiles a program"]
    lines = found["4 tiles a program"]
    assert "+for step in range(tl.cdiv(tiles - tl.program_id(0), tl.num_programs(0))):" in lines
    assert "+tile = tl.program_id(0) + step * tl.num_programs(0)" in lines
    assert "+row_idx = tile" in lines
    assert "+softmax_kernel[(triton.cdiv(n_rows, 4),)](" in lines
    assert "+tiles=n_rows," in lines


def test_more_rows_where_the_kernel_loops_already(changes, read):
    move = TilesPerProgram()
    module = read("row_softmax")
    (site,) = (site for site in move.sites(module) if site.title == "4 tiles a program")
    again = changes(move, "softmax", move.apply(module, site))
    assert again == {
        "tiles a program 4 → 8": [
            "-softmax_kernel[(triton.cdiv(n_rows, 4),)](",
            "+softmax_kernel[(triton.cdiv(n_rows, 8),)](",
        ],
        "tiles a program 4 → 2": [
            "-softmax_kernel[(triton.cdiv(n_rows, 4),)](",
            "+softmax_kernel[(triton.cdiv(n_rows, 2),)](",
        ],
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    row_idx = tl.program_id(0)\n", "    row_idx = tl.program_id(0)\n    if row_idx > 7:\n        return\n"),
        (
            "    row_idx = tl.program_id(0)\n",
            "    row_idx = tl.program_id(0)\n    tl.atomic_cas(output_ptr, 0, 1)\n",
        ),
        (
            "    row_idx = tl.program_id(0)\n",
            "    row_idx = tl.program_id(0)\n    while tl.load(input_ptr) > 0:\n        pass\n",
        ),
        ("    row_idx = tl.program_id(0)\n", "    row_idx = tl.program_id(0)\n    BLOCK_SIZE = row_idx\n"),
        ("    row_idx = tl.program_id(0)\n", "    row_idx = tl.program_id(0) + tl.num_programs(0)\n"),
        ("    y = torch.empty_like(x)\n", "    grid = (n_rows,)\n    n_rows = 1\n    y = torch.empty_like(x)\n"),
        ("softmax_kernel[(n_rows,)](", "softmax_kernel[(next(counter),)]("),
        ("softmax_kernel[(n_rows,)](", "softmax_kernel[(n_cols // 64,)]("),
    ],
)
def test_no_loop_over_tiles_where_it_would_change_the_meaning(changes, read, old, new):
    source = read("row_softmax").source
    assert old in source
    source = source.replace(old, new)
    if "grid =" in new:
        source = source.replace("softmax_kernel[(n_rows,)](", "softmax_kernel[grid](")
    assert changes(TilesPerProgram(), "softmax", source) == {}


def test_pointers_that_move_start_again_for_each_tile(changes):
    lines = changes(TilesPerProgram(), "moved_pointers")["2 tiles a program"]
    assert [line for line in lines if "_tile" in line and line.startswith("+")] == [
        "+X_tile = X",
        "+Y_tile = Y",
        "+r_tile = r",
        "+Y_tile += row_idx * Y_row_stride",
        "+X_tile += row_idx * X_row_stride",
        "+r_tile += row_idx",
        "+x = tl.load(X_tile + col_offsets, mask=mask, other=0.0).to(tl.float32)",
        "+tl.store(r_tile, inverse)",
        "+tl.store(Y_tile + col_offsets, y, mask=mask)",
    ]


def test_each_dimension_of_a_grid_has_its_own_loop(changes):
    found = changes(TilesPerProgram(), "matmul")
    assert list(found) == [
        "2 tiles a program along axis 0",
        "4 tiles a program along axis 0",
        "2 tiles a program along axis 1",
        "4 tiles a program along axis 1",
    ]
    lines = found["2 tiles a program along axis 1"]
    assert "+for step in range(tl.cdiv(tiles - tl.program_id(1), tl.num_programs(1))):" in lines
    assert "+grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(triton.cdiv(n, BLOCK_N), 2))" in lines
    assert "+tiles=triton.cdiv(n, BLOCK_N)," in lines


def test_pipelined_tiles_where_a_tile_has_no_loop(changes):
    found = changes(PipelinedTiles(), "vector_add")
    assert list(found) == ["4 tiles in 2 stages", "4 tiles in 3 stages"]
    header = "+for step in tl.range(tl.cdiv(tiles - tl.program_id(0), tl.num_programs(0)), num_stages=2):"
    assert header in found["4 tiles in 2 stages"]
    assert changes(PipelinedTiles(), "matmul") == {}
    assert changes(PipelinedTiles(), "cross_entropy") == {}


def test_row_in_pieces(changes):
    assert changes(LoopedRow(), "row_softmax")["row in pieces of 1024"] == [
        "-col_offsets = tl.arange(0, BLOCK_SIZE)",
        '-row = tl.load(input_ptr + row_idx * input_row_stride + col_offsets, mask=col_offsets < n_cols, other=-float("inf"))',
        "-row_minus_max = row - tl.max(row, axis=0)",
        "-numerator = tl.exp(row_minus_max)",
        "-denominator = tl.sum(numerator, axis=0)",
        "-tl.store(output_ptr + row_idx * output_row_stride + col_offsets, numerator / denominator, mask=col_offsets < n_cols)",
        '+max_parts = tl.full((BLOCK_SIZE,), -float("inf"), dtype=tl.float32)',
        "+for start in range(0, n_cols, BLOCK_SIZE):",
        "+col_offsets = start + tl.arange(0, BLOCK_SIZE)",
        '+row = tl.load(input_ptr + row_idx * input_row_stride + col_offsets, mask=col_offsets < n_cols, other=-float("inf"))',
        "+max_parts = tl.maximum(max_parts, row)",
        "+row_max = tl.max(max_parts, axis=0)",
        "+sum_parts = tl.zeros((BLOCK_SIZE,), dtype=tl.float32)",
        "+for start in range(0, n_cols, BLOCK_SIZE):",
        "+col_offsets = start + tl.arange(0, BLOCK_SIZE)",
        '+row = tl.load(input_ptr + row_idx * input_row_stride + col_offsets, mask=col_offsets < n_cols, other=-float("inf"))',
        "+row_minus_max = row - row_max",
        "+numerator = tl.exp(row_minus_max)",
        "+sum_parts += numerator",
        "+row_sum = tl.sum(sum_parts, axis=0)",
        "+denominator = row_sum",
        "+for start in range(0, n_cols, BLOCK_SIZE):",
        "+col_offsets = start + tl.arange(0, BLOCK_SIZE)",
        '+row = tl.load(input_ptr + row_idx * input_row_stride + col_offsets, mask=col_offsets < n_cols, other=-float("inf"))',
        "+row_minus_max = row - row_max",
        "+numerator = tl.exp(row_minus_max)",
        "+tl.store(output_ptr + row_idx * output_row_stride + col_offsets, numerator / denominator, mask=col_offsets < n_cols)",
        "-BLOCK_SIZE = triton.next_power_of_2(n_cols)",
        "+BLOCK_SIZE = min(1024, triton.next_power_of_2(n_cols))",
    ]


def test_pieces_of_a_row_are_tiles_like_any_other(changes, read):
    move, module = LoopedRow(), read("softmax")
    looped = move.apply(module, move.sites(module)[0])
    assert list(changes(BlockSize(), "softmax", looped)) == ["BLOCK 1024 → 2048", "BLOCK 1024 → 512"]
    assert changes(LoopedRow(), "softmax", looped) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("numerator = tl.exp(row_minus_max)", "numerator = tl.cumsum(row_minus_max, axis=0)"),
        ("numerator = tl.exp(row_minus_max)", "numerator = tl.exp(row_minus_max)[:, None]"),
        ("numerator = tl.exp(row_minus_max)", "numerator = helper(row_minus_max)"),
        ("tl.sum(numerator, axis=0)", "tl.sum(numerator, axis=0, keep_dims=True)"),
        (
            "    numerator = tl.exp(row_minus_max)\n",
            "    numerator = tl.exp(row_minus_max)\n    n_cols = n_cols - 1\n",
        ),
        (
            "    numerator = tl.exp(row_minus_max)\n",
            "    numerator = tl.exp(row_minus_max)\n    row_idx = numerator * 2\n",
        ),
        (
            "    numerator = tl.exp(row_minus_max)\n",
            "    tl.store(output_ptr + col_offsets, row)\n    numerator = tl.load(output_ptr + col_offsets)\n",
        ),
        ("softmax_kernel[(n_rows,)](", "softmax_kernel[lambda meta: (n_rows // meta['BLOCK_SIZE'],)]("),
        ("    row_idx = tl.program_id(0)\n", "    row_idx = tl.program_id(0)\n    if row_idx > 7:\n        return\n"),
        ("col_offsets < n_cols, other", "col_offsets <= n_cols, other"),
        ("triton.next_power_of_2(n_cols)", "1024"),
    ],
)
def test_rows_that_are_not_understood_stay(changes, read, old, new):
    source = read("row_softmax").source
    assert old in source
    assert changes(LoopedRow(), "softmax", source.replace(old, new)) == {}
