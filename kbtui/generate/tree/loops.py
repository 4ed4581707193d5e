"""The for-loops of the kernels that the entry reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import libcst as cst

from kbtui.generate.tree.edits import Change, with_keyword
from kbtui.generate.tree.flow import TL, flow_of
from kbtui.generate.tree.module import Kernel, KernelModule, bind
from kbtui.generate.tree.nodes import find
from kbtui.generate.tree.origins import integer

Kind = Literal["range", "tl.range", "tl.static_range"]
_KINDS: dict[str, Kind] = {"range": "range", f"{TL}.range": "tl.range", f"{TL}.static_range": "tl.static_range"}


@dataclass(frozen=True, eq=False)
class Loop:
    """One `for ... in range(...)` of a kernel."""

    kernel: Kernel
    node: cst.For = field(repr=False)
    header: cst.Call = field(repr=False)
    kind: Kind
    loads: bool
    """Whether its body loads, itself or through a helper."""

    def describe(self, module: KernelModule) -> str:
        return f"for {module.code(self.node.target)} in {module.code(self.header)} of {self.kernel.name}"


def kernel_loops(module: KernelModule) -> list[Loop]:
    """In source order, those of helpers included; loops over anything but a range apart, and those with starred bounds."""
    found = []
    for kernel in module.kernels.values():
        flow = flow_of(module, kernel)
        for node in find(kernel.node.body, cst.For):
            header = node.iter
            if not isinstance(header, cst.Call) or any(a.star for a in header.args):
                continue
            kind = _KINDS.get(module.names.qualified(header.func) or "")
            if kind is not None:
                loads = any(module.names.calls(n, f"{TL}.load") for n in flow.nodes(node.body))
                found.append(Loop(kernel, node, header, kind, loads))
    return found


def as_tl_range(module: KernelModule, keyword: str, value: int) -> Change | None:
    """The header as `tl.range` with one keyword; None when the file has no name for triton.language."""
    spelled = module.names.spell(f"{TL}.range")
    if spelled is None:
        return None
    add = with_keyword(keyword, str(value))

    def change(call: cst.Call) -> cst.Call:
        return add(call).with_changes(func=cst.parse_expression(spelled))

    return change


def keyword_integer(call: cst.Call, name: str) -> int | None:
    """The integer literal given as keyword `name`."""
    bound, _ = bind(call, [])
    return integer(bound[name].value) if name in bound else None
