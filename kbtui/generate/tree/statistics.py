"""Two loops over one row that one loop can do: a maximum and the sum of exponentials, a mean and a sum of squares.

Each lane keeps statistics of what it has seen and corrects them as it goes on: for the maximum Milakov and Gimelshein,
"Online normalizer calculation for softmax" (2018); for the squares Welford (1962), joined over the lanes as in Chan,
Golub and LeVeque (1979).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import libcst as cst

from kbtui import syntax
from kbtui.generate.tree.flow import TL, KernelFlow
from kbtui.generate.tree.nodes import Edit, find, mentioned, substitute
from kbtui.generate.tree.pure import bound, is_pure

EXPONENTIALS = (f"{TL}.exp", f"{TL}.exp2", f"{TL}.math.exp", f"{TL}.math.exp2")


@dataclass(frozen=True, eq=False)
class Accumulation:
    """A loop whose last statement adds to (`sum`) or raises (`max`) one tile, and whose others only compute."""

    index: int
    """Of the loop among the kernel's statements."""
    loop: cst.For = field(repr=False)
    kind: str
    name: str
    term: cst.BaseExpression = field(repr=False)
    start: int
    """Index of the statement that sets the tile before the loop."""
    shape: str
    values: dict[str, cst.BaseExpression] = field(repr=False)
    """What the loop's other statements bind."""
    above: Mapping[cst.CSTNode, cst.CSTNode] = field(repr=False)

    @property
    def header(self) -> str:
        return cst.Module([]).code_for_node(self.loop.iter) + cst.Module([]).code_for_node(self.loop.target)

    def inlined(self, expression: cst.BaseExpression) -> cst.BaseExpression:
        """The expression with every name that the loop binds replaced by what it is bound to."""
        return _inlined(expression, self.values, self.above)


def accumulations(flow: KernelFlow) -> list[Accumulation]:
    """In source order."""
    statements = list(flow.body.body)
    found = []
    for index, statement in enumerate(statements):
        if (
            isinstance(statement, cst.For)
            and isinstance(statement.body, cst.IndentedBlock)
            and is_pure(flow, statement)
        ):
            read = _accumulation(flow, statements, index, statement, statement.body)
            if read is not None:
                found.append(read)
    return found


def _accumulation(
    flow: KernelFlow, statements: list[cst.CSTNode], index: int, loop: cst.For, body: cst.IndentedBlock
) -> Accumulation | None:
    *others, last = body.body
    values: dict[str, cst.BaseExpression] = {}
    for statement in others:
        pair = _assigned(statement)
        # A name bound twice in the loop would stand for two things.
        if pair is None or pair[0] in values:
            return None
        values[pair[0]] = pair[1]
    step = _step(flow, last)
    if step is None or step[1] in values:
        return None
    kind, name, term = step
    start = _start(flow, statements[:index], name, kind)
    if start is None or len(flow.scope.bindings.get(name, [])) != 2 or loop.orelse is not None:
        return None
    return Accumulation(index, loop, kind, name, term, *start, values, flow.module.above)


def _step(flow: KernelFlow, statement: cst.CSTNode) -> tuple[str, str, cst.BaseExpression] | None:
    """("sum", name, term) for `name += term`, ("max", name, term) for `name = tl.maximum(name, term)`."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if (
        isinstance(small, cst.AugAssign)
        and isinstance(small.operator, cst.AddAssign)
        and isinstance(small.target, cst.Name)
    ):
        return "sum", small.target.value, small.value
    pair = _assigned(statement)
    if pair is None or not isinstance(pair[1], cst.Call) or not flow.module.names.calls(pair[1], f"{TL}.maximum"):
        return None
    arguments = pair[1].args
    if len(arguments) != 2 or any(a.keyword is not None or a.star for a in arguments):
        return None
    first = arguments[0].value
    if not isinstance(first, cst.Name) or first.value != pair[0]:
        return None
    return "max", pair[0], arguments[1].value


def _start(flow: KernelFlow, above: list[cst.CSTNode], name: str, kind: str) -> tuple[int, str] | None:
    """Where the tile is set before its loop, to fp32 zeros or to minus infinity, and the code of its shape."""
    for index, statement in enumerate(above):
        pair = _assigned(statement)
        if pair is None or pair[0] != name or not isinstance(pair[1], cst.Call) or not pair[1].args:
            continue
        call, code = pair[1], flow.module.code
        single = any(code(a.value).endswith("float32") for a in call.args[1:])
        shape = code(call.args[0].value)
        if kind == "sum" and flow.module.names.calls(call, f"{TL}.zeros") and single:
            return index, shape
        infinite = len(call.args) > 1 and code(call.args[1].value).replace("'", '"') == '-float("inf")'
        if kind == "max" and flow.module.names.calls(call, f"{TL}.full") and single and infinite:
            return index, shape
    return None


def _assigned(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
        return small.targets[0].target.value, small.value
    return None


def _inlined(
    node: cst.BaseExpression, values: dict[str, cst.BaseExpression], above: Mapping[cst.CSTNode, cst.CSTNode]
) -> cst.BaseExpression:
    if isinstance(node, cst.Name):
        if node.value not in values:
            return node
        rest = {name: value for name, value in values.items() if name != node.value}
        made = _inlined(values[node.value], rest, above)
        return made.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    labels = {n.keyword for n in find(node, cst.Arg)} | {n.attr for n in find(node, cst.Attribute)}
    names = [n for n in find(node, cst.Name) if n.value in values and n not in labels]
    return substitute(node, {name: _replacing(_inlined(name, values, above)) for name in names}, above)


def _replacing(expression: cst.BaseExpression) -> Edit:
    return lambda _node: expression


def same(left: cst.CSTNode, right: cst.CSTNode) -> bool:
    """Whether two expressions are equal but for layout and brackets."""
    code = cst.Module([]).code_for_node
    return ast.dump(syntax.parse_expression(code(left).strip())) == ast.dump(
        syntax.parse_expression(code(right).strip())
    )


def pairs(flow: KernelFlow) -> Iterator[tuple[Accumulation, Accumulation]]:
    """Two loops with one header, everything between them pure, and nothing behind the second that only it binds."""
    found = accumulations(flow)
    statements = list(flow.body.body)
    for first in found:
        for second in found:
            between = statements[first.index + 1 : second.index]
            if second.index <= first.index or second.header != first.header or second.kind != "sum":
                continue
            header = mentioned(first.loop.iter)
            moved = changed_between(flow, first, second)
            if not all(is_pure(flow, s) for s in between) or header & moved:
                continue
            if _needed_later(second, statements[second.index + 1 :]):
                continue
            yield first, second


def changed_between(flow: KernelFlow, first: Accumulation, second: Accumulation) -> set[str]:
    """The names that the statements between two loops bind: nothing that depends on them can move up."""
    return {name for s in list(flow.body.body)[first.index + 1 : second.index] for name in bound(s)}


def _needed_later(second: Accumulation, later: list[cst.CSTNode]) -> bool:
    """Whether a statement reads what the second loop's last iteration left, other than the accumulated tile."""
    left = set(second.values) | {n.value for n in find(second.loop.target, cst.Name)}
    for statement in later:
        inner = statement.body.body if isinstance(statement, cst.For) else [statement]
        known = (
            bound(statement) & {n.value for n in find(statement.target, cst.Name)}
            if isinstance(statement, cst.For)
            else set()
        )
        for each in inner:
            pair = _assigned(each)
            reads = mentioned(pair[1] if pair is not None else each)
            if reads & (left - known):
                return True
            known |= bound(each)
    return False
