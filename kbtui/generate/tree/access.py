"""The loads and stores of a kernel: through which parameter, and which of the program's indices their address depends on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import libcst as cst

from kbtui.generate.tree.flow import TL, KernelFlow, roots
from kbtui.generate.tree.nodes import children, find, walk


@dataclass(frozen=True, eq=False)
class Access:
    """One `tl.load` or `tl.store` in a launched kernel's own body.

    `base` is the pointer parameter it goes through, "" where that cannot be seen. `axes` are the indices of the
    program that its address depends on. `last` is False when the kernel loads from the same address again further down.
    """

    call: cst.Call = field(repr=False)
    kind: Literal["load", "store"]
    base: str
    axes: frozenset[str]
    shared: bool
    """Whether other programs access the same address: it lacks one of the indices that the kernel uses, or part of one."""
    last: bool

    @property
    def title(self) -> str:
        return f"{self.kind} {self.base or 'pointer'}"


def tile_axes(flow: KernelFlow) -> frozenset[str]:
    """The names that count tiles: they carry the program's index and are multiplied by a tile's size."""
    found = set()
    sizes = {size for size, use in flow.uses.items() if use.extent}
    for node in find(flow.body, cst.BinaryOperation):
        if not isinstance(node.operator, cst.Multiply):
            continue
        for index, size in ((node.left, node.right), (node.right, node.left)):
            name = _converted(index)
            if isinstance(name, cst.Name) and flow.is_indexed(name) and roots(size, flow.scope) & sizes:
                found.add(name.value)
    return frozenset(found)


Piece = tuple[str, str]
"""An index and how much of it: "" for all, else the code of the quotient or remainder that is left of it."""


def pieces_of(flow: KernelFlow, expression: cst.CSTNode, counters: frozenset[str]) -> frozenset[Piece]:
    """The tile counters, and the program's indices or parts of them, that `expression` depends on."""
    found: set[Piece] = set()
    seen: set[str] = set()
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Name):
            if node.value in counters:
                found.add((node.value, ""))
            elif node.value not in seen:
                seen.add(node.value)
                waiting.extend(feed for b in flow.scope.bindings.get(node.value, []) for feed in b.feeds)
        elif flow.module.names.calls(node, f"{TL}.program_id"):
            found.add((_axis(flow, node), ""))
        elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.FloorDivide | cst.Modulo):
            code = flow.module.code(node)
            inside = pieces_of(flow, node.left, counters) | pieces_of(flow, node.right, counters)
            found |= {(index, code) for index, _ in inside}
        else:
            waiting.extend(children(node))
    return frozenset(found)


def _axis(flow: KernelFlow, call: cst.CSTNode) -> str:
    assert isinstance(call, cst.Call)
    return f"program {flow.module.code(call.args[0].value) if call.args else ''}"


def _is_shared(pieces: frozenset[Piece], every: frozenset[Piece]) -> bool:
    """Whether some index that the kernel uses is missing from an address, or only a part of it is there."""
    for index in {index for index, _ in every}:
        parts = {piece for piece in every if piece[0] == index and piece[1]}
        if (index, "") not in pieces and not (parts and parts <= pieces):
            return True
    return False


def accesses(flow: KernelFlow) -> list[Access]:
    """In source order."""
    counters = tile_axes(flow)
    calls = [
        node
        for node in walk(flow.body)
        if isinstance(node, cst.Call)
        and flow.module.names.calls(node, f"{TL}.load", f"{TL}.store")
        and node.args
        and not any(a.star for a in node.args)
    ]
    pieces = {call: pieces_of(flow, call.args[0].value, counters) for call in calls}
    every = frozenset(piece for found in pieces.values() for piece in found)
    found: list[Access] = []
    for index, call in enumerate(calls):
        base = base_parameter(flow, call.args[0].value)
        kind: Literal["load", "store"] = "load" if flow.module.names.calls(call, f"{TL}.load") else "store"
        address = flow.module.code(call.args[0].value)
        later = any(
            flow.module.names.calls(other, f"{TL}.load") and flow.module.code(other.args[0].value) == address
            for other in calls[index + 1 :]
        )
        axes = frozenset(index for index, _ in pieces[call])
        found.append(Access(call, kind, base, axes, _is_shared(pieces[call], every), not later))
    return found


def base_parameter(flow: KernelFlow, pointer: cst.BaseExpression) -> str:
    """The parameter at the left end of a pointer's sum, through names, `make_block_ptr` and `advance`; "" when unclear."""
    seen: set[str] = set()
    here: cst.BaseExpression | None = pointer
    while here is not None:
        if isinstance(here, cst.Name):
            if here.value in flow.scope.parameters:
                return here.value
            if here.value in seen:
                return ""
            seen.add(here.value)
            values = [b.value for b in flow.scope.bindings.get(here.value, []) if b.value is not None]
            here = values[0] if values else None
        elif isinstance(here, cst.BinaryOperation):
            here = here.left
        elif isinstance(here, cst.Call) and flow.module.names.calls(here, f"{TL}.make_block_ptr", f"{TL}.advance"):
            here = here.args[0].value if here.args else None
        else:
            here = _method_owner(here)
    return ""


def _converted(expression: cst.BaseExpression) -> cst.BaseExpression:
    """`name` for `name.to(tl.int64)`; anything else as it is."""
    owner = _method_owner(expression)
    return owner if owner is not None and isinstance(owner, cst.Name) else expression


def _method_owner(expression: cst.BaseExpression) -> cst.BaseExpression | None:
    if (
        isinstance(expression, cst.Call)
        and isinstance(expression.func, cst.Attribute)
        and expression.func.attr.value == "to"
    ):
        return expression.func.value
    return None
