"""Pipeline: loops unrolled by a factor, or wholly at compile time, and rolled up again."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.edits import call_edit, with_keyword
from kbtui.generate.tree.flow import TL
from kbtui.generate.tree.loops import Loop, as_tl_range, kernel_loops, keyword_integer
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edits, walk
from kbtui.generate.tree.origins import integer
from kbtui.state.records import Strategy

FACTORS = (2, 4)
MOST_UNROLLED = 8
"""Factor, and trip count of a loop written with literals, up to which unrolling is offered."""


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


class StaticRange(Move):
    name = "static_range"
    strategy: Strategy = "pipeline"
    kind = "parameter"
    summary = "a loop of up to 8 iterations known from its literals unrolled by tl.static_range, or rolled up again"

    def sites(self, module: KernelModule) -> list[Site]:
        found = []
        for loop in kernel_loops(module):
            new = self._other(module, loop)
            if new is not None:
                edits: Edits = {loop.header.func: lambda _node, code=new: cst.parse_expression(code)}  # type: ignore[misc]
                old = module.code(loop.header.func)
                title = f"{old} → {new}"
                found.append(Site(title, loop.kernel.name, module.line(loop.node), edits, loop.describe(module)))
        return found

    def _other(self, module: KernelModule, loop: Loop) -> str | None:
        """What the loop is written with instead."""
        if any(a.keyword is not None for a in loop.header.args):
            return None
        if loop.kind == "tl.static_range":
            return None if _indexes_constants(module, loop) else "range"
        bounds = [integer(a.value) for a in loop.header.args]
        known = [b for b in bounds if b is not None]
        if loop.kind != "range" or len(known) != len(bounds) or not 1 <= len(known) <= 3 or known[2:] == [0]:
            return None
        return module.names.spell(f"{TL}.static_range") if 1 < len(range(*known)) <= MOST_UNROLLED else None


def _indexes_constants(module: KernelModule, loop: Loop) -> bool:
    """Whether the loop's variable is used where the compiler needs a constant: an index, or a condition."""
    names = {n.value for n in walk(loop.node.target) if isinstance(n, cst.Name)}
    for node in walk(loop.node.body):
        if isinstance(node, cst.Subscript | cst.If | cst.IfExp):
            where = node.slice if isinstance(node, cst.Subscript) else [node.test]
            if any(isinstance(n, cst.Name) and n.value in names for part in where for n in walk(part)):
                return True
        if module.names.calls(node, f"{TL}.static_assert", f"{TL}.arange", f"{TL}.constexpr") and any(
            isinstance(n, cst.Name) and n.value in names for n in walk(node)
        ):
            return True
    return False
