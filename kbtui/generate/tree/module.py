"""A kernel file as the moves see it: the kernels and launches that the entry reaches, and where names are bound."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from kbtui.generate.tree.names import Names
from kbtui.generate.tree.nodes import Edits, find, parents, rebuild, walk
from kbtui.generate.tree.scopes import Holder, Scope, all_parameters

T = TypeVar("T")

_JIT = ("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit")
CONFIG = ("triton.Config", "triton.runtime.Config", "triton.runtime.autotuner.Config")
_CONSTEXPR = ("triton.language.constexpr", "triton.language.core.constexpr")


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function under `@triton.jit`, a helper that other kernels call included."""

    name: str
    node: cst.FunctionDef = field(repr=False)
    scope: Scope = field(repr=False)
    constexprs: tuple[str, ...]
    """The parameters annotated `tl.constexpr`."""
    tuned: bool
    """Under `@triton.autotune`."""
    configs: tuple[cst.Call, ...] = field(repr=False)
    """The `triton.Config(...)` calls of its autotune list, as far as they are written out."""
    heuristics: dict[str, cst.BaseExpression] = field(repr=False)
    """Parameter to what `@triton.heuristics` computes it from."""

    @property
    def parameters(self) -> list[str]:
        return list(self.scope.parameters)

    def default(self, parameter: str) -> cst.BaseExpression | None:
        found = self.scope.parameters.get(parameter)
        return found.default if found is not None else None


@dataclass(frozen=True, eq=False)
class Launch:
    """One `kernel[grid](...)`."""

    call: cst.Call = field(repr=False)
    kernel: Kernel
    scope: Scope = field(repr=False)
    bound: dict[str, cst.Arg] = field(repr=False)
    """Kernel parameter or launch option to the argument that gives it."""
    open: bool
    """Whether `*args` or `**kwargs` may give more."""

    @property
    def grid(self) -> list[cst.BaseExpression]:
        """What stands between the brackets: one expression, or several for `kernel[a, b]`."""
        assert isinstance(self.call.func, cst.Subscript)
        return [e.slice.value for e in self.call.func.slice if isinstance(e.slice, cst.Index)]


