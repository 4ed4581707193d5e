"""Autotune lists that loops build: `[Config({"BLOCK": b}, num_warps=w) for b in [64, 128] for w in [4, 8]]`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.tree.module import CONFIG, Kernel, KernelModule, bind
from kbtui.generate.tree.nodes import Edits, find, walk
from kbtui.generate.tree.origins import entries, integer


@dataclass(frozen=True, eq=False)
class Spread:
    """The literal list whose values one parameter or option of a tuned kernel goes through."""

    kernel: Kernel
    key: str
    listed: cst.List | cst.Tuple = field(repr=False)
    values: tuple[int, ...]

    def with_value(self, new: int) -> Edits | None:
        """The edit that adds a value, at its place where they ascend; None when it is there already."""
        if new in self.values:
            return None
        ascending = list(self.values) == sorted(self.values)
        place = sum(value < new for value in self.values) if ascending else len(self.values)

        def edit(node: cst.CSTNode) -> cst.CSTNode:
            assert isinstance(node, cst.List | cst.Tuple)
            comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            elements = list(node.elements)
            if place == len(elements):
                tail = elements[-1].comma
                elements[-1] = elements[-1].with_changes(comma=comma)
                elements.append(cst.Element(cst.Integer(str(new)), comma=tail))
            else:
                elements.insert(place, cst.Element(cst.Integer(str(new)), comma=comma))
            return node.with_changes(elements=elements)

        return {self.listed: edit}


def spreads(module: KernelModule, kernel: Kernel) -> list[Spread]:
    """Every parameter and option that a loop over literals gives, in source order; each list once."""
    found: list[Spread] = []
    for call, around in _built(module, kernel):
        bound, _ = bind(call, ["kwargs", "num_warps", "num_stages"])
        options = {name: a.value for name, a in bound.items() if name != "kwargs"}
        for key, value in {**entries(call), **options}.items():
            listed = _iterated(module, around, value.value) if isinstance(value, cst.Name) else None
            if listed is None or any(s.listed is listed for s in found):
                continue
            values = [integer(e.value) for e in listed.elements]
            known = tuple(v for v in values if v is not None)
            if known and len(known) == len(values):
                found.append(Spread(kernel, key, listed, known))
    return found


def _built(module: KernelModule, kernel: Kernel) -> Iterator[tuple[cst.Call, cst.CSTNode]]:
    """The `triton.Config` calls below the kernel's `autotune`, and in the function it calls, each with what is around it."""
    for decorator in kernel.node.decorators:
        inner = decorator.decorator
        if not module.names.calls(inner, "triton.autotune", "triton.runtime.autotune") or not isinstance(
            inner, cst.Call
        ):
            continue
        bound, _ = bind(inner, ["configs", "key"])
        around: cst.CSTNode | None = bound["configs"].value if "configs" in bound else None
        if isinstance(around, cst.Name):
            values = module.module_scope.bindings.get(around.value, [])
            around = values[0].value if len(values) == 1 else None
        if isinstance(around, cst.Call) and isinstance(around.func, cst.Name):
            around = module.function(around.func.value) or around
        if around is not None:
            yield from ((call, around) for call in find(around, cst.Call) if module.names.calls(call, *CONFIG))


def _iterated(module: KernelModule, around: cst.CSTNode, name: str) -> cst.List | cst.Tuple | None:
    """The literal list or tuple that `name` goes through: by a loop of its own, or by a place in `itertools.product`."""
    found = []
    for loop in walk(around):
        if not isinstance(loop, cst.For | cst.CompFor):
            continue
        if isinstance(loop.target, cst.Name) and loop.target.value == name:
            found.append(loop.iter)
        elif isinstance(loop.target, cst.Tuple) and module.names.calls(loop.iter, "itertools.product"):
            assert isinstance(loop.iter, cst.Call)
            if len(loop.target.elements) == len(loop.iter.args):
                found.extend(
                    a.value
                    for e, a in zip(loop.target.elements, loop.iter.args, strict=True)
                    if isinstance(e.value, cst.Name) and e.value.value == name
                )
    return found[0] if len(found) == 1 and isinstance(found[0], cst.List | cst.Tuple) else None
