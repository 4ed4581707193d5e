"""Which expressions a name is bound to in a function or a module: flow-insensitive, every binding counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import libcst as cst

from kbtui.generate.tree.nodes import walk_within

Holder = cst.FunctionDef | cst.Lambda | cst.Module


@dataclass(frozen=True)
class Binding:
    """One way a name gets its value. `value` is None where no single expression gives it (a loop, `with`, `+=`, import).

    `feeds` are the expressions that the value depends on, known or not.
    """

    value: cst.BaseExpression | None
    feeds: tuple[cst.BaseExpression, ...] = ()


@dataclass(frozen=True, eq=False)
class Scope:
    """The names bound in one function, lambda or module, and the scope around it."""

    holder: Holder
    outer: Scope | None = field(default=None, repr=False)

    @cached_property
    def bindings(self) -> dict[str, list[Binding]]:
        """Name to its bindings by statements, in source order; parameters are not among them."""
        found: dict[str, list[Binding]] = {}
        if not isinstance(self.holder, cst.Lambda):
            body = self.holder.body if isinstance(self.holder, cst.FunctionDef) else self.holder
            for node in walk_within(body):
                for name, binding in _bound(node):
                    found.setdefault(name, []).append(binding)
        return found

    @cached_property
    def parameters(self) -> dict[str, cst.Param]:
        """Name to parameter, in order."""
        if isinstance(self.holder, cst.Module):
            return {}
        return {p.name.value: p for p in all_parameters(self.holder.params)}

    def owner(self, name: str) -> Scope | None:
        """The innermost scope that binds `name`."""
        here: Scope | None = self
        while here is not None:
            if name in here.bindings or name in here.parameters:
                return here
            here = here.outer
        return None


def all_parameters(parameters: cst.Parameters) -> list[cst.Param]:
    """Every parameter, `*args` and `**kwargs` included."""
    found = [*parameters.posonly_params, *parameters.params]
    if isinstance(parameters.star_arg, cst.Param):
        found.append(parameters.star_arg)
    found.extend(parameters.kwonly_params)
    if parameters.star_kwarg is not None:
        found.append(parameters.star_kwarg)
    return found


def _bound(node: cst.CSTNode) -> Iterator[tuple[str, Binding]]:
    if isinstance(node, cst.Assign):
        for target in node.targets:
            yield from _targets(target.target, node.value)
    elif isinstance(node, cst.AnnAssign | cst.NamedExpr):
        if node.value is not None:
            yield from _targets(node.target, node.value)
    elif isinstance(node, cst.AugAssign):
        yield from ((name, Binding(None, (node.target, node.value))) for name in _names(node.target))
    elif isinstance(node, cst.For | cst.CompFor):
        yield from ((name, Binding(None, _counted(node.iter))) for name in _names(node.target))
    elif isinstance(node, cst.AsName):
        yield from ((name, Binding(None)) for name in _names(node.name))
    elif isinstance(node, cst.FunctionDef | cst.ClassDef):
        yield node.name.value, Binding(None)


def _counted(iterated: cst.BaseExpression) -> tuple[cst.BaseExpression, ...]:
    """What a loop's variable is computed from: of a range its start and step. Its end only says when to stop."""
    if isinstance(iterated, cst.Call):
        function = iterated.func.attr if isinstance(iterated.func, cst.Attribute) else iterated.func
        plain = [a.value for a in iterated.args if a.keyword is None and not a.star]
        if isinstance(function, cst.Name) and function.value in ("range", "static_range") and plain:
            return tuple(plain[:1] + plain[2:]) if len(plain) > 1 else ()
    return (iterated,)


def _targets(target: cst.BaseExpression, value: cst.BaseExpression) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, cst.Name):
        yield target.value, Binding(value, (value,))
    elif isinstance(target, cst.Tuple | cst.List):
        paired = isinstance(value, cst.Tuple | cst.List) and len(value.elements) == len(target.elements)
        if paired and not any(isinstance(e, cst.StarredElement) for e in (*target.elements, *value.elements)):  # type: ignore[attr-defined]
            for left, right in zip(target.elements, value.elements, strict=True):  # type: ignore[attr-defined]
                yield from _targets(left.value, right.value)
        else:
            yield from ((name, Binding(None, (value,))) for name in _names(target))


def _names(target: cst.CSTNode) -> Iterator[str]:
    """The plain names that an assignment to `target` binds; attributes and items bind none."""
    if isinstance(target, cst.Name):
        yield target.value
    elif isinstance(target, cst.Tuple | cst.List):
        for element in target.elements:
            yield from _names(element.value)
