"""What a kernel does with its values: which depend on the program's index, which are extents of tiles, which are masked.

Flow-insensitive: a name depends on everything that any of its bindings depends on. That errs towards more
dependence, so a move that needs independence is offered too rarely and never too often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from kbtui.generate.tree.module import Kernel, KernelModule, bind
from kbtui.generate.tree.nodes import find, walk
from kbtui.generate.tree.scopes import Scope

TL = "triton.language"
RANGES = ("range", f"{TL}.range", f"{TL}.static_range")
_SHAPED = {
    f"{TL}.arange": (1, "end"),
    f"{TL}.make_block_ptr": (4, "block_shape"),
    f"{TL}.make_tensor_descriptor": (3, "block_shape"),
}
"""Functions that make a tile: position and keyword of the argument that sizes it."""


@dataclass(frozen=True)
class Use:
    """What a kernel does with one size, its helpers' use of it included."""

    extent: bool = False
    """It sizes a tile (`tl.arange(0, P)`, `block_shape=`)."""
    strided: bool = False
    """The program's index is multiplied by it: the grid has to follow when it changes."""
    looped: bool = False
    """A loop's bounds or step depend on it: the loop follows when it changes."""
    sweeps: bool = False
    """One loop's header depends on both it and the program's index: the kernel covers any extent with any grid."""
    masked: bool = False
    """Something made from a tile of that extent is compared, wrapped by `%` or bounds-checked: a larger tile may overhang."""
    dot: bool = False
    """The kernel multiplies tiles with `tl.dot`."""

    def __or__(self, other: Use) -> Use:
        return Use(
            self.extent or other.extent,
            self.strided or other.strided,
            self.looped or other.looped,
            self.sweeps or other.sweeps,
            self.masked or other.masked,
            self.dot or other.dot,
        )

    @property
    def tile(self) -> bool:
        """Whether it is the size of a piece among several, rather than of the whole extent."""
        return self.extent and (self.strided or self.looped)


def reach(expression: cst.CSTNode, scope: Scope, stop: frozenset[str] = frozenset()) -> Iterator[cst.CSTNode]:
    """The nodes that `expression` depends on: its own, and those of what its names are bound to, names in `stop` apart."""
    waiting = [expression]
    seen: set[str] = set()
    while waiting:
        for node in walk(waiting.pop()):
            yield node
            if isinstance(node, cst.Name) and node.value not in seen and node.value not in stop:
                seen.add(node.value)
                for binding in scope.bindings.get(node.value, []):
                    waiting.extend(binding.feeds)


def roots(expression: cst.CSTNode, scope: Scope, stop: frozenset[str] = frozenset()) -> set[str]:
    """The names that `expression` depends on, directly or through others."""
    return {node.value for node in reach(expression, scope, stop) if isinstance(node, cst.Name)}


def flow_of(module: KernelModule, kernel: Kernel) -> KernelFlow:
    """The flow of a launched kernel, computed once a module."""
    return module.memo(("flow", kernel), lambda: KernelFlow(module, kernel))


