"""Where a launch argument's value is written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import libcst as cst

from kbtui.generate.tree.module import KernelModule, Launch, bind
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


def constant(node: cst.CSTNode) -> int | None:
    """The value of an integer literal, or of a product of some: `64 * 1024`."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Multiply):
        left, right = constant(node.left), constant(node.right)
        return None if left is None or right is None else left * right
    return integer(node)


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
        value = constant(expression)
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
        elif isinstance(expression, cst.Subscript):
            for value_of in self._entries(expression, scope):
                yield from self.resolve(value_of, scope, visited)

    def _entries(self, item: cst.Subscript, scope: Scope) -> list[cst.BaseExpression]:
        """The values that `table[key]["NAME"]` may give, of a table written as a dict: one for each unknown key."""
        here: cst.BaseExpression = item
        keys: list[str | None] = []
        while isinstance(here, cst.Subscript):
            key = here.slice[0].slice
            text = (
                key.value.evaluated_value
                if isinstance(key, cst.Index) and isinstance(key.value, cst.SimpleString)
                else None
            )
            keys.append(text if isinstance(text, str) else None)
            here = here.value
        if not isinstance(here, cst.Name):
            return []
        owner = scope.owner(here.value)
        bound = [b.value for b in owner.bindings.get(here.value, [])] if owner is not None else []
        if len(bound) != 1 or (owner is not None and here.value in owner.parameters):
            return []
        found: list[cst.BaseExpression | None] = [bound[0]]
        for wanted in reversed(keys):
            found = [value for table in found for value in _items(table, wanted)]
        return [value for value in found if value is not None]

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


def _items(table: cst.BaseExpression | None, key: str | None) -> list[cst.BaseExpression]:
    """The values of a dict literal under a text key; all of them where the key is not known."""
    if not isinstance(table, cst.Dict):
        return []
    return [
        e.value
        for e in table.elements
        if isinstance(e, cst.DictElement)
        and (key is None or (isinstance(e.key, cst.SimpleString) and e.key.evaluated_value == key))
    ]


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
