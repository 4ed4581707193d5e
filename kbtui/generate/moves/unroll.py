"""Pipeline: loops unrolled by a factor."""

from __future__ import annotations

from collections.abc import Iterator

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.edits import call_edit, with_keyword
from kbtui.generate.tree.loops import Loop, as_tl_range, kernel_loops, keyword_integer
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edits
from kbtui.state.records import Strategy

FACTORS = (2, 4)
MOST_UNROLLED = 8
"""The factor up to which unrolling is offered."""


class LoopUnroll(Move):
    name = "loop_unroll"
    strategy: Strategy = "pipeline"
    kind = "parameter"
    summary = "loop_unroll_factor of one loop through tl.range: the loads of several iterations issue together"

    def sites(self, module: KernelModule) -> list[Site]:
        return [site for loop in kernel_loops(module) for site in self._of_loop(module, loop)]

    def _of_loop(self, module: KernelModule, loop: Loop) -> Iterator[Site]:
        old = keyword_integer(loop.header, "loop_unroll_factor")
        given = any(a.keyword is not None and a.keyword.value == "loop_unroll_factor" for a in loop.header.args)
        if loop.kind == "tl.static_range" or (given and old is None):
            return
        for new in FACTORS if old is None else (old * 2, old // 2):
            if not 1 <= new <= MOST_UNROLLED:
                continue
            change = (
                with_keyword("loop_unroll_factor", str(new))
                if loop.kind == "tl.range"
                else as_tl_range(module, "loop_unroll_factor", new)
            )
            if change is not None:
                before = "" if old is None else f" {old} →"
                edits: Edits = {loop.header: call_edit(change)}
                yield Site(
                    f"loop unroll{before} {new}",
                    loop.kernel.name,
                    module.line(loop.node),
                    edits,
                    loop.describe(module),
                )
