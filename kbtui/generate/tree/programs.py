"""Kernels whose programs may do the work of several: a loop over what one dimension of the grid counted.

The kernel gets the old extent of that dimension as a parameter and walks `program_id, program_id + num_programs, ...`, so
it is right with any number of programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.tree.axes import axis_of, program_calls
from kbtui.generate.tree.edits import appended, call_edit, with_keyword
from kbtui.generate.tree.flow import TL, KernelFlow, flow_of
from kbtui.generate.tree.grids import grid_counts
from kbtui.generate.tree.module import Kernel, KernelModule, Launch
from kbtui.generate.tree.nodes import Edit, find, is_bare_return, substitute, walk, walk_within
from kbtui.generate.tree.origins import CDIV, integer
from kbtui.generate.tree.scopes import Scope

_WAITS = tuple(f"{TL}.{name}" for name in ("atomic_cas", "atomic_xchg"))
"""With these one program may wait for another; in a loop it could wait for itself."""


@dataclass(frozen=True, eq=False)
class Loopable:
    """A kernel whose body, from the statement `first` on, can run once for each of several tiles along `axis`."""

    flow: KernelFlow = field(repr=False)
    axis: int
    first: int
    index: cst.Call = field(repr=False)
    carried: tuple[str, ...]
    """Names set before `first` and changed after it (`x_ptr += row * stride`): every tile starts with a copy."""

    @property
    def body(self) -> list[cst.BaseStatement]:
        """What runs for each tile."""
        return without_end(self.flow)[self.first :]


def without_end(flow: KernelFlow) -> list[cst.BaseStatement]:
    """The statements of the body but for a `return` at its end."""
    statements = [s for s in flow.body.body if isinstance(s, cst.BaseStatement)]
    return statements[:-1] if statements and is_bare_return(statements[-1]) else statements


def loopables(flow: KernelFlow) -> list[Loopable]:
    """One for each axis with a single `program_id`, read by a plain statement of the body.

    None where the body returns early, waits for other programs, or is tuned: its grid is then known to the tuner only.
    """
    if flow.kernel.tuned or not isinstance(flow.body, cst.IndentedBlock):
        return []
    inside = [n for statement in without_end(flow) for n in (statement, *walk_within(statement))]
    if any(isinstance(n, cst.Return | cst.FunctionDef | cst.Lambda) for n in inside):
        return []
    nodes = list(flow.nodes(flow.body))
    if any(isinstance(n, cst.While) or flow.module.names.calls(n, *_WAITS) for n in nodes):
        return []
    indices = program_calls(flow, nodes, "program_id")
    counts = {axis_of(call) for call in program_calls(flow, nodes, "num_programs")}
    axes = [axis_of(call) for call in indices]
    if None in axes or None in counts:
        return []
    found = []
    for call, axis in zip(indices, axes, strict=True):
        if axis is None or axes.count(axis) != 1 or axis in counts:
            continue
        loopable = _from(flow, call, axis)
        if loopable is not None:
            found.append(loopable)
    return found


def _from(flow: KernelFlow, index: cst.Call, axis: int) -> Loopable | None:
    for position, statement in enumerate(flow.body.body):
        if any(node is index for node in walk(statement)):
            carried = _carried(flow, position)
            if not isinstance(statement, cst.SimpleStatementLine) or set(carried) & set(flow.kernel.constexprs):
                return None
            return Loopable(flow, axis, position, index, carried)
    return None


def _carried(flow: KernelFlow, first: int) -> tuple[str, ...]:
    """The names that the statements from `first` on change although they were set before them."""
    block = flow.body.body
    moved = {name for s in block[first:] for name in _bound(s)}
    kept = {name for s in block[:first] for name in _bound(s)} | set(flow.kernel.parameters)
    return tuple(sorted(moved & kept))


def _bound(statement: cst.CSTNode) -> set[str]:
    assert isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    return set(Scope(cst.Module(body=[statement])).bindings)


# ------------------------------------------------------------ writing the loop


def looped(loopable: Loopable, resize: Callable[[str], str], options: str = "") -> dict[cst.CSTNode, Edit] | None:
    """The edits that give the kernel its loop and `resize` that count of its grids; None when a launch does not allow it.

    `options` are keywords of `tl.range`, such as ", num_stages=2"; without them the loop is a plain range.
    """
    flow, axis = loopable.flow, loopable.axis
    module, kernel = flow.module, flow.kernel
    tiles, tile, step = fresh_names(flow, "tiles", "tile", "step")
    edits: dict[cst.CSTNode, Edit] = {}
    for launch in module.launches_of(kernel):
        counts = grid_counts(module, launch)
        count = counts[axis] if counts is not None and len(counts) > axis else None
        if count is None or not _is_plain(module, launch, count):
            return None
        code = _at_launch(module, launch, count)
        if code is None or not _keeps_positions(kernel, launch):
            return None
        edits[count] = lambda node, module=module: cst.parse_expression(resize(module.code(node)))  # type: ignore[misc]
        edits[launch.call] = call_edit(with_keyword(tiles, code))
    names = module.names
    index, programs = names.spell(f"{TL}.program_id"), names.spell(f"{TL}.num_programs")
    cdiv, ranges = names.spell(f"{TL}.cdiv"), names.spell(f"{TL}.range") if options else "range"
    if index is None or programs is None or cdiv is None or ranges is None or not edits:
        return None
    header = f"for {step} in {ranges}({cdiv}({tiles} - {index}({axis}), {programs}({axis})){options}):\n    pass\n"
    start = [f"{tile} = {index}({axis}) + {step} * {programs}({axis})"]
    copies = dict(zip(loopable.carried, fresh_names(flow, *(f"{n}_tile" for n in loopable.carried)), strict=True))
    start.extend(f"{copy} = {name}" for name, copy in copies.items())
    inner: dict[cst.CSTNode, Edit] = {loopable.index: lambda _node: cst.Name(tile)}
    inner.update(_renamed(module, loopable.body, copies))
    edits[kernel.node.params] = _with_parameter(tiles)
    edits[kernel.node.body] = _with_loop(loopable, header, start, inner)
    return edits


def _renamed(module: KernelModule, body: list[cst.BaseStatement], copies: dict[str, str]) -> dict[cst.CSTNode, Edit]:
    found: dict[cst.CSTNode, Edit] = {}
    for statement in body:
        for node in find(statement, cst.Name):
            above = module.above[node]
            label = (isinstance(above, cst.Arg) and above.keyword is node) or (
                isinstance(above, cst.Attribute) and above.attr is node
            )
            if node.value in copies and not label:
                found[node] = lambda _node, new=copies[node.value]: _node.with_changes(value=new)  # type: ignore[misc]
    return found


def _with_loop(loopable: Loopable, header: str, start: Iterable[str], inner: dict[cst.CSTNode, Edit]) -> Edit:
    above = loopable.flow.module.above

    def edit(node: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(node, cst.IndentedBlock)
        loop = cst.parse_statement(header)
        assert isinstance(loop, cst.For)
        made = [*map(cst.parse_statement, start), *(substitute(s, inner, above) for s in loopable.body)]
        body = cst.IndentedBlock(body=made, footer=node.footer)
        return node.with_changes(body=[*node.body[: loopable.first], loop.with_changes(body=body)], footer=[])

    return edit


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


def fresh_names(flow: KernelFlow, *wanted: str) -> list[str]:
    """The wanted names, with underscores behind them as far as the kernel has them already."""
    taken = {n.value for n in find(flow.kernel.node, cst.Name)}
    fresh = []
    for name in wanted:
        while name in taken:
            name += "_"
        taken.add(name)
        fresh.append(name)
    return fresh


# ------------------------------------------------------------ the grid at the launch


def _is_plain(module: KernelModule, launch: Launch, count: cst.BaseExpression) -> bool:
    """Whether the grid's size may be written twice: it computes, and calls nothing but shapes and divisions.

    A block written in it as a number is refused: a later change of the block would have to find it in both places.
    """
    for node in walk(count):
        if isinstance(node, cst.Integer) and node.evaluated_value > 3:
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
        return None if _changes_before(module, launch, count) else module.code(count)
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


def _changes_before(module: KernelModule, launch: Launch, count: cst.BaseExpression) -> bool:
    """Whether a name in the grid's size is bound again between the grid and the launch, by the lines they stand on."""
    holder = launch.scope.holder
    names = {n.value for n in find(count, cst.Name)}
    between = range(module.line(count) + 1, module.line(launch.call) + 1)
    if not isinstance(holder, cst.FunctionDef):
        return False
    return any(
        isinstance(node, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.For | cst.With)
        and module.line(node) in between
        and bool(names & _set_by(node))
        for node in walk(holder.body)
    )


def _set_by(node: cst.CSTNode) -> set[str]:
    wrapped = node if isinstance(node, cst.BaseCompoundStatement) else cst.SimpleStatementLine(body=[node])  # type: ignore[list-item]
    return _bound(wrapped)


def _keeps_positions(kernel: Kernel, launch: Launch) -> bool:
    """Whether a parameter before the first with a default moves no positional argument."""
    parameters = kernel.node.params
    if parameters.kwonly_params or parameters.star_kwarg or parameters.posonly_params:
        return False
    if isinstance(parameters.star_arg, cst.Param):
        return False
    required = sum(p.default is None for p in parameters.params)
    return sum(a.keyword is None for a in launch.call.args) <= required


def kernel_loopables(module: KernelModule, kernel: Kernel) -> list[Loopable]:
    """`loopables` of a launched kernel, computed once a module."""
    return module.memo(("loopables", kernel), lambda: loopables(flow_of(module, kernel)))
