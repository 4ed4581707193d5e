"""Kernels whose programs count tiles along two dimensions, and in which order the programs go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.tree.access import accesses, tile_axes
from kbtui.generate.tree.flow import TL, KernelFlow
from kbtui.generate.tree.nodes import find, walk
from kbtui.generate.tree.origins import integer


@dataclass(frozen=True, eq=False)
class TwoAxes:
    """Neighbouring programs differ in `fast` first. `slow_count` and `fast_count` are code for the number of tiles."""

    slow: str
    fast: str
    slow_count: str
    fast_count: str
    after: cst.BaseStatement = field(repr=False)
    """The statement behind which both names are set and neither has been used."""


def two_axes(flow: KernelFlow) -> TwoAxes | None:
    """The kernel's two tile counters, if they come straight from the program's index and are not reordered yet.

    Either `program_id(0)` and `program_id(1)`, or the remainder and quotient of `program_id(0)` by one number.
    """
    assigned = _assigned_once(flow)
    counters = tile_axes(flow) & assigned.keys()
    found = _from_grid(flow, assigned, counters) or _from_division(flow, assigned, counters)
    if found is None:
        return None
    slow, fast, slow_count, fast_count = found
    statements = list(flow.body.body)
    places = sorted(statements.index(assigned[name][0]) for name in (slow, fast))
    between = statements[places[0] + 1 : places[1]]
    used = {n.value for statement in between for n in walk(statement) if isinstance(n, cst.Name)}
    after = statements[places[1]]
    if used & {slow, fast} or not isinstance(after, cst.SimpleStatementLine):
        return None
    return TwoAxes(slow, fast, slow_count, fast_count, after)


def shares_tiles(flow: KernelFlow, axes: TwoAxes) -> bool:
    """Whether a load's address depends on one of the two counters only, so that programs share what it reads."""
    both = {axes.slow, axes.fast}
    return any(access.kind == "load" and len(access.axes & both) == 1 for access in accesses(flow))


def program_calls(flow: KernelFlow, nodes: Sequence[cst.CSTNode], function: str) -> list[cst.Call]:
    """The calls of `tl.program_id` or `tl.num_programs` among `nodes`."""
    return [n for n in nodes if isinstance(n, cst.Call) and flow.module.names.calls(n, f"{TL}.{function}")]


def axis_of(call: cst.Call) -> int | None:
    """The axis that a call of `tl.program_id` names, by position or keyword; None when it is not a literal."""
    return integer(call.args[0].value) if len(call.args) == 1 else None


Assigned = dict[str, tuple[cst.BaseStatement, cst.BaseExpression]]


def _assigned_once(flow: KernelFlow) -> Assigned:
    """The names with one binding, by a plain assignment among the kernel's own statements."""
    found: Assigned = {}
    for statement in flow.body.body:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            continue
        small = statement.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
            name = small.targets[0].target.value
            if len(flow.scope.bindings.get(name, [])) == 1:
                found[name] = (statement, small.value)
    return found


Found = tuple[str, str, str, str]


def _from_grid(flow: KernelFlow, assigned: Assigned, counters: frozenset[str]) -> Found | None:
    calls = program_calls(flow, list(flow.nodes(flow.body)), "program_id")
    axes = [axis_of(call) for call in calls]
    if None in axes or axes.count(0) != 1 or axes.count(1) != 1:
        return None
    by_axis: dict[int | None, str] = {}
    for name in counters:
        call = _without_conversion(assigned[name][1])
        if isinstance(call, cst.Call) and any(call is c for c in calls):
            by_axis[axis_of(call)] = name
    if 0 not in by_axis or 1 not in by_axis:
        return None
    programs = flow.module.names.spell(f"{TL}.num_programs")
    if programs is None:
        return None
    return by_axis[1], by_axis[0], f"{programs}(1)", f"{programs}(0)"


def _from_division(flow: KernelFlow, assigned: Assigned, counters: frozenset[str]) -> Found | None:
    programs = flow.module.names.spell(f"{TL}.num_programs")
    for slow in sorted(counters):
        for fast in sorted(counters - {slow}):
            quotient, remainder = assigned[slow][1], assigned[fast][1]
            if not (isinstance(quotient, cst.BinaryOperation) and isinstance(quotient.operator, cst.FloorDivide)):
                continue
            if not (isinstance(remainder, cst.BinaryOperation) and isinstance(remainder.operator, cst.Modulo)):
                continue
            code = flow.module.code
            same = code(quotient.left) == code(remainder.left) and code(quotient.right) == code(remainder.right)
            if same and programs is not None and _is_program(flow, quotient.left, assigned):
                count = code(quotient.right)
                count = count if isinstance(quotient.right, cst.Name | cst.Call) else f"({count})"
                return slow, fast, f"{programs}(0) // {count}", count
    return None


def _is_program(flow: KernelFlow, expression: cst.BaseExpression, assigned: Assigned) -> bool:
    """Whether `expression` is `program_id(0)`, directly or by one name, in a kernel that uses no other axis."""
    if isinstance(expression, cst.Name):
        expression = assigned[expression.value][1] if expression.value in assigned else expression
    call = _without_conversion(expression)
    calls = program_calls(flow, list(flow.nodes(flow.body)), "program_id")
    return isinstance(call, cst.Call) and any(call is c for c in calls) and {axis_of(c) for c in calls} == {0}


def _without_conversion(expression: cst.BaseExpression) -> cst.BaseExpression:
    if (
        isinstance(expression, cst.Call)
        and isinstance(expression.func, cst.Attribute)
        and expression.func.attr.value == "to"
    ):
        return expression.func.value
    return expression


def group_calls(flow: KernelFlow) -> list[cst.Call]:
    """The calls of `tl.swizzle2d` in the kernel's own body."""
    return [c for c in find(flow.body, cst.Call) if flow.module.names.calls(c, f"{TL}.swizzle2d")]
