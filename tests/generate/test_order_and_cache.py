"""Reordering of programs, and what the caches are told."""

from __future__ import annotations

from kbtui.generate.moves.cache import CacheModifier, EvictionPolicy
from kbtui.generate.moves.program_loop import Persistent
from kbtui.generate.moves.program_order import GroupedOrder, GroupSize, SwapAxes


def test_grouped_order_of_a_two_dimensional_grid(changes):
    assert changes(GroupedOrder(), "matmul") == {
        f"programs in groups of {size}": [
            f"+pid_n, pid_m = tl.swizzle2d(pid_n, pid_m, tl.num_programs(1), tl.num_programs(0), {size})"
        ]
        for size in (4, 8)
    }


def test_grouped_order_of_programs_numbered_along_one_axis(changes):
    assert changes(GroupedOrder(), "flat_tiles")["programs in groups of 8"] == [
        "+pid_m, pid_n = tl.swizzle2d(pid_m, pid_n, tl.num_programs(0) // tiles_n, tiles_n, 8)"
    ]


def test_grouped_order_only_where_tiles_are_shared_and_once(changes, read):
    assert changes(GroupedOrder(), "autotuned") == {}, "grouped by hand already"
    assert changes(GroupedOrder(), "square_tiles") == {}, "every element is read once"
    move, module = GroupedOrder(), read("matmul")
    grouped = move.apply(module, move.sites(module)[0])
    assert changes(GroupedOrder(), "matmul", grouped) == {}


def test_grouped_order_needs_both_names_unused_before_it(changes, read):
    source = read("matmul").source.replace(
        "    pid_n = tl.program_id(1)\n", "    first = pid_m * BLOCK_M\n    pid_n = tl.program_id(1)\n"
    )
    assert changes(GroupedOrder(), "matmul", source) == {}


def test_group_size(changes, read):
    move, module = GroupedOrder(), read("matmul")
    grouped = move.apply(module, move.sites(module)[1])
    found = changes(GroupSize(), "matmul", grouped)
    assert list(found) == ["group size 8 → 16", "group size 8 → 4"]
    assert found["group size 8 → 16"][1].endswith("tl.num_programs(0), 16)")


def test_group_parameter_of_an_autotune_list(changes):
    found = changes(GroupSize(), "autotuned")
    assert found["GROUP_M 8 → 4 in config 2 of 2"] == [
        '+triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 4}, num_stages=4, num_warps=4),'
    ]
    assert len(found) == 4


def test_swapped_axes(changes):
    assert changes(SwapAxes(), "matmul") == {
        "swap grid axes 0 and 1": [
            "-pid_m = tl.program_id(0)",
            "-pid_n = tl.program_id(1)",
            "+pid_m = tl.program_id(1)",
            "+pid_n = tl.program_id(0)",
            "-grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))",
            "+grid = (triton.cdiv(n, BLOCK_N), triton.cdiv(m, BLOCK_M))",
        ]
    }


def test_axes_stay_where_the_grid_has_one_or_serves_two_kernels(changes, read):
    assert changes(SwapAxes(), "lambda_grid") == {}
    assert changes(SwapAxes(), "flat_tiles") == {}
    source = read("matmul").source
    twice = source.replace("def matmul(", "@triton.jit\ndef other(x):\n    pass\n\n\ndef matmul(").replace(
        "    return out", "    other[grid](out)\n    return out"
    )
    assert changes(SwapAxes(), "matmul", twice) == {}


def test_persistent_grid_and_its_size(changes, read):
    move, module = Persistent(), read("vector_add")
    (site,) = move.sites(module)
    lines = changes(move, "vector_add")["1024 programs at most"]
    assert "+start = tile.to(tl.int64) * BLOCK" in lines
    assert "+grid = (min(triton.cdiv(n, BLOCK), 1024),)" in lines
    assert "+add_kernel[grid](x, y, out, n, BLOCK=BLOCK, tiles=triton.cdiv(n, BLOCK))" in lines
    assert changes(move, "vector_add", move.apply(module, site)) == {
        f"programs at most 1024 → {new}": [
            "-grid = (min(triton.cdiv(n, BLOCK), 1024),)",
            f"+grid = (min(triton.cdiv(n, BLOCK), {new}),)",
        ]
        for new in (2048, 512)
    }


def test_the_size_of_a_lambda_grid_is_computed_at_the_launch_from_names_only(changes, read):
    assert changes(Persistent(), "lambda_grid") == {}, "the block is a number at the launch"
    source = read("lambda_grid").source.replace("factor, BLOCK_SIZE=1024)", "factor, BLOCK_SIZE=block)")
    source = source.replace("    n_elements = out.numel()\n", "    n_elements, block = out.numel(), 256\n")
    lines = changes(Persistent(), "scale", source)["1024 programs at most"]
    assert '+grid = lambda meta: (min(triton.cdiv(n_elements, meta["BLOCK_SIZE"]), 1024),)' in lines
    assert any("BLOCK_SIZE=block, tiles=triton.cdiv(n_elements, block))" in line for line in lines)


def test_eviction_policies(changes):
    found = changes(EvictionPolicy(), "rms_norm")
    assert list(found) == [
        "load x_ptr evict_first",
        "load weight_ptr evict_last",
        "store out_ptr evict_first",
        "all 2 streamed accesses evict_first",
    ]
    assert found["load weight_ptr evict_last"] == [
        "-weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)",
        '+weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)',
    ]
    assert len(found["all 2 streamed accesses evict_first"]) == 4


def test_tables_that_depend_on_a_part_of_the_index_are_shared(changes):
    found = changes(EvictionPolicy(), "rope")
    assert "load cos_ptr evict_last" in found
    assert "load sin_ptr evict_last" in found
    assert "load cos_ptr evict_first" not in found


def test_a_second_pass_over_the_same_row_comes_before_leaving(changes):
    found = changes(EvictionPolicy(), "cross_entropy")
    assert "load logits_ptr evict_last" in found
    assert sum(title.startswith("load logits_ptr evict_first") for title in found) == 2


def test_policies_are_taken_back(changes, read):
    source = read("lambda_grid").source.replace(
        "+ offsets, mask=mask)", '+ offsets, eviction_policy="evict_first", mask=mask)'
    )
    found = changes(EvictionPolicy(), "scale", source)
    assert found["load x_ptr evict_first → none"] == [
        '-x = tl.load(x_ptr + offsets, eviction_policy="evict_first", mask=mask)',
        "+x = tl.load(x_ptr + offsets, mask=mask)",
    ]
    assert "load x_ptr evict_first" not in found
    # PTX has no instruction with both.
    assert "load x_ptr .cg" not in changes(CacheModifier(), "scale", source)


def test_cache_modifiers(changes):
    assert changes(CacheModifier(), "literal_grid") == {
        "store dst .cs": [
            "-tl.store(dst + at, tl.load(src + at, at < n), at < n)",
            '+tl.store(dst + at, tl.load(src + at, at < n), at < n, cache_modifier=".cs")',
        ],
        "load src .cg": [
            "-tl.store(dst + at, tl.load(src + at, at < n), at < n)",
            '+tl.store(dst + at, tl.load(src + at, at < n, cache_modifier=".cg"), at < n)',
        ],
    }


def test_what_is_stored_and_read_back_is_not_streamed(changes, read):
    source = read("lambda_grid").source.replace("out_ptr + offsets", "x_ptr + offsets")
    assert not any(title.startswith("store") for title in changes(EvictionPolicy(), "scale", source))
    assert not any(title.startswith("store") for title in changes(CacheModifier(), "scale", source))
