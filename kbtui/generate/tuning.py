"""Numbers of a source, one step up or down: what the numeric search chooses from, whoever writes the other versions."""

from __future__ import annotations

from functools import lru_cache

from kbtui.generate.digest import syntax_digest
from kbtui.generate.generator import Written
from kbtui.generate.moves.block_size import BlockSize
from kbtui.generate.moves.stages import LaunchStages, LoopStages
from kbtui.generate.moves.warps import FewerWarps, MoreWarps
from kbtui.generate.rewrite import RewriteGenerator, read_module, written
from kbtui.state.records import STRATEGIES, Strategy


@lru_cache(maxsize=16)
def numeric_steps(source: str, entry: str) -> tuple[tuple[Strategy, str, Written], ...]:
    """(strategy, digest of the syntax tree, version) for every number of `source` that can go one step up or down.

    Empty for source that does not parse. The last few sources are remembered: the fastest version is asked about again
    and again, and reading a kernel takes some 50 ms.
    """
    module = read_module(source, entry)
    if module is None:
        return ()
    generator = RewriteGenerator([BlockSize(), FewerWarps(), LaunchStages(), LoopStages(), MoreWarps()])
    found = []
    for strategy in STRATEGIES:
        for option in generator.options(module, strategy):
            if option.site.change is not None:
                made = option.move.apply(module, option.site)
                found.append((strategy, syntax_digest(made), written(option, made)))
    return tuple(found)
