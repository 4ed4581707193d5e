"""Where a launch argument's value is written down, and whether the grid follows when it changes there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import libcst as cst

from kbtui.generate.tree.module import KernelModule, Launch, bind
from kbtui.generate.tree.nodes import find, walk
from kbtui.generate.tree.scopes import Scope

NEXT_POWER = ("triton.next_power_of_2", "triton.language.next_power_of_2")
CDIV = ("triton.cdiv", "triton.language.cdiv")

Kind = Literal["literal", "power"]


@dataclass(frozen=True, eq=False)
class Origin:
    """A place in the source that gives a value.

    `literal`: an integer, `value`. `power`: a call of `triton.next_power_of_2`.
    """

    node: cst.BaseExpression
    kind: Kind
    value: int = 0
    path: frozenset[str] = frozenset()
    """The names in the launching function through which the value reaches the launch."""
    cap: bool = False
    """Whether it only bounds the value: an argument of `min`."""


def integer(node: cst.CSTNode) -> int | None:
    """The value of an integer literal."""
    return node.evaluated_value if isinstance(node, cst.Integer) else None


class Origins:
    """Follows names backwards through one module. Gives nothing where it cannot see: never a guess."""

    def __init__(self, module: KernelModule) -> None:
        self._module = module

    def of(self, launch: Launch, parameter: str) -> list[Origin]:
        """Every place that may give `parameter` of a launch: several where branches or callers differ."""
        kernel = launch.kernel
        if parameter in launch.bound:
            return list(self.resolve(launch.bound[parameter].value, launch.scope))
        if launch.open:
            return []
        if parameter in kernel.heuristics:
            return list(self.resolve(kernel.heuristics[parameter], self._module.module_scope))
        if any(parameter in entries(config) for config in kernel.configs) or (kernel.tuned and not kernel.configs):
            return []
        default = kernel.default(parameter)
        if default is not None:
            return list(self.resolve(default, self._module.module_scope))
        if parameter not in kernel.scope.parameters:
            return list(self._named(parameter, self._module.module_scope, frozenset()))
        return []

    def resolve(
        self, expression: cst.BaseExpression, scope: Scope, visited: frozenset[tuple[Scope, str]] = frozenset()
    ) -> Iterator[Origin]:
        names = self._module.names
        value = integer(expression)
        if value is not None:
            yield Origin(expression, "literal", value)
        elif isinstance(expression, cst.Name):
            yield from self._named(expression.value, scope, visited)
        elif isinstance(expression, cst.IfExp):
            for branch in (expression.body, expression.orelse):
                yield from self.resolve(branch, scope, visited)
        elif names.calls(expression, *NEXT_POWER):
            yield Origin(expression, "power")
        elif names.calls(expression, "triton.language.constexpr", "int") and isinstance(expression, cst.Call):
            if len(expression.args) == 1:
                yield from self.resolve(expression.args[0].value, scope, visited)
        elif names.calls(expression, "min", "max") and isinstance(expression, cst.Call):
            yield from self._clipped(expression, scope, visited)

    def _clipped(self, call: cst.Call, scope: Scope, visited: frozenset[tuple[Scope, str]]) -> Iterator[Origin]:
        """`min(cap, computed)`: the cap can be moved. `max(least, computed)`: the least is a hard limit, it cannot."""
        lowest = self._module.names.calls(call, "min")
        found = [origin for argument in call.args for origin in self.resolve(argument.value, scope, visited)]
        for origin in found:
            if lowest and origin.kind == "literal":
                yield replace(origin, cap=True)
            elif not lowest and origin.kind == "power":
                yield origin

    def _named(self, name: str, scope: Scope, visited: frozenset[tuple[Scope, str]]) -> Iterator[Origin]:
        owner = scope.owner(name)
        if owner is None or (owner, name) in visited:
            return
        visited |= {(owner, name)}
        bindings = owner.bindings.get(name, [])
        if any(binding.value is None for binding in bindings):
            return
        for binding in bindings:
            assert binding.value is not None
            for origin in self.resolve(binding.value, owner, visited):
                yield replace(origin, path=origin.path | {name})
        if name in owner.parameters and isinstance(owner.holder, cst.FunctionDef):
            for origin in self._passed(name, owner, owner.holder, visited):
                yield replace(origin, path=origin.path | {name})

    def _passed(
        self, name: str, owner: Scope, function: cst.FunctionDef, visited: frozenset[tuple[Scope, str]]
    ) -> Iterator[Origin]:
        """A parameter's value: what reached callers pass for it, and its default where one of them passes nothing.

        Names on the caller's side are not on the path: the launch's grid does not see them.
        """
        calls = [c for c in self._module.reached(cst.Call) if _calls(c, function.name.value)]
        defaulted = not calls or function.name.value == self._module.entry
        for call in calls:
            assert isinstance(call, cst.Call)
            bound, is_open = bind(call, list(owner.parameters))
            if name in bound:
                for origin in self.resolve(bound[name].value, self._module.scope_of(call), visited):
                    yield replace(origin, path=frozenset())
            elif not is_open:
                defaulted = True
        default = owner.parameters[name].default
        if defaulted and default is not None:
            yield from self.resolve(default, self._module.module_scope, visited)


def _calls(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == name


def entries(config: cst.Call) -> dict[str, cst.BaseExpression]:
    """The sizes that a `triton.Config({...}, ...)` gives, as written."""
    bound, _ = bind(config, ["kwargs"])
    given = bound["kwargs"].value if "kwargs" in bound else None
    if isinstance(given, cst.Dict):
        return {
            str(e.key.evaluated_value): e.value
            for e in given.elements
            if isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString)
        }
    if isinstance(given, cst.Call) and isinstance(given.func, cst.Name) and given.func.value == "dict":
        return {a.keyword.value: a.value for a in given.args if a.keyword is not None}
    return {}


class Grid:
    """The grid of one launch, through the names it is made of."""

    def __init__(self, module: KernelModule, origins: Origins, launch: Launch) -> None:
        self._module = module
        self._origins = origins
        self._launch = launch

    def nodes(self) -> Iterator[tuple[cst.CSTNode, Scope]]:
        """Every node the grid depends on, in the launching function, functions and lambdas that compute it included."""
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
                waiting.extend(function.body for function in _functions(owner, node.value))

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


def _functions(scope: Scope, name: str) -> Iterator[cst.FunctionDef]:
    """The functions of that name defined in a scope."""
    if isinstance(scope.holder, cst.FunctionDef | cst.Module):
        for node in find(
            scope.holder.body if isinstance(scope.holder, cst.FunctionDef) else scope.holder, cst.FunctionDef
        ):
            if node.name.value == name:
                yield node
