"""Tile sizes that are not written at the launch: tables, loops over configurations, computed names, callers."""

from __future__ import annotations

import pytest

from kbtui.generate.moves.block_size import BlockSize
from kbtui.generate.moves.computed_block import ComputedBlock
from kbtui.generate.moves.stages import LaunchStages
from kbtui.generate.moves.warps import FewerWarps, MoreWarps


def test_entries_of_a_table_and_products_of_literals(changes):
    found = changes(BlockSize(), "table_of_blocks")
    assert found["BLOCK_R 4 → 8"] == [
        '-table = {torch.float16: {"BLOCK_R": 8}, torch.float32: {"BLOCK_R": 4}}',
        '+table = {torch.float16: {"BLOCK_R": 8}, torch.float32: {"BLOCK_R": 8}}',
    ]
    assert "BLOCK_R 8 → 4" in found
    assert found["BLOCK_C 2048 → 1024"] == [
        "-BLOCK_C = min(triton.next_power_of_2(cols), 2 * 1024)",
        "+BLOCK_C = min(triton.next_power_of_2(cols), 1024)",
    ]


def test_a_table_that_may_be_another_one_gives_nothing(changes, read):
    source = read("table_of_blocks").source.replace(
        "    BLOCK_C = min(", "    table = other(table)\n    BLOCK_C = min("
    )
    assert [title for title in changes(BlockSize(), "triple", source) if "BLOCK_R" in title] == []


def test_loops_over_configurations_get_one_more_value(changes):
    assert changes(BlockSize(), "tuned_by_loops") == {
        "BLOCK 256 → 128 too": ["-for block in [256, 512]:", "+for block in [128, 256, 512]:"],
        "BLOCK 512 → 1024 too": ["-for block in [256, 512]:", "+for block in [256, 512, 1024]:"],
    }
    old = "-for warps, stages in itertools.product((2, 4), (2, 3)):"
    assert changes(FewerWarps(), "tuned_by_loops") == {
        "num_warps 2 → 1": [old, "+for warps, stages in itertools.product((1, 2, 4), (2, 3)):"]
    }
    assert changes(MoreWarps(), "tuned_by_loops") == {
        "num_warps 4 → 8": [old, "+for warps, stages in itertools.product((2, 4, 8), (2, 3)):"]
    }
    assert changes(LaunchStages(), "tuned_by_loops") == {}, "no tl.dot in a loop"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[256, 512]", "sizes()"),
        ("[256, 512]", "[256, least]"),
        ("def configurations():", "def configurations(*least):"),
        ("for block in", "for block, _ in"),
        ('meta["BLOCK"]', "256"),
    ],
)
def test_loops_that_are_not_understood_stay(changes, read, old, new):
    source = read("tuned_by_loops").source
    assert old in source
    if "least" in new and "def" in new:
        source = source.replace("configs=configurations()", "configs=configurations(256)[1:]")
    assert changes(BlockSize(), "double", source.replace(old, new)) == {}


def test_computed_and_given_blocks_change_behind_the_place_that_sets_them(changes):
    assert changes(ComputedBlock(), "computed_block") == {
        "BLOCK_R doubled": ["+BLOCK_R = min(8192, BLOCK_R * 2)"],
        "BLOCK_R halved": ["+BLOCK_R = max(1, BLOCK_R // 2)"],
        "BLOCK_C doubled": ["+BLOCK_C = min(8192, BLOCK_C * 2)"],
        "BLOCK_C halved": ["+BLOCK_C = max(1, BLOCK_C // 2)"],
    }


def test_a_block_is_changed_by_a_line_once(changes, read):
    module, move = read("computed_block"), ComputedBlock()
    (site,) = (site for site in move.sites(module) if site.title == "BLOCK_R doubled")
    again = changes(move, "halves", move.apply(module, site))
    assert list(again) == ["BLOCK_C doubled", "BLOCK_C halved"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("triton.cdiv(rows, BLOCK_R)", "triton.cdiv(rows, 32)"),  # the grid does not follow
        ("y = torch.empty_like(x)", "y = torch.empty((rows, BLOCK_R))"),  # the caller may see it
        ("x, y, rows, cols, BLOCK_R,", "x, y, BLOCK_R, cols, BLOCK_R,"),  # the kernel takes it as something else too
    ],
)
def test_blocks_that_mean_more_than_a_tile_stay(changes, read, old, new):
    source = read("computed_block").source
    assert old in source
    assert list(changes(ComputedBlock(), "halves", source.replace(old, new))) == ["BLOCK_C doubled", "BLOCK_C halved"]
