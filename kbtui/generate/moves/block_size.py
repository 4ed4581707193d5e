"""Tiling: the sizes of tiles, doubled and halved together with the grid that covers them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.edits import replacing, to_expression, to_integer, vary_config
from kbtui.generate.tree.flow import KernelFlow, Use, flow_of
from kbtui.generate.tree.grids import Grid
from kbtui.generate.tree.module import Kernel, KernelModule, Launch
from kbtui.generate.tree.nodes import Edit
from kbtui.generate.tree.origins import CDIV, Origin, Origins, entries, integer
from kbtui.generate.tree.spreads import spreads
from kbtui.state.records import NumberChange, Strategy

DOT_LIMITS = (16, 256)
"""`tl.dot` takes no side under 16; above 256 a tile leaves neither registers nor shared memory."""
SINGLE_LIMITS = (16, 65536)
"""A kernel's only tile dimension."""
SHARED_LIMITS = (1, 8192)
"""One of several tile dimensions without `tl.dot`: 1 is a row a program."""


@dataclass(frozen=True, eq=False)
class _Flow:
    """One way in which an origin's value arrives in a launched kernel."""

    launch: Launch
    size: str
    use: Use
    origin: Origin
    limits: tuple[int, int]
    grid: Grid


class BlockSize(Move):
    name = "block_size"
    strategy: Strategy = "tiling"
    kind = "parameter"
    summary = (
        "double or halve the size of a tile where it is written (launch, wrapper, default, constant, autotune list), "
        "with the grid; needs a grid or a loop that follows, and a mask to grow"
    )

    def sites(self, module: KernelModule) -> list[Site]:
        written: dict[cst.BaseExpression, list[_Flow]] = {}
        found: list[Site] = []
        origins = Origins(module)
        for launch in module.launches:
            flow = flow_of(module, launch.kernel)
            grid = Grid(module, origins, launch)
            limits = limits_of(flow)
            for size, use in flow.uses.items():
                if not use.extent:
                    continue
                for origin in origins.of(launch, size):
                    written.setdefault(origin.node, []).append(_Flow(launch, size, use, origin, limits, grid))
        for flows in _linked(list(written.values())):
            found.extend(_written_sites(module, flows))
        for kernel in module.launched:
            found.extend(_config_sites(module, origins, kernel))
            found.extend(_spread_sites(module, origins, kernel))
        return found


def limits_of(flow: KernelFlow) -> tuple[int, int]:
    """The least and the most that a tile's size may become."""
    if flow.has_dot:
        return DOT_LIMITS
    return SINGLE_LIMITS if sum(use.extent for use in flow.uses.values()) == 1 else SHARED_LIMITS


def _sized(value: int) -> Iterator[int]:
    """The sizes one step away from a power of two; none for anything else, which `tl.arange` would refuse."""
    if value > 0 and value & (value - 1) == 0:
        yield value * 2
        if value > 1:
            yield value // 2


def _allows(use: Use, limits: tuple[int, int], old: int, new: int) -> bool:
    """Whether the kernel covers the same elements with another tile: a larger tile may overhang, so it needs a mask."""
    least, most = limits
    within = new >= least if new < old else new <= most and use.masked
    return use.tile and within


# ------------------------------------------------------------ values written in the wrapper


def _linked(groups: list[list[_Flow]]) -> list[list[_Flow]]:
    """The groups of uses, by origin, joined where they need the same literal of a grid.

    `kernel[(n // 64, m // 64)](..., BLOCK_N=64, BLOCK_M=64)`: which 64 belongs to which is not known, so they change together.
    """
    joined: list[tuple[list[_Flow], set[cst.CSTNode]]] = []
    for group in groups:
        flows = list(group)
        needed: set[cst.CSTNode] = {node for flow in group for node, _ in _divisors(flow)}
        for other in [other for other in joined if other[1] & needed]:
            joined.remove(other)
            flows, needed = [*other[0], *flows], other[1] | needed
        joined.append((flows, needed))
    return [flows for flows, _ in joined]


def _divisors(flow: _Flow) -> list[tuple[cst.BaseExpression, int]]:
    """The literals of the grid that have to change with the origin; none where the grid follows or need not."""
    if flow.origin.kind != "literal" or not flow.use.strided or flow.use.sweeps:
        return []
    return [] if flow.grid.follows(flow.size, flow.origin) else flow.grid.divisors(flow.origin.value)


