"""The grid of a launch: what it depends on, and where it is written."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.tree.module import KernelModule, Launch, bind
from kbtui.generate.tree.nodes import find, walk
from kbtui.generate.tree.origins import CDIV, Origin, Origins, integer
from kbtui.generate.tree.scopes import Scope


def grid_tuple(module: KernelModule, launch: Launch) -> cst.Tuple | None:
    """The tuple that is the grid: at the launch, in a lambda, or in one assignment that serves this kernel alone."""
    if len(launch.grid) != 1:
        return None
    expression: cst.BaseExpression | None = launch.grid[0]
    if isinstance(expression, cst.Name):
        name = expression.value
        owner = launch.scope.owner(name)
        bindings = owner.bindings.get(name, []) if owner is not None else []
        others = [
            other
            for other in module.launches
            if other.kernel is not launch.kernel and _uses(other, name) and other.scope.owner(name) is owner
        ]
        if len(bindings) != 1 or others:
            return None
        expression = bindings[0].value
    if isinstance(expression, cst.Lambda):
        expression = expression.body
    return expression if isinstance(expression, cst.Tuple) else None


def grid_counts(module: KernelModule, launch: Launch) -> list[cst.BaseExpression] | None:
    """The numbers of programs along each dimension as they are written: a tuple's elements, or those of `kernel[a, b]`."""
    if len(launch.grid) > 1:
        return launch.grid
    grid = grid_tuple(module, launch)
    if grid is None or any(isinstance(e, cst.StarredElement) for e in grid.elements):
        return None
    return [e.value for e in grid.elements]


def _uses(launch: Launch, name: str) -> bool:
    return any(isinstance(e, cst.Name) and e.value == name for e in launch.grid)


class Grid:
    """The grid of one launch, through the names it is made of."""

    def __init__(self, module: KernelModule, origins: Origins, launch: Launch) -> None:
        self._module = module
        self._origins = origins
        self._launch = launch

    def nodes(self) -> list[tuple[cst.CSTNode, Scope]]:
        """Every node the grid depends on, in the launching function, functions and lambdas that compute it included."""
        return self._module.memo(("grid nodes", self._launch), lambda: list(self._nodes()))

    def _nodes(self) -> Iterator[tuple[cst.CSTNode, Scope]]:
        waiting: list[cst.CSTNode] = list(self._launch.grid)
        seen: set[tuple[Scope, str]] = set()
        while waiting:
            for node in walk(waiting.pop()):
                inner = self._module.scope_of(node)
                yield node, inner
                if not isinstance(node, cst.Name):
                    continue
                owner = inner.owner(node.value)
                if owner is None or (owner, node.value) in seen:
                    continue
                seen.add((owner, node.value))
                waiting.extend(feed for b in owner.bindings.get(node.value, []) for feed in b.feeds)
                waiting.extend(function.body for function in self._functions(owner, node.value))

    def _functions(self, scope: Scope, name: str) -> list[cst.FunctionDef]:
        """The functions of that name defined in a scope."""
        holder = scope.holder
        if isinstance(holder, cst.Lambda):
            return []
        defined = self._module.memo(
            ("functions", holder),
            lambda: list(find(holder.body if isinstance(holder, cst.FunctionDef) else holder, cst.FunctionDef)),
        )
        return [function for function in defined if function.name.value == name]

    def mentions(self, parameter: str) -> bool:
        """Whether the grid reads `meta["P"]`."""
        return any(
            isinstance(node, cst.Subscript)
            and any(
                isinstance(e.slice, cst.Index)
                and isinstance(e.slice.value, cst.SimpleString)
                and e.slice.value.evaluated_value == parameter
                for e in node.slice
            )
            for node, _ in self.nodes()
        )

    def follows(self, parameter: str, origin: Origin) -> bool:
        """Whether the grid changes by itself when `origin` does."""
        if self.mentions(parameter):
            return True
        return any(
            node is origin.node or (isinstance(node, cst.Name) and node.value in origin.path)
            for node, _ in self.nodes()
        )

    def divisors(self, value: int) -> list[tuple[cst.BaseExpression, int]]:
        """The integer literals that divide by `value`, each with 0, and those that round up for it, each with -1.

        `triton.cdiv(n, 1024)` and `n // 1024` give the 1024; `(n + 1023) // 1024` gives both.
        """
        found: list[tuple[cst.BaseExpression, int]] = []
        for node, scope in self.nodes():
            dividend, divisor = self._division(node)
            if divisor is None or dividend is None:
                continue
            places = [o for o in self._origins.resolve(divisor, scope) if o.kind == "literal" and o.value == value]
            found.extend((o.node, 0) for o in places)
            if places:
                found.extend((n, -1) for n in find(dividend, cst.Integer) if integer(n) == value - 1 and value > 2)
        return [pair for i, pair in enumerate(found) if all(pair[0] is not other for other, _ in found[:i])]

    def _division(self, node: cst.CSTNode) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
        if isinstance(node, cst.Call) and self._module.names.calls(node, *CDIV):
            bound, _ = bind(node, ["x", "y"])
            if "x" in bound and "y" in bound:
                return bound["x"].value, bound["y"].value
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.FloorDivide | cst.Divide):
            return node.left, node.right
        return None, None
