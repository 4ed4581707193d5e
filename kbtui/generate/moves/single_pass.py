"""Fusion: two loops over a row, of which the second needs the first's result, become one.

A maximum and the sum of exponentials under it; a sum and the sum of squares around the mean. The row is read once instead
of twice; `kbtui.generate.tree.statistics` has the sources of the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.flow import TL, KernelFlow, flow_of
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edit, find, mentioned, walk
from kbtui.generate.tree.programs import fresh_names
from kbtui.generate.tree.pure import bound
from kbtui.generate.tree.statistics import EXPONENTIALS, Accumulation, changed_between, pairs, same
from kbtui.state.records import Strategy


@dataclass(frozen=True, eq=False)
class _Fusion:
    """What becomes of the two loops: lines before the first, in it for its last statement, and in the second's place."""

    before: list[str]
    inside: list[str]
    after: list[str]
    keeps_last: bool = field(default=False)
    """Whether the first loop's last statement stays before `inside`."""


class SinglePass(Move):
    name = "single_pass"
    strategy: Strategy = "fusion"
    kind = "structural"
    summary = "a maximum and its sum of exponentials, or a sum and its squares, in one loop over the row instead of two"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for kernel in module.launched:
            flow = flow_of(module, kernel)
            if not isinstance(flow.body, cst.IndentedBlock):
                continue
            for first, second in pairs(flow):
                for title, fusion in (
                    ("maximum and sum", _online(flow, first, second)),
                    ("sum and squares", _welford(flow, first, second)),
                ):
                    if fusion is not None:
                        edits: dict[cst.CSTNode, Edit] = {flow.body: _fused(flow, first, second, fusion)}
                        detail = f"{first.name} and {second.name} of {kernel.name}"
                        line = module.line(first.loop)
                        found.append(Site(f"{title} in one pass", kernel.name, line, edits, detail))
        return found


# ------------------------------------------------------------ what is computed


def _online(flow: KernelFlow, first: Accumulation, second: Accumulation) -> _Fusion | None:
    """`s += exp(x - m)` behind `m = max(x)`: the sum is scaled whenever a lane's maximum rises."""
    names = flow.module.names
    term = second.inlined(second.term)
    if first.kind != "max" or first.shape != second.shape or not names.calls(term, *EXPONENTIALS):
        return None
    assert isinstance(term, cst.Call)
    inner = term.args[0].value
    if (
        len(term.args) != 1
        or not isinstance(inner, cst.BinaryOperation)
        or not isinstance(inner.operator, cst.Subtract)
    ):
        return None
    if not isinstance(inner.right, cst.Name) or not same(inner.left, first.inlined(first.term)):
        return None
    if not _is_maximum(flow, inner.right.value, first) or _reads(flow, first.name) != 3:
        return None
    if mentioned(inner.left) & changed_between(flow, first, second):
        return None
    tl, code = _prefix(flow), flow.module.code
    exp, top, total = code(term.func), first.name, second.name
    value, named = _named(flow, first.term)
    risen, finite = fresh_names(flow, "risen", "finite")
    return _Fusion(
        before=[f"{total} = {tl}zeros({second.shape}, dtype={tl}float32)"],
        inside=[
            *named,
            f"{risen} = {tl}maximum({top}, {value})",
            # A lane that has seen nothing but minus infinity would compute infinity less infinity.
            f'{finite} = {tl}where({risen} == -float("inf"), 0.0, {risen})',
            f"{total} = {total} * {exp}({top} - {finite}) + {exp}({value} - {finite})",
            f"{top} = {risen}",
        ],
        after=[f"{total} = {total} * {exp}({top} - {inner.right.value})"],
    )


