"""Statements of a kernel that only compute: they may change places as far as the names they bind and read allow."""

from __future__ import annotations

import libcst as cst

from kbtui.generate.tree.flow import TL, KernelFlow
from kbtui.generate.tree.nodes import walk
from kbtui.generate.tree.scopes import Scope

_METHODS = ("to", "cast", "trans", "reshape")
_FUNCTIONS = tuple(
    f"{TL}.{name}"
    for name in (
        "load", "sum", "max", "min", "argmax", "argmin", "reduce", "dot", "where", "exp", "exp2", "log", "log2", "sqrt",
        "rsqrt", "sqrt_rn", "abs", "maximum", "minimum", "sigmoid", "fma", "cos", "sin", "erf", "floor", "ceil", "clamp",
        "cast", "arange", "zeros", "full", "program_id", "num_programs", "cdiv", "range", "static_range", "trans",
        "broadcast_to", "expand_dims", "reshape", "make_block_ptr", "advance", "multiple_of", "max_contiguous",
        "div_rn", "fdiv", "softmax", "cumsum",
    )
)  # fmt: skip


def bound(statement: cst.CSTNode) -> set[str]:
    """The names that a statement binds."""
    return set(Scope(cst.Module(body=[statement])).bindings)  # type: ignore[list-item]


def is_pure(flow: KernelFlow, statement: cst.CSTNode) -> bool:
    """Whether it writes no memory, waits for nothing and leaves no function: every call is known, or a helper that is pure."""
    if not isinstance(statement, cst.SimpleStatementLine | cst.For | cst.If):
        return False
    if any(isinstance(node, cst.Return) for node in walk(statement)):
        return False
    for node in flow.nodes(statement):
        if isinstance(node, cst.While | cst.Assert | cst.Raise | cst.Break | cst.Continue):
            return False
        if isinstance(node, cst.Call) and not _is_known(flow, node):
            return False
    return True


def _is_known(flow: KernelFlow, call: cst.Call) -> bool:
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in _METHODS:
        return True
    function = flow.module.names.qualified(call.func) or ""
    if isinstance(call.func, cst.Name) and call.func.value in flow.module.kernels:
        return True  # its body is among the nodes that are looked at
    return function in (*_FUNCTIONS, "range", "min", "max", "float", "int") or function.startswith(f"{TL}.math.")
