"""The moves there are. A new one is a class in a file of its family, named here and in docs/moves.md."""

from __future__ import annotations

from kbtui.generate.moves.block_size import BlockSize
from kbtui.generate.moves.cache import CacheModifier, EvictionPolicy
from kbtui.generate.moves.computed_block import ComputedBlock
from kbtui.generate.moves.early_loads import EarlyLoads
from kbtui.generate.moves.looped_row import LoopedRow
from kbtui.generate.moves.move import Move
from kbtui.generate.moves.program_loop import Persistent, PipelinedTiles, TilesPerProgram
from kbtui.generate.moves.program_order import GroupedOrder, GroupSize, SwapAxes
from kbtui.generate.moves.single_pass import SinglePass
from kbtui.generate.moves.stages import LaunchStages, LoopStages
from kbtui.generate.moves.unroll import LoopUnroll
from kbtui.generate.moves.warps import FewerWarps, MoreWarps


def all_moves() -> list[Move]:
    """One of each, by strategy."""
    return [
        BlockSize(),
        ComputedBlock(),
        TilesPerProgram(),
        LoopedRow(),
        FewerWarps(),
        SinglePass(),
        PipelinedTiles(),
        EarlyLoads(),
        LaunchStages(),
        LoopStages(),
        LoopUnroll(),
        MoreWarps(),
        GroupedOrder(),
        GroupSize(),
        SwapAxes(),
        Persistent(),
        EvictionPolicy(),
        CacheModifier(),
    ]