def _written_sites(module: KernelModule, flows: list[_Flow]) -> Iterator[Site]:
    origin = flows[0].origin
    label = ", ".join(dict.fromkeys(flow.size for flow in flows))
    where = flows[0].launch.kernel.name
    if origin.kind == "power":
        edits = _halved_power(module, flows)
        if edits is not None:
            yield Site(f"{label} next_power_of_2 → half", where, module.line(origin.node), edits)
        return
    for new in _sized(origin.value):
        edits = _resized(flows, new)
        if edits is not None:
            title = f"{label} {origin.value} → {new}"
            change = NumberChange(f"{label} of {where}", origin.value, new)
            yield Site(title, where, module.line(origin.node), edits, _detail(edits, flows[0]), change)


def _resized(flows: Iterable[_Flow], new: int) -> dict[cst.CSTNode, Edit] | None:
    """The edits that change a literal and what must change with it; None when one of its uses does not allow it."""
    edits: dict[cst.CSTNode, Edit] = {}
    for flow in flows:
        if not _allows(flow.use, flow.limits, flow.origin.value, new):
            return None
        edits[flow.origin.node] = to_integer(new)
        if not flow.use.strided or flow.use.sweeps or flow.grid.follows(flow.size, flow.origin):
            continue
        divisors = _divisors(flow)
        if not divisors:
            return None
        edits.update({node: to_integer(new + offset) for node, offset in divisors})
    return edits


def _halved_power(module: KernelModule, flows: Iterable[_Flow]) -> dict[cst.CSTNode, Edit] | None:
    """`next_power_of_2(cdiv(n, 2))`: half as much, a power of two again and never 0.

    Never doubled: the tile holds the whole extent already.
    """
    call = None
    for flow in flows:
        follows = not flow.use.strided or flow.use.sweeps or flow.grid.follows(flow.size, flow.origin)
        if not flow.use.tile or flow.use.dot or not follows:
            return None
        call = flow.origin.node
    cdiv = module.names.spell("triton.cdiv")
    if not isinstance(call, cst.Call) or len(call.args) != 1 or cdiv is None:
        return None
    inner = call.args[0].value
    if module.names.calls(inner, *CDIV):
        return None
    return {inner: to_expression(f"{cdiv}({module.code(inner)}, 2)")}


def _detail(edits: dict[cst.CSTNode, Edit], flow: _Flow) -> str:
    together = f" together with {len(edits) - 1} literal(s) of the grid" if len(edits) > 1 else ""
    return f"tile size {flow.size} of {flow.launch.kernel.name}{together}"


# ------------------------------------------------------------ values in an autotune list


def _config_sites(module: KernelModule, origins: Origins, kernel: Kernel) -> Iterator[Site]:
    for number, config in enumerate(kernel.configs, 1):
        for size, written in entries(config).items():
            value = integer(written)
            for new in _tunable(module, origins, kernel, size, value) if value is not None else ():
                edits = vary_config(module, kernel, config, replacing(written, new))
                if edits is not None:
                    title = f"{size} {value} → {new} in config {number} of {len(kernel.configs)}"
                    yield Site(title, kernel.name, module.line(config), edits, _config_detail(kernel))


def _spread_sites(module: KernelModule, origins: Origins, kernel: Kernel) -> Iterator[Site]:
    for spread in spreads(module, kernel):
        for value in spread.values:
            for new in _tunable(module, origins, kernel, spread.key, value):
                edits = spread.with_value(new)
                if edits is not None:
                    title = f"{spread.key} {value} → {new} too"
                    detail = f"one more value in the autotune loops of {kernel.name}"
                    yield Site(title, kernel.name, module.line(spread.listed), edits, detail)


def _tunable(module: KernelModule, origins: Origins, kernel: Kernel, size: str, value: int) -> Iterator[int]:
    """The values one step away that a configuration may give: the kernel allows them, and every grid reads the size."""
    flow = flow_of(module, kernel)
    use = flow.uses.get(size, Use())
    grids = [Grid(module, origins, launch) for launch in module.launches_of(kernel)]
    if use.strided and not use.sweeps and not all(grid.mentions(size) for grid in grids):
        return
    yield from (new for new in _sized(value) if _allows(use, limits_of(flow), value, new))


def _config_detail(kernel: Kernel) -> str:
    if len(kernel.configs) == 1:
        return f"the one autotune configuration of {kernel.name}"
    return f"one more autotune configuration for {kernel.name}; the others stay"
