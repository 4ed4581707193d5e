"""Tiling and reordering: one program does the work of several, in a loop over what the grid used to count.

The kernel gets the old grid's size as `tiles` and walks `program_id, program_id + num_programs, ...`, so it is right with any
grid; then the grid alone says how many tiles a program takes. A quarter of the programs (tiling: more rows for each)
and a fixed number of programs (reordering: a persistent kernel, whose programs start once) differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.axes import axis_of, program_calls
from kbtui.generate.tree.edits import appended, call_edit, to_integer, with_keyword
from kbtui.generate.tree.flow import TL, KernelFlow, flow_of, reach
from kbtui.generate.tree.grids import grid_tuple
from kbtui.generate.tree.module import Kernel, KernelModule, Launch
from kbtui.generate.tree.nodes import Edit, find, walk, walk_within
from kbtui.generate.tree.origins import CDIV, integer
from kbtui.generate.tree.scopes import Scope
from kbtui.state.records import Strategy

FIRST_TILES = (2, 4)
"""Tiles a program, offered at first; `_Share` goes on from there."""
LEAST_TILES, MOST_TILES = 2, 64
FIRST_PROGRAMS = 1024
"""Programs of a persistent grid, offered at first: several on each of an H100's 132 processors."""
LEAST_PROGRAMS, MOST_PROGRAMS = 64, 8192


class TilesPerProgram(Move):
    name = "tiles_per_program"
    strategy: Strategy = "tiling"
    summary = "each program takes several rows or blocks in a loop; or, where it does, twice or half as many"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        cdiv = module.names.spell("triton.cdiv")
        for kernel in module.launched:
            for share in _shares(module, kernel, lambda call: module.names.calls(call, *CDIV)):
                found.extend(_tuned(module, kernel, share, "tiles a program", LEAST_TILES, MOST_TILES))
            for count in FIRST_TILES if cdiv is not None else ():
                edits = _looped(module, kernel, lambda grid, count=count: f"{cdiv}({grid}, {count})")  # type: ignore[misc]
                if edits is not None:
                    title = f"{count} tiles a program"
                    found.append(Site(title, kernel.name, module.line(kernel.node), edits, f"a loop in {kernel.name}"))
        return found


class Persistent(Move):
    name = "persistent"
    strategy: Strategy = "reordering"
    summary = "a fixed number of programs that loop over all tiles; or, where it is fixed, twice or half as many"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for kernel in module.launched:
            for share in _shares(module, kernel, lambda call: module.names.calls(call, "min")):
                found.extend(_tuned(module, kernel, share, "programs at most", LEAST_PROGRAMS, MOST_PROGRAMS))
            edits = _looped(module, kernel, lambda grid: f"min({grid}, {FIRST_PROGRAMS})")
            if edits is not None:
                title = f"{FIRST_PROGRAMS} programs at most"
                found.append(Site(title, kernel.name, module.line(kernel.node), edits, f"a loop in {kernel.name}"))
        return found


# ------------------------------------------------------------ kernels that loop already


def _shares(module: KernelModule, kernel: Kernel, wanted: Callable[[cst.CSTNode], bool]) -> list[cst.Integer]:
    """The literals by which the grids of a kernel that is right with any grid are divided or bounded."""
    flow = flow_of(module, kernel)
    calls = program_calls(flow, list(flow.nodes(flow.body)), "program_id")
    strides = any(
        module.names.calls(node, f"{TL}.num_programs") for header in flow.headers for node in reach(header, flow.scope)
    )
    if not strides or {axis_of(call) for call in calls} != {0}:
        return []
    found: list[cst.Integer] = []
    for launch in module.launches_of(kernel):
        grid = grid_tuple(module, launch)
        count = grid.elements[0].value if grid is not None and len(grid.elements) == 1 else None
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


# ------------------------------------------------------------ kernels that get the loop


@dataclass(frozen=True, eq=False)
class _Loopable:
    """A kernel whose body, from the statement `first` on, can run once for each of several tiles."""

    flow: KernelFlow
    first: int
    index: cst.Call


def _looped(module: KernelModule, kernel: Kernel, resize: Callable[[str], str]) -> dict[cst.CSTNode, Edit] | None:
    """The edits that give the kernel its loop and `resize` its grids; None when one of the preconditions fails."""
    flow = flow_of(module, kernel)
    loopable = _loopable(flow)
    if loopable is None:
        return None
    tiles, tile, step = _fresh_names(flow, "tiles", "tile", "step")
    edits: dict[cst.CSTNode, Edit] = {}
    for launch in module.launches_of(kernel):
        grid = grid_tuple(module, launch)
        count = grid.elements[0].value if grid is not None and len(grid.elements) == 1 else None
        if count is None or not _is_plain(module, launch, count):
            return None
        code = _at_launch(module, launch, count)
        if code is None or not _keeps_positions(kernel, launch):
            return None
        edits[count] = lambda node, module=module: cst.parse_expression(resize(module.code(node)))  # type: ignore[misc]
        edits[launch.call] = call_edit(with_keyword(tiles, code))
    names = module.names
    index, count_code = names.spell(f"{TL}.program_id"), names.spell(f"{TL}.num_programs")
    cdiv = names.spell(f"{TL}.cdiv")
    assert index is not None
    if count_code is None or cdiv is None or not edits:
        return None
    header = f"for {step} in range({cdiv}({tiles} - {index}(0), {count_code}(0))):\n    pass\n"
    assign = f"{tile} = {index}(0) + {step} * {count_code}(0)"
    edits[loopable.index] = lambda _node: cst.Name(tile)
    edits[kernel.node.params] = _with_parameter(tiles)
    edits[kernel.node.body] = _with_loop(loopable.first, header, assign)
    return edits


