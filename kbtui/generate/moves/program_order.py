"""Reordering: which programs run next to each other, and so find each other's tiles in L2."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.axes import axis_of, group_calls, program_calls, shares_tiles, two_axes
from kbtui.generate.tree.edits import replacing, to_integer, vary_config
from kbtui.generate.tree.flow import TL, KernelFlow, flow_of
from kbtui.generate.tree.grids import grid_tuple
from kbtui.generate.tree.module import Kernel, KernelModule
from kbtui.generate.tree.nodes import Edit, Edits, find, walk
from kbtui.generate.tree.origins import Origins, entries, integer
from kbtui.state.records import Strategy

GROUP_SIZES = (4, 8)
"""Group sizes offered at first; `GroupSize` goes on from there."""
LEAST_GROUP, MOST_GROUP = 1, 32


class GroupedOrder(Move):
    name = "grouped_order"
    strategy: Strategy = "reordering"
    kind = "structural"
    summary = "programs of a two-dimensional tiling go in groups of rows (tl.swizzle2d), where programs share tiles"

    def sites(self, module: KernelModule) -> list[Site]:
        found = []
        swizzle = module.names.spell(f"{TL}.swizzle2d")
        for kernel in module.launched:
            flow = flow_of(module, kernel)
            axes = two_axes(flow) if swizzle is not None else None
            if axes is None or not shares_tiles(flow, axes):
                continue
            for size in GROUP_SIZES:
                names = f"{axes.slow}, {axes.fast}"
                code = f"{names} = {swizzle}({names}, {axes.slow_count}, {axes.fast_count}, {size})"
                title = f"programs in groups of {size}"
                detail = f"{axes.slow} and {axes.fast} of {kernel.name}, {size} tiles of {axes.slow} a group"
                found.append(
                    Site(title, kernel.name, module.line(axes.after), {axes.after: _followed_by(code)}, detail)
                )
        return found


def _followed_by(code: str) -> Edit:
    line = cst.parse_statement(code)
    return lambda node: [node, line]


class GroupSize(Move):
    name = "group_size"
    strategy: Strategy = "reordering"
    kind = "parameter"
    summary = "double or halve how many rows of tiles a group of programs takes (swizzle2d, GROUP parameters)"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        origins = Origins(module)
        for kernel in module.launched:
            flow = flow_of(module, kernel)
            for call in group_calls(flow):
                size = call.args[4].value if len(call.args) == 5 else None
                if isinstance(size, cst.Integer):
                    found.extend(_literal_sites(module, kernel, "group size", size))
            for name in _group_parameters(flow):
                for launch in module.launches_of(kernel):
                    for origin in origins.of(launch, name):
                        if isinstance(origin.node, cst.Integer):
                            found.extend(_literal_sites(module, kernel, name, origin.node))
                found.extend(_config_sites(module, kernel, name))
        return found


def _steps(value: int) -> Iterator[int]:
    yield from (new for new in (value * 2, value // 2) if LEAST_GROUP <= new <= MOST_GROUP)


def _literal_sites(module: KernelModule, kernel: Kernel, label: str, node: cst.Integer) -> Iterator[Site]:
    for new in _steps(node.evaluated_value):
        title = f"{label} {node.evaluated_value} → {new}"
        yield Site(title, kernel.name, module.line(node), {node: to_integer(new)}, f"order of {kernel.name}'s programs")


def _config_sites(module: KernelModule, kernel: Kernel, name: str) -> Iterator[Site]:
    for number, config in enumerate(kernel.configs, 1):
        written = entries(config).get(name)
        if not isinstance(written, cst.Integer):
            continue
        for new in _steps(written.evaluated_value):
            edits = vary_config(module, kernel, config, replacing(written, new))
            if edits is not None:
                title = f"{name} {written.evaluated_value} → {new} in config {number} of {len(kernel.configs)}"
                yield Site(title, kernel.name, module.line(config), edits, f"order of {kernel.name}'s programs")


def _group_parameters(flow: KernelFlow) -> list[str]:
    """Sizes that are no tile's and cap a number of tiles: `min(tiles - first, GROUP)`, as grouped orders are written."""
    capping = set()
    for call in find(flow.body, cst.Call):
        if flow.module.names.calls(call, "min", f"{TL}.minimum"):
            capping |= {a.value.value for a in call.args if isinstance(a.value, cst.Name)}
    return [
        size for size, use in flow.uses.items() if size in capping and not use.extent and size in flow.kernel.constexprs
    ]


class SwapAxes(Move):
    name = "swap_axes"
    strategy: Strategy = "reordering"
    kind = "structural"
    summary = "the two first dimensions of the grid change places: neighbouring programs differ in the other index"

    def sites(self, module: KernelModule) -> list[Site]:
        found = []
        for kernel in module.launched:
            edits = self._edits(module, kernel)
            if edits is not None:
                detail = f"grid and program ids of {kernel.name}"
                found.append(Site("swap grid axes 0 and 1", kernel.name, module.line(kernel.node), edits, detail))
        return found

    def _edits(self, module: KernelModule, kernel: Kernel) -> Edits | None:
        flow = flow_of(module, kernel)
        own, all_nodes = list(walk(flow.body)), list(flow.nodes(flow.body))
        calls = [c for f in ("program_id", "num_programs") for c in program_calls(flow, own, f)]
        everywhere = [c for f in ("program_id", "num_programs") for c in program_calls(flow, all_nodes, f)]
        axes = [axis_of(call) for call in calls]
        if len(everywhere) != len(calls) or None in axes or not {0, 1} <= set(axes):
            return None
        edits: dict[cst.CSTNode, Edit] = {}
        for call in calls:
            axis = axis_of(call)
            if axis in (0, 1):
                edits[call.args[0].value] = to_integer(1 - axis)
        for launch in module.launches_of(kernel):
            grid = grid_tuple(module, launch)
            if grid is None or not _two_counts(grid):
                return None
            first, second = grid.elements[0].value, grid.elements[1].value
            edits[first] = lambda _node, new=second: new  # type: ignore[misc]
            edits[second] = lambda _node, new=first: new  # type: ignore[misc]
        return edits


def _two_counts(grid: cst.Tuple) -> bool:
    """Whether the two first elements are plain expressions, not both of them literals."""
    two = grid.elements[:2]
    plain = len(two) == 2 and not any(isinstance(e, cst.StarredElement) for e in two)
    return plain and not all(integer(e.value) is not None for e in two)