class KernelModule:
    """Raises `libcst.ParserSyntaxError` for source that does not parse."""

    def __init__(self, source: str, entry: str) -> None:
        self.source = source
        self.entry = entry
        self.tree = cst.parse_module(source)
        self.names = Names(self.tree)
        self.above = parents(self.tree)
        self.module_scope = Scope(self.tree)
        self._scopes: dict[Holder, Scope] = {self.tree: self.module_scope}
        self._memo: dict[Hashable, object] = {}
        self._reached = self._reach()

    def memo(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, computed once for each key: the analyses of a module keep their results here."""
        if key not in self._memo:
            self._memo[key] = make()
        return cast(T, self._memo[key])

    # ------------------------------------------------------------ where things are

    def scope_of(self, node: cst.CSTNode) -> Scope:
        """The innermost function, lambda or module around `node`; for a function, the scope inside it."""
        here: cst.CSTNode | None = node
        while here is not None and not isinstance(here, Holder):
            here = self.above.get(here)
        holder = self.tree if here is None else here
        if holder not in self._scopes:
            outer = self.scope_of(self.above.get(holder, self.tree))
            self._scopes[holder] = Scope(holder, outer)
        return self._scopes[holder]

    def line(self, node: cst.CSTNode) -> int:
        """The line on which `node` starts, from 1."""
        return self._positions[node].start.line

    @cached_property
    def _positions(self) -> dict[cst.CSTNode, CodeRange]:
        return dict(MetadataWrapper(self.tree, unsafe_skip_copy=True).resolve(PositionProvider))

    def code(self, node: cst.CSTNode) -> str:
        return self.tree.code_for_node(node)

    def rewritten(self, edits: Edits) -> str:
        """The whole source with `edits` made and everything else as it was."""
        return rebuild(self.tree, edits, self.above).code

    # ------------------------------------------------------------ what the entry reaches

    def _reach(self) -> list[cst.CSTNode]:
        """The top-level statements that the entry mentions, directly or through others."""
        binds: dict[str, list[cst.CSTNode]] = {}
        mentions: dict[cst.CSTNode, set[str]] = {}
        for statement in self.tree.body:
            mentions[statement] = {name.value for name in find(statement, cst.Name)}
            for name in _bound_at_top(statement):
                binds.setdefault(name, []).append(statement)
        reached: dict[cst.CSTNode, None] = {}
        waiting = [self.entry]
        seen = {self.entry}
        while waiting:
            for binder in binds.get(waiting.pop(), []):
                reached[binder] = None
                fresh = mentions[binder] - seen
                seen |= fresh
                waiting.extend(sorted(fresh))
        return [statement for statement in self.tree.body if statement in reached]

    def reached(self, kind: type[cst.Call] | type[cst.FunctionDef]) -> Iterable[cst.CSTNode]:
        """All nodes of a class in what the entry reaches, in source order."""
        return (node for statement in self._reached for node in walk(statement) if isinstance(node, kind))

    @cached_property
    def kernels(self) -> dict[str, Kernel]:
        """By name. A name defined twice is left out: which of them runs is not known without running."""
        found: dict[str, Kernel] = {}
        twice: set[str] = set()
        for node in self.reached(cst.FunctionDef):
            assert isinstance(node, cst.FunctionDef)
            if self._is_kernel(node):
                twice.update({node.name.value} & found.keys())
                found[node.name.value] = self._kernel(node)
        return {name: kernel for name, kernel in found.items() if name not in twice}

    @cached_property
    def launches(self) -> list[Launch]:
        """In source order."""
        found = []
        for node in self.reached(cst.Call):
            assert isinstance(node, cst.Call)
            target = node.func.value if isinstance(node.func, cst.Subscript) else None
            if isinstance(target, cst.Name) and target.value in self.kernels:
                kernel = self.kernels[target.value]
                bound, is_open = bind(node, kernel.parameters)
                found.append(Launch(node, kernel, self.scope_of(node), bound, is_open))
        return found

    def launches_of(self, kernel: Kernel) -> list[Launch]:
        return [launch for launch in self.launches if launch.kernel is kernel]

    @cached_property
    def launched(self) -> list[Kernel]:
        """The kernels that are launched, in source order; helpers are not among them."""
        return [k for k in self.kernels.values() if self.launches_of(k)]

    # ------------------------------------------------------------ reading one kernel

    def _is_kernel(self, node: cst.FunctionDef) -> bool:
        for decorator in node.decorators:
            inner = decorator.decorator
            if self.names.qualified(inner.func if isinstance(inner, cst.Call) else inner) in _JIT:
                return True
        return False

    def _kernel(self, node: cst.FunctionDef) -> Kernel:
        tuned, configs, heuristics = False, [], {}
        for decorator in node.decorators:
            inner = decorator.decorator
            if self.names.calls(inner, "triton.autotune", "triton.runtime.autotune") and isinstance(inner, cst.Call):
                tuned = True
                configs = self._configs(inner)
            elif self.names.calls(inner, "triton.heuristics", "triton.runtime.heuristics") and isinstance(
                inner, cst.Call
            ):
                heuristics = _heuristics(inner)
        constexprs = tuple(
            p.name.value
            for p in all_parameters(node.params)
            if p.annotation is not None and self.names.qualified(_unquoted(p.annotation.annotation)) in _CONSTEXPR
        )
        return Kernel(node.name.value, node, self.scope_of(node), constexprs, tuned, tuple(configs), heuristics)

    def _configs(self, autotune: cst.Call) -> list[cst.Call]:
        bound, _ = bind(autotune, ["configs", "key"])
        given = bound["configs"].value if "configs" in bound else None
        return [
            e.value
            for listed in self._lists(given, frozenset())
            for e in listed.elements
            if isinstance(e.value, cst.Call) and self.names.calls(e.value, *CONFIG)
        ]

    def _lists(self, given: cst.BaseExpression | None, seen: frozenset[str]) -> Iterator[cst.List]:
        """The lists that an expression stands for: by name, or returned by a function of the module without arguments."""
        if isinstance(given, cst.List):
            yield given
        elif isinstance(given, cst.Name) and given.value not in seen:
            values = self.module_scope.bindings.get(given.value, [])
            if len(values) == 1:
                yield from self._lists(values[0].value, seen | {given.value})
        elif isinstance(given, cst.Call) and isinstance(given.func, cst.Name) and not given.args:
            function = self.function(given.func.value)
            if function is not None and given.func.value not in seen:
                for node in find(function.body, cst.Return):
                    yield from self._lists(node.value, seen | {given.func.value})

    def function(self, name: str) -> cst.FunctionDef | None:
        """The top-level function of that name, if there is just one and nothing else has the name."""
        found = [s for s in self.tree.body if isinstance(s, cst.FunctionDef) and s.name.value == name]
        return found[0] if len(found) == 1 and len(self.module_scope.bindings.get(name, [])) == 1 else None


def bind(call: cst.Call, parameters: list[str]) -> tuple[dict[str, cst.Arg], bool]:
    """Parameter (or other keyword) to argument, and whether starred arguments may give more.

    Positional arguments behind a `*args` are bound to nothing.
    """
    bound: dict[str, cst.Arg] = {}
    is_open = False
    for index, argument in enumerate(call.args):
        if argument.star:
            is_open = True
        elif argument.keyword is not None:
            bound[argument.keyword.value] = argument
        elif not is_open and index < len(parameters):
            bound[parameters[index]] = argument
    return bound, is_open


def _heuristics(call: cst.Call) -> dict[str, cst.BaseExpression]:
    bound, _ = bind(call, ["values"])
    values = bound["values"].value if "values" in bound else None
    if not isinstance(values, cst.Dict):
        return {}
    return {
        str(e.key.evaluated_value): e.value.body
        for e in values.elements
        if isinstance(e, cst.DictElement) and isinstance(e.key, cst.SimpleString) and isinstance(e.value, cst.Lambda)
    }


def _unquoted(annotation: cst.BaseExpression) -> cst.BaseExpression:
    """`"tl.constexpr"` in quotes is read like the expression; other strings stay what they are."""
    if isinstance(annotation, cst.SimpleString) and isinstance(annotation.evaluated_value, str):
        try:
            return cst.parse_expression(annotation.evaluated_value)
        except cst.ParserSyntaxError:
            return annotation
    return annotation


def _bound_at_top(statement: cst.CSTNode) -> list[str]:
    if isinstance(statement, cst.FunctionDef | cst.ClassDef):
        return [statement.name.value]
    return list(Scope(cst.Module(body=[statement])).bindings)  # type: ignore[list-item]
