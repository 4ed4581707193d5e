"""Tiling, pipeline and reordering: one program does the work of several, in a loop over what the grid used to count.

The loop is right with any grid, so the grid alone says how many tiles a program takes. A quarter of the programs (tiling:
more rows for each), the loads of the next tile in flight (pipeline) and a fixed number of programs (reordering: a
persistent kernel, whose programs start once) differ in little else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.axes import axis_of, program_calls
from kbtui.generate.tree.edits import to_integer
from kbtui.generate.tree.flow import TL, flow_of, reach
from kbtui.generate.tree.grids import grid_counts
from kbtui.generate.tree.module import Kernel, KernelModule
from kbtui.generate.tree.nodes import Edit
from kbtui.generate.tree.origins import CDIV
from kbtui.generate.tree.programs import Loopable, kernel_loopables, looped
from kbtui.state.records import Strategy

FIRST_TILES = (2, 4)
"""Tiles a program, offered at first; later ones are twice or half as many."""
LEAST_TILES, MOST_TILES = 2, 64
PIPELINED_TILES = 4
"""Tiles a program of the pipelined loop: fewer leave nothing to overlap."""
PIPELINE_STAGES = (2, 3)
FIRST_PROGRAMS = 1024
"""Programs of a persistent grid, offered at first: several on each of an H100's 132 processors."""
LEAST_PROGRAMS, MOST_PROGRAMS = 64, 8192


class TilesPerProgram(Move):
    name = "tiles_per_program"
    strategy: Strategy = "tiling"
    kind = "structural"
    summary = "each program takes several rows or blocks in a loop; or, where it does, twice or half as many"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        cdiv = module.names.spell("triton.cdiv")
        for kernel in module.launched:
            for share in _shares(module, kernel, lambda call: module.names.calls(call, *CDIV)):
                found.extend(_tuned(module, kernel, share, "tiles a program", LEAST_TILES, MOST_TILES))
            every = kernel_loopables(module, kernel) if cdiv is not None else []
            for loopable in every:
                for count in FIRST_TILES:
                    edits = looped(loopable, lambda grid, count=count: f"{cdiv}({grid}, {count})")  # type: ignore[misc]
                    if edits is not None:
                        title = f"{count} tiles a program{_along(loopable, every)}"
                        detail = f"a loop in {kernel.name}"
                        found.append(Site(title, kernel.name, module.line(kernel.node), edits, detail))
        return found


class PipelinedTiles(Move):
    name = "pipelined_tiles"
    strategy: Strategy = "pipeline"
    kind = "structural"
    summary = "each program takes four tiles in a tl.range with stages: the next tile loads while this one is computed"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        cdiv = module.names.spell("triton.cdiv")
        for kernel in module.launched if cdiv is not None else ():
            every = kernel_loopables(module, kernel)
            for loopable in every:
                if not _loads_without_loops(loopable):
                    continue
                for stages in PIPELINE_STAGES:
                    resize = lambda grid: f"{cdiv}({grid}, {PIPELINED_TILES})"  # noqa: E731
                    edits = looped(loopable, resize, f", num_stages={stages}")
                    if edits is not None:
                        title = f"{PIPELINED_TILES} tiles in {stages} stages{_along(loopable, every)}"
                        detail = f"a pipelined loop in {kernel.name}"
                        found.append(Site(title, kernel.name, module.line(kernel.node), edits, detail))
        return found


class Persistent(Move):
    name = "persistent"
    strategy: Strategy = "reordering"
    kind = "structural"
    summary = "a fixed number of programs that loop over all tiles; or, where it is fixed, twice or half as many"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for kernel in module.launched:
            for share in _shares(module, kernel, lambda call: module.names.calls(call, "min")):
                found.extend(_tuned(module, kernel, share, "programs at most", LEAST_PROGRAMS, MOST_PROGRAMS))
            if not _one_dimension(module, kernel):
                continue
            for loopable in kernel_loopables(module, kernel):
                edits = looped(loopable, lambda grid: f"min({grid}, {FIRST_PROGRAMS})")
                if edits is not None:
                    title = f"{FIRST_PROGRAMS} programs at most"
                    detail = f"a loop in {kernel.name}"
                    found.append(Site(title, kernel.name, module.line(kernel.node), edits, detail))
        return found


def _along(loopable: Loopable, every: list[Loopable]) -> str:
    return f" along axis {loopable.axis}" if len(every) > 1 else ""


def _loads_without_loops(loopable: Loopable) -> bool:
    """Whether each tile loads, and has no loop of its own: Triton pipelines innermost loops only."""
    flow = loopable.flow
    nodes = [node for statement in loopable.body for node in flow.nodes(statement)]
    loads = any(flow.module.names.calls(node, f"{TL}.load") for node in nodes)
    return loads and not any(isinstance(node, cst.For | cst.While) for node in nodes)


def _one_dimension(module: KernelModule, kernel: Kernel) -> bool:
    """Whether every grid is one number: another dimension would multiply the fixed number of programs."""
    grids = [grid_counts(module, launch) for launch in module.launches_of(kernel)]
    return all(grid is not None and len(grid) == 1 for grid in grids)


# ------------------------------------------------------------ kernels that loop already


def _shares(module: KernelModule, kernel: Kernel, wanted: Callable[[cst.CSTNode], bool]) -> list[cst.Integer]:
    """The literals by which the grids of a kernel that is right with any grid are divided or bounded."""
    flow = flow_of(module, kernel)
    found: list[cst.Integer] = []
    for axis in {axis_of(call) for call in program_calls(flow, list(flow.nodes(flow.body)), "program_id")}:
        steps = any(
            module.names.calls(node, f"{TL}.num_programs") and isinstance(node, cst.Call) and axis_of(node) == axis
            for header in flow.headers
            for node in reach(header, flow.scope)
        )
        if axis is None or not steps:
            continue
        for launch in module.launches_of(kernel):
            grid = grid_counts(module, launch)
            count = grid[axis] if grid is not None and len(grid) > axis else None
            if isinstance(count, cst.Call) and wanted(count) and len(count.args) == 2:
                literal = count.args[1].value
                if isinstance(literal, cst.Integer) and literal not in found:
                    found.append(literal)
    return found


def _tuned(
    module: KernelModule, kernel: Kernel, literal: cst.Integer, label: str, least: int, most: int
) -> Iterator[Site]:
    old = literal.evaluated_value
    for new in (old * 2, old // 2):
        if least <= new <= most:
            edits: dict[cst.CSTNode, Edit] = {literal: to_integer(new)}
            yield Site(f"{label} {old} → {new}", kernel.name, module.line(literal), edits, f"grid of {kernel.name}")
