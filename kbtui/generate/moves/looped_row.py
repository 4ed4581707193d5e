"""Tiling: a kernel that holds a whole row in one tile goes over the row in pieces instead.

Each reduction becomes a loop that computes what it reduces piece by piece and keeps one partial result a lane; a last loop
computes what is stored. The row is read once more for each reduction, from L2 as far as it fits, and in return the
tile no longer has to fit the registers. Lanes behind the row's end add nothing in the original, whatever their number,
so they add nothing here, and any power of two will do for the piece.
"""

from __future__ import annotations

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.edits import to_expression
from kbtui.generate.tree.flow import flow_of
from kbtui.generate.tree.grids import Grid
from kbtui.generate.tree.module import Kernel, KernelModule
from kbtui.generate.tree.nodes import Edit
from kbtui.generate.tree.origins import Origins, entries, integer
from kbtui.generate.tree.row import Row, read_row
from kbtui.generate.tree.row_loops import looped_row
from kbtui.state.records import Strategy

FIRST_CAPS = (1024, 4096)
"""Sizes of the piece that are offered; `BlockSize` goes on from there."""


class LoopedRow(Move):
    name = "looped_row"
    strategy: Strategy = "tiling"
    kind = "structural"
    summary = "a straight kernel with its whole row in one tile goes over the row in pieces, once for each reduction"

    def sites(self, module: KernelModule) -> list[Site]:
        found = []
        for kernel in module.launched:
            row = read_row(flow_of(module, kernel))
            sized = _sized(module, kernel, row.size) if row is not None else None
            if row is None or sized is None:
                continue
            for cap in FIRST_CAPS:
                if cap >= _largest(module, kernel, row.size):
                    continue
                edits: dict[cst.CSTNode, Edit] = {e: to_expression(f"min({cap}, {module.code(e)})") for e in sized}
                edits[kernel.node.body] = lambda _node, row=row: looped_row(row)  # type: ignore[misc]
                title = f"row in pieces of {cap}"
                found.append(Site(title, kernel.name, module.line(kernel.node), edits, _detail(row)))
        return found


def _detail(row: Row) -> str:
    return f"{row.passes} pass(es) over the row in {row.flow.kernel.name}"


def _sized(module: KernelModule, kernel: Kernel, size: str) -> list[cst.BaseExpression] | None:
    """The expressions to cap: where the row's size is computed, if that sizes nothing else, otherwise what each launch passes.

    None when a launch does not show it, or a grid depends on it.
    """
    launches = module.launches_of(kernel)
    origins = Origins(module)
    if size in kernel.heuristics or any(size in entries(config) for config in kernel.configs):
        return None
    for launch in launches:
        if size not in launch.bound or integer(launch.bound[size].value) is not None:
            return None
        if Grid(module, origins, launch).mentions(size):
            return None
    return _powers(module, kernel, size) or [launch.bound[size].value for launch in launches]


def _largest(module: KernelModule, kernel: Kernel, size: str) -> float:
    """The largest number that the row's size can be, as far as it is written down; infinite where it is computed."""
    origins = Origins(module)
    found = [origin for launch in module.launches_of(kernel) for origin in origins.of(launch, size)]
    return max((o.value if o.kind == "literal" else float("inf") for o in found), default=float("inf"))


def _powers(module: KernelModule, kernel: Kernel, size: str) -> list[cst.BaseExpression] | None:
    """The `next_power_of_2` calls that size the row at every launch; None when something else does, or they size more."""
    origins = Origins(module)
    found: dict[cst.BaseExpression, None] = {}
    for launch in module.launches_of(kernel):
        given = origins.of(launch, size)
        if len(given) != 1 or given[0].kind != "power":
            return None
        found[given[0].node] = None
    for other in module.launches:
        for parameter in other.kernel.constexprs:
            shared = any(origin.node in found for origin in origins.of(other, parameter))
            if shared and (other.kernel is not kernel or parameter != size):
                return None
    return list(found)