class KernelFlow:
    """The uses of one kernel's sizes. `indexed` are parameters known to carry a program's index (of a helper)."""

    def __init__(
        self, module: KernelModule, kernel: Kernel, indexed: frozenset[str] = frozenset(), calling: tuple[str, ...] = ()
    ) -> None:
        self.module = module
        self.kernel = kernel
        self.scope = kernel.scope
        self._names = module.names
        self._indexed = indexed
        self._calling = (*calling, kernel.name)
        self.body = kernel.node.body

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """The constexpr parameters, and the constants of the module that the body mentions."""
        mentioned = {n.value for n in find(self.body, cst.Name)}
        outside = mentioned & self.module.module_scope.bindings.keys() - self.scope.bindings.keys()
        return (*self.kernel.constexprs, *sorted(outside - set(self.kernel.parameters) - self.module.kernels.keys()))

    def is_indexed(self, expression: cst.CSTNode, stop: frozenset[str] = frozenset()) -> bool:
        """Whether `expression` depends on the program's index."""
        return any(
            self._names.calls(node, f"{TL}.program_id") or (isinstance(node, cst.Name) and node.value in self._indexed)
            for node in reach(expression, self.scope, stop)
        )

    @cached_property
    def headers(self) -> list[cst.Call]:
        """The `range(...)` calls of the kernel's own for-loops."""
        return [
            node.iter
            for node in find(self.body, cst.For)
            if isinstance(node.iter, cst.Call) and self._names.calls(node.iter, *RANGES)
        ]

    @cached_property
    def has_dot(self) -> bool:
        return self.calls_anywhere(f"{TL}.dot", f"{TL}.dot_scaled")

    def calls_anywhere(self, *functions: str) -> bool:
        """Whether the kernel, or a helper it calls, calls one of `functions`."""
        return any(self._names.calls(node, *functions) for node in self.nodes(self.body))

    def nodes(self, below: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """All nodes below, those of the helpers called there included."""
        for node in walk(below):
            yield node
            if isinstance(node, cst.Call):
                helper = self._helper(node)
                if helper is not None:
                    flow = KernelFlow(self.module, helper, calling=self._calling)
                    yield from flow.nodes(helper.node.body)

    @cached_property
    def uses(self) -> dict[str, Use]:
        """Size to its use; every size of `sizes` has one."""
        found = {size: Use(dot=self.has_dot) for size in self.sizes}

        def note(expression: cst.CSTNode, use: Use) -> None:
            for name in roots(expression, self.scope) & found.keys():
                found[name] |= use

        tiles = _TileNames(self)
        for node in walk(self.body):
            if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
                for index, size in ((node.left, node.right), (node.right, node.left)):
                    if self._is_size(size, found) and self.is_indexed(index):
                        note(size, Use(strided=True))
            elif isinstance(node, cst.Comparison):
                tiles.mask(node, found)
            elif isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo):
                tiles.mask(node.left, found)
            elif isinstance(node, cst.Call):
                self._note_call(node, note, tiles, found)
        for header in self.headers:
            for argument in header.args:
                note(argument.value, Use(looped=True))
            if self._sweeps(header, found):
                note(header, Use(sweeps=True))
        for loop in find(self.body, cst.While):
            note(loop.test, Use(looped=True))
        return found

    def _is_size(self, expression: cst.BaseExpression, found: dict[str, Use]) -> bool:
        """Whether `expression` is made of sizes alone: `BLOCK`, `BLOCK * ROWS`, a local name for one of them."""
        names = roots(expression, self.scope)
        return bool(names & found.keys()) and all(n in found or n in self.scope.bindings for n in names)

    def _sweeps(self, header: cst.Call, found: dict[str, Use]) -> bool:
        """Whether a loop goes from the program's index on in steps of the number of programs.

        A step by a tile's size is a loop within the program's own part (attention's keys up to its queries).
        """
        if len(header.args) < 3 or not self.is_indexed(header.args[0].value):
            return False
        step = header.args[2].value
        by_programs = any(self._names.calls(n, f"{TL}.num_programs") for n in reach(step, self.scope))
        return by_programs or not any(found[size].extent for size in roots(step, self.scope) & found.keys())

    def _note_call(
        self, call: cst.Call, note: Callable[[cst.CSTNode, Use], None], tiles: _TileNames, found: dict[str, Use]
    ) -> None:
        function = self._names.qualified(call.func)
        if function in _SHAPED:
            shape = tiles.shape(call)
            if shape is not None:
                note(shape, Use(extent=True))
                if function == f"{TL}.make_tensor_descriptor":
                    note(shape, Use(masked=True))
        elif function in (f"{TL}.load", f"{TL}.store") and any(
            a.keyword is not None and a.keyword.value == "boundary_check" for a in call.args
        ):
            tiles.mask(call.args[0].value, found)
        helper = self._helper(call)
        if helper is not None:
            self._note_helper(call, helper, note)

    def _helper(self, call: cst.Call) -> Kernel | None:
        if isinstance(call.func, cst.Name) and call.func.value not in self._calling:
            return self.module.kernels.get(call.func.value)
        return None

    def _note_helper(self, call: cst.Call, helper: Kernel, note: Callable[[cst.CSTNode, Use], None]) -> None:
        """What the helper does with an argument, this kernel does with it."""
        bound, _ = bind(call, helper.parameters)
        indexed = frozenset(name for name, argument in bound.items() if self.is_indexed(argument.value))
        flow = KernelFlow(self.module, helper, indexed, self._calling)
        for name, use in flow.uses.items():
            if name in bound:
                note(bound[name].value, use)


class _TileNames:
    """Which sizes stand behind the tiles that an expression is made from."""

    def __init__(self, flow: KernelFlow) -> None:
        self._flow = flow

    def shape(self, call: cst.Call) -> cst.BaseExpression | None:
        """The argument that sizes the tile which `call` makes."""
        position, keyword = _SHAPED[str(self._flow.module.names.qualified(call.func))]
        for argument in call.args:
            if argument.keyword is not None and argument.keyword.value == keyword:
                return argument.value
        if len(call.args) > position and call.args[position].keyword is None and not call.args[position].star:
            return call.args[position].value
        return None

    def mask(self, expression: cst.CSTNode, found: dict[str, Use]) -> None:
        """Mark the sizes of the tiles that `expression` is made from as masked."""
        for node in reach(expression, self._flow.scope):
            if isinstance(node, cst.Call) and self._flow.module.names.qualified(node.func) in _SHAPED:
                shape = self.shape(node)
                if shape is not None:
                    for name in roots(shape, self._flow.scope) & found.keys():
                        found[name] |= Use(masked=True)
