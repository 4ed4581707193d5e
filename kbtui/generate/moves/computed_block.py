"""Tiling: a tile's size that is computed, or given by the caller, is doubled or halved behind the place that sets it.

One line is added: `BLOCK = min(256, BLOCK * 2)`. Everything below it (grid, shapes, other launches) follows the name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.moves.block_size import limits_of
from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.flow import Use, flow_of
from kbtui.generate.tree.grids import Grid
from kbtui.generate.tree.module import KernelModule, Launch
from kbtui.generate.tree.nodes import Edit, find, walk
from kbtui.generate.tree.origins import Origins, integer
from kbtui.state.records import Strategy


@dataclass(frozen=True, eq=False)
class _Computed:
    """A name of the launching function that gives a tile's size, and what each kernel does with it."""

    function: cst.FunctionDef = field(repr=False)
    name: str
    kernel: str
    uses: tuple[Use, ...]
    limits: tuple[int, int]


class ComputedBlock(Move):
    name = "computed_block"
    strategy: Strategy = "tiling"
    kind = "parameter"
    summary = "a tile's size that is computed or comes from the caller doubled or halved by one line behind it, once"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for computed in _computed(module):
            found.extend(_sites(module, computed))
        return found


def _computed(module: KernelModule) -> Iterator[_Computed]:
    origins = Origins(module)
    seen: set[tuple[cst.CSTNode, str]] = set()
    for launch in module.launches:
        function = launch.scope.holder
        for size, use in flow_of(module, launch.kernel).uses.items():
            given = launch.bound[size].value if size in launch.bound else None
            if not isinstance(function, cst.FunctionDef) or not isinstance(given, cst.Name) or not use.tile:
                continue
            key = (function, given.value)
            if key in seen or launch.scope.owner(given.value) is not launch.scope:
                continue
            seen.add(key)
            if any(origin.kind == "literal" for origin in origins.of(launch, size)):
                continue  # `BlockSize` changes it where it is written
            uses = _uses(module, origins, function, given.value)
            if uses is not None and not _shapes_results(module, function, given.value):
                limits = limits_of(flow_of(module, launch.kernel))
                yield _Computed(function, given.value, launch.kernel.name, tuple(uses), limits)


def _uses(module: KernelModule, origins: Origins, function: cst.FunctionDef, name: str) -> list[Use] | None:
    """What the launches of a function do with the name; None when one takes it as something else than a tile's size."""
    found: list[Use] = []
    for launch in module.launches:
        if launch.scope.holder is not function:
            continue
        grid = Grid(module, origins, launch)
        for parameter, argument in launch.bound.items():
            if not any(n.value == name for n in find(argument.value, cst.Name)):
                continue
            use = flow_of(module, launch.kernel).uses.get(parameter, Use())
            computed_option = parameter in ("num_warps", "num_stages")
            if not computed_option and not (use.tile and isinstance(argument.value, cst.Name)):
                return None
            if use.strided and not use.sweeps and not (grid.mentions(parameter) or _reads(grid, launch, name)):
                return None
            if not computed_option:
                found.append(use)
    return found


def _reads(grid: Grid, launch: Launch, name: str) -> bool:
    return any(
        isinstance(node, cst.Name) and node.value == name and scope.owner(name) is launch.scope
        for node, scope in grid.nodes()
    )


def _shapes_results(module: KernelModule, function: cst.FunctionDef, name: str) -> bool:
    """Whether the size of a tensor, or another function, is given the name: then the caller may see the change."""
    calls = {launch.call for launch in module.launches}
    for call in find(function.body, cst.Call):
        dotted = module.names.qualified(call.func) or ""
        if call in calls or dotted.startswith(("triton.", "min", "max", "int", "print")):
            continue
        if any(isinstance(n, cst.Name) and n.value == name for a in call.args for n in walk(a.value)):
            return True
    return False


def _sites(module: KernelModule, computed: _Computed) -> Iterator[Site]:
    body, name = computed.function.body, computed.name
    if not isinstance(body, cst.IndentedBlock):
        return
    place = _behind(body, name)
    if place is None:
        return
    least, most = computed.limits
    wider, narrower = f"{name} = min({most}, {name} * 2)", f"{name} = max({least}, {name} // 2)"
    lines = [("doubled", wider)] if all(use.masked for use in computed.uses) else []
    for label, code in [*lines, ("halved", narrower)]:
        edits: dict[cst.CSTNode, Edit] = {body: _with_line(place, code)}
        detail = f"tile size of {computed.kernel}, in {computed.function.name.value}"
        yield Site(f"{name} {label}", computed.kernel, module.line(body.body[max(place - 1, 0)]), edits, detail)


def _behind(body: cst.IndentedBlock, name: str) -> int | None:
    """How many statements of the body stand before the new line: up to the last that binds the name, or a docstring.

    None when one of them is such a line already, or binds the name in a loop.
    """
    place = 1 if _is_text(body.body[0]) else 0
    for index, statement in enumerate(body.body):
        for node in walk(statement):
            target = node.targets[0].target if isinstance(node, cst.Assign) else None
            bound = {n.value for n in find(target, cst.Name)} if target is not None else set()
            if isinstance(node, cst.AugAssign | cst.AnnAssign | cst.NamedExpr):
                bound = {n.value for n in find(node.target, cst.Name)}
            if name not in bound:
                continue
            if isinstance(statement, cst.For | cst.While) or (
                isinstance(node, cst.Assign) and _is_step(node.value, name)
            ):
                return None
            place = index + 1
    return place


def _is_step(value: cst.BaseExpression, name: str) -> bool:
    """Whether it is `min(number, name * number)` or `max(number, name // number)`."""
    if not isinstance(value, cst.Call) or len(value.args) != 2 or integer(value.args[0].value) is None:
        return False
    second = value.args[1].value
    return isinstance(second, cst.BinaryOperation) and isinstance(second.left, cst.Name) and second.left.value == name


def _is_text(statement: cst.BaseStatement | cst.BaseSmallStatement) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def _with_line(place: int, code: str) -> Edit:
    line = cst.parse_statement(code)

    def edit(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.IndentedBlock)
        return node.with_changes(body=[*node.body[:place], line, *node.body[place:]])

    return edit
