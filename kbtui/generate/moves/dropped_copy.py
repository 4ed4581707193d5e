"""Fusion: a copy that the wrapper makes before the launch is left to the kernel's own loads.

`x = x.contiguous()` reads and writes a tensor that is not contiguous once more, in a launch of its own. Where the kernel is
given the tensor's strides it can read the original as it lies.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.module import KernelModule, Launch
from kbtui.generate.tree.nodes import Edit, find, walk
from kbtui.generate.tree.origins import integer
from kbtui.state.records import Strategy

_HARMLESS = {
    "stride", "shape", "size", "numel", "dim", "ndim", "dtype", "device", "element_size", "contiguous", "is_contiguous",
}  # fmt: skip
"""What a wrapper may ask of a tensor without caring how it lies in memory."""


class DroppedCopy(Move):
    name = "dropped_copy"
    strategy: Strategy = "fusion"
    kind = "structural"
    summary = "x = x.contiguous() leaves the wrapper where every launch that takes x takes its strides too"

    def sites(self, module: KernelModule) -> list[Site]:
        return [
            site
            for node in module.reached(cst.FunctionDef)
            if isinstance(node, cst.FunctionDef) and isinstance(node.body, cst.IndentedBlock)
            for site in _sites(module, node, node.body)
        ]


def _sites(module: KernelModule, function: cst.FunctionDef, body: cst.IndentedBlock) -> Iterator[Site]:
    launches = [launch for launch in module.launches if launch.scope.holder is function]
    if not launches:
        return
    for statement in body.body:
        name = _copied(statement)
        if name is None or not all(_reads_as_it_lies(module, launch, name) for launch in launches):
            continue
        takes = [launch for launch in launches if _takes(launch, name)]
        if takes and _asks_nothing_else(module, function, name, launches):
            edits: dict[cst.CSTNode, Edit] = {statement: lambda _node: []}
            title = f"no copy of {name}"
            yield Site(
                title,
                function.name.value,
                module.line(statement),
                edits,
                f"{name}.contiguous() in {function.name.value}",
            )


def _copied(statement: cst.BaseStatement) -> str | None:
    """`x` for the statement `x = x.contiguous()`."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if (
        not isinstance(small, cst.Assign)
        or len(small.targets) != 1
        or not isinstance(small.targets[0].target, cst.Name)
    ):
        return None
    call, name = small.value, small.targets[0].target.value
    if isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute) and not call.args:
        owner = call.func.value
        if call.func.attr.value == "contiguous" and isinstance(owner, cst.Name) and owner.value == name:
            return name
    return None


def _takes(launch: Launch, name: str) -> bool:
    return any(isinstance(a.value, cst.Name) and a.value.value == name for a in launch.call.args)


def _reads_as_it_lies(module: KernelModule, launch: Launch, name: str) -> bool:
    """Whether the launch does not take the tensor, or takes two or more of its strides, from the first on."""
    if not _takes(launch, name):
        return True
    strides = [
        integer(call.args[0].value)
        for argument in launch.call.args
        for call in find(argument.value, cst.Call)
        if len(call.args) == 1 and module.names.qualified(call.func) == f"{name}.stride"
    ]
    known = {s for s in strides if s is not None}
    return len(known) == len(strides) >= 2 and known == set(range(len(known)))


def _asks_nothing_else(module: KernelModule, function: cst.FunctionDef, name: str, launches: list[Launch]) -> bool:
    """Whether the function only launches with the tensor, and asks for its shape, strides and the like."""
    arguments = {a.value for launch in launches for a in launch.call.args}
    for node in walk(function.body):
        if not isinstance(node, cst.Name) or node.value != name or node in arguments:
            continue
        above = module.above[node]
        if isinstance(above, cst.AssignTarget) and _copied_target(module, above, name):
            continue
        if not (isinstance(above, cst.Attribute) and above.value is node and above.attr.value in _HARMLESS):
            return False
    return True


def _copied_target(module: KernelModule, target: cst.AssignTarget, name: str) -> bool:
    statement = module.above[module.above[target]]
    return isinstance(statement, cst.SimpleStatementLine) and _copied(statement) == name