def _welford(flow: KernelFlow, first: Accumulation, second: Accumulation) -> _Fusion | None:
    """`q += c * c` with `c = x - m`, masked or not, behind `p += x`: squares around each lane's own mean, joined around m."""
    term = second.inlined(second.term)
    if first.kind != "sum" or first.shape != second.shape:
        return None
    if (
        not isinstance(term, cst.BinaryOperation)
        or not isinstance(term.operator, cst.Multiply)
        or not same(term.left, term.right)
    ):
        return None
    mask, centred = _masked(flow, term.left)
    if not isinstance(centred, cst.BinaryOperation) or not isinstance(centred.operator, cst.Subtract):
        return None
    mean = centred.right
    if (
        not isinstance(mean, cst.Name)
        or not same(centred.left, first.inlined(first.term))
        or not _is_number(flow, mean.value)
    ):
        return None
    early = mentioned(centred.left) | (mentioned(mask) if mask is not None else set())
    if early & changed_between(flow, first, second) or (mask is not None and _loads(flow, mask)):
        return None
    tl, code = _prefix(flow), flow.module.code
    value, named = _named(flow, first.term)
    seen, centre, squares, delta, inside = fresh_names(flow, "seen", "centre", "squares", "delta", "inside")
    lanes = [f"{inside} = {code(mask)}"] if mask is not None else []
    where = f"{tl}where({inside}, {{}}, 0.0)" if mask is not None else "{}"
    zeros = f"{tl}zeros({second.shape}, dtype={tl}float32)"
    return _Fusion(
        before=[f"{name} = {zeros}" for name in (seen, centre, squares)],
        inside=[
            *named,
            *lanes,
            f"{seen} += {where.format('1.0')}",
            f"{delta} = {where.format(f'{value} - {centre}')}",
            f"{centre} += {delta} / {tl}maximum({seen}, 1.0)",
            f"{squares} += {delta} * {where.format(f'{value} - {centre}')}",
        ],
        after=[f"{second.name} = {squares} + {seen} * ({centre} - {mean.value}) * ({centre} - {mean.value})"],
        keeps_last=True,
    )


def _loads(flow: KernelFlow, expression: cst.BaseExpression) -> bool:
    return any(flow.module.names.calls(n, f"{TL}.load") for n in walk(expression))


def _named(flow: KernelFlow, term: cst.BaseExpression) -> tuple[str, list[str]]:
    """A name for the term, and the line that gives it one if it has none."""
    if isinstance(term, cst.Name):
        return term.value, []
    (value,) = fresh_names(flow, "value")
    return value, [f"{value} = {flow.module.code(term)}"]


def _masked(flow: KernelFlow, expression: cst.BaseExpression) -> tuple[cst.BaseExpression | None, cst.BaseExpression]:
    """(mask, value) of `tl.where(mask, value, 0.0)`; (None, expression) for anything else."""
    if (
        flow.module.names.calls(expression, f"{TL}.where")
        and isinstance(expression, cst.Call)
        and len(expression.args) == 3
    ):
        mask, value, other = (a.value for a in expression.args)
        if flow.module.code(other) in ("0", "0.0"):
            return mask, value
    return None, expression


def _is_maximum(flow: KernelFlow, name: str, first: Accumulation) -> bool:
    """Whether the name is bound once, to `tl.max(tile, ...)` of the first loop's tile."""
    bindings = flow.scope.bindings.get(name, [])
    value = bindings[0].value if len(bindings) == 1 else None
    if value is None or not flow.module.names.calls(value, f"{TL}.max") or not isinstance(value, cst.Call):
        return False
    tile = value.args[0].value if value.args else None
    return isinstance(tile, cst.Name) and tile.value == first.name


def _is_number(flow: KernelFlow, name: str) -> bool:
    """Whether the name is bound once, outside of loops: it is the same throughout the second loop."""
    inside = {n for loop in find(flow.body, cst.For) for n in bound(loop)}
    return len(flow.scope.bindings.get(name, [])) == 1 and name not in inside


def _reads(flow: KernelFlow, name: str) -> int:
    """How often the kernel's body mentions a name, its first assignment apart."""
    return sum(n.value == name for n in find(flow.body, cst.Name)) - 1


def _prefix(flow: KernelFlow) -> str:
    """How the file writes `triton.language.`; statistics were found by names of it, so it has a way."""
    return str(flow.module.names.spell(f"{TL}.zeros")).removesuffix("zeros")


# ------------------------------------------------------------ writing it


def _fused(flow: KernelFlow, first: Accumulation, second: Accumulation, fusion: _Fusion) -> Edit:
    statements = [s for s in flow.body.body if isinstance(s, cst.BaseStatement)]

    def edit(node: cst.CSTNode) -> cst.CSTNode:
        made: list[cst.BaseStatement] = []
        for index, statement in enumerate(statements):
            if index == second.start:
                continue
            if index == first.index:
                made.extend(cst.parse_statement(line) for line in fusion.before)
                made.append(_rewritten(first.loop, fusion))
            elif index == second.index:
                made.extend(cst.parse_statement(line) for line in fusion.after)
            else:
                made.append(statement)
        return node.with_changes(body=made)

    return edit


def _rewritten(loop: cst.For, fusion: _Fusion) -> cst.For:
    assert isinstance(loop.body, cst.IndentedBlock)
    kept = loop.body.body if fusion.keeps_last else loop.body.body[:-1]
    body = [*kept, *(cst.parse_statement(line) for line in fusion.inside)]
    return loop.with_changes(body=loop.body.with_changes(body=body))