def _loopable(flow: KernelFlow) -> _Loopable | None:
    """One `program_id(0)`, read by a plain statement of the body; no early return; nothing that one tile leaves to the next."""
    nodes = list(flow.nodes(flow.body))
    indices = program_calls(flow, nodes, "program_id")
    counts = program_calls(flow, nodes, "num_programs")
    if (
        len(indices) != 1
        or counts
        or axis_of(indices[0]) != 0
        or flow.kernel.tuned
        or not isinstance(flow.body, cst.IndentedBlock)
    ):
        return None
    if any(isinstance(n, cst.Return | cst.FunctionDef | cst.Lambda) for n in walk_within(flow.body)):
        return None
    for position, statement in enumerate(flow.body.body):
        if any(node is indices[0] for node in walk(statement)):
            if not isinstance(statement, cst.SimpleStatementLine) or _carries(flow, position):
                return None
            return _Loopable(flow, position, indices[0])
    return None


def _carries(flow: KernelFlow, first: int) -> bool:
    """Whether the statements from `first` on change a name that was set before them: the next tile would see the change."""
    block = flow.body.body
    moved = {name for s in block[first:] for name in _bound(s)}
    kept = {name for s in block[:first] for name in _bound(s)} | set(flow.kernel.parameters)
    return bool(moved & kept)


def _bound(statement: cst.CSTNode) -> set[str]:
    assert isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return set(Scope(cst.Module(body=[statement])).bindings)


def _is_plain(module: KernelModule, launch: Launch, count: cst.BaseExpression) -> bool:
    """Whether the grid's size may be written twice: it computes, and calls nothing but shapes and divisions.

    A block written in it as a number is refused: a later change of the block would have to find it in both places.
    """
    for node in walk(count):
        if isinstance(node, cst.Integer) and node.evaluated_value > 2:
            return False
        if isinstance(node, cst.Call):
            method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
            if not module.names.calls(node, *CDIV, "min", "max", "len") and method not in ("numel", "size", "dim"):
                return False
        if isinstance(node, cst.NamedExpr | cst.Await | cst.Yield | cst.StarredElement):
            return False
    return not launch.open


def _at_launch(module: KernelModule, launch: Launch, count: cst.BaseExpression) -> str | None:
    """The grid's size as code at the launch: `meta["P"]` becomes what the launch passes for P."""
    holder = module.scope_of(count).holder
    if not isinstance(holder, cst.Lambda):
        return module.code(count)
    code: cst.BaseExpression = count
    metas = {p.name.value for p in holder.params.params}
    for node in list(find(count, cst.Subscript)):
        if isinstance(node.value, cst.Name) and node.value.value in metas:
            key = node.slice[0].slice.value if isinstance(node.slice[0].slice, cst.Index) else None
            name = key.evaluated_value if isinstance(key, cst.SimpleString) else None
            if not isinstance(name, str) or name not in launch.bound:
                return None
            given = launch.bound[name].value
            if integer(given) is not None:
                return None
            replaced = given if node is code else code.deep_replace(node, given)
            assert isinstance(replaced, cst.BaseExpression)
            code = replaced
    if any(isinstance(n, cst.Name) and n.value in metas for n in walk(code)):
        return None
    return module.code(code)


def _keeps_positions(kernel: Kernel, launch: Launch) -> bool:
    """Whether a parameter before the first with a default moves no positional argument."""
    parameters = kernel.node.params
    if parameters.kwonly_params or parameters.star_kwarg or parameters.posonly_params:
        return False
    if isinstance(parameters.star_arg, cst.Param):
        return False
    required = sum(p.default is None for p in parameters.params)
    return sum(a.keyword is None for a in launch.call.args) <= required


def _with_parameter(name: str) -> Edit:
    def edit(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.Parameters)
        required = [p for p in node.params if p.default is None]
        defaulted = node.params[len(required) :]
        if not defaulted:
            return node.with_changes(params=appended(required, cst.Param(cst.Name(name))))
        comma = required[-1].comma if required else cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return node.with_changes(params=[*required, cst.Param(cst.Name(name), comma=comma), *defaulted])

    return edit


def _with_loop(first: int, header: str, assign: str) -> Edit:
    def edit(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.IndentedBlock)
        loop = cst.parse_statement(header)
        assert isinstance(loop, cst.For)
        body = cst.IndentedBlock(body=[cst.parse_statement(assign), *node.body[first:]], footer=node.footer)
        return node.with_changes(body=[*node.body[:first], loop.with_changes(body=body)], footer=[])

    return edit


def _fresh_names(flow: KernelFlow, *wanted: str) -> list[str]:
    """The wanted names, with underscores behind them as far as the kernel has them already."""
    taken = {n.value for n in find(flow.kernel.node, cst.Name)}
    fresh = []
    for name in wanted:
        while name in taken:
            name += "_"
        fresh.append(name)
    return fresh
