"""One kernel file out of several versions that win on different cases: its entry picks by the arguments' sizes.

Pure: `dispatched` writes the file; which version wins where is found elsewhere, from what was measured.
What the versions share stays once; what differs between them, or uses what differs, gets a number behind its name.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from kbtui import syntax
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edit, find, mentioned
from kbtui.generate.tree.pure import bound
from kbtui.generate.tree.scopes import Scope

MOST_INTERVALS = 4
"""More changes of the winner along one size are noise or need another size."""


@dataclass(frozen=True)
class Interval:
    """Version number `version` serves sizes up to `most`, the last interval (None) all above."""

    most: int | None
    version: int


@dataclass(frozen=True)
class Rule:
    """`size` is code over the entry's parameters that gives an integer, such as "x.shape[-1]"; intervals ascend."""

    size: str
    intervals: tuple[Interval, ...]


def dispatched(versions: Sequence[str], entry: str, rule: Rule) -> str:
    """A file whose `entry` calls the version that the rule names for its arguments.

    Raises ValueError when a version does not define the entry as a plain function, when their parameters differ, when a
    version imports from `__future__` what the first does not, or when the rule names a version that is not there.
    """
    if not all(0 <= each.version < len(versions) for each in rule.intervals):
        raise ValueError(f"the rule names a version that is not among the {len(versions)} given")
    modules = [KernelModule(source, entry) for source in versions]
    entries = [_entry(module, number) for number, module in enumerate(modules)]
    signatures = {module.code(function.params) for module, function in zip(modules, entries, strict=True)}
    if len(signatures) > 1:
        raise ValueError(f"the versions of {entry} take different parameters: {' / '.join(sorted(signatures))}")
    first = modules[0]
    numbered = _numbered(modules)
    taken = {name.value for module in modules for name in find(module.tree, cst.Name)}
    parts = [first.rewritten(_renamed(first, numbered, 0, taken)).rstrip("\n")]
    for number, module in enumerate(modules[1:], 1):
        parts.extend(_own(module, first, numbered, number, taken))
    parts.append(_picking(first, entries[0], rule, taken))
    return "\n\n\n".join(parts) + "\n"


def parameters(source: str, entry: str) -> tuple[str, ...]:
    """The names of the entry's parameters, by position; empty where `source` does not define it as a function."""
    for node in syntax.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args))
    return ()


def _entry(module: KernelModule, number: int) -> cst.FunctionDef:
    function = module.function(module.entry)
    if function is None or function.asynchronous is not None:
        raise ValueError(f"version {number} does not define {module.entry} as one plain function")
    parameters = function.params
    if parameters.posonly_params or isinstance(parameters.star_arg, cst.Param) or parameters.star_kwarg is not None:
        raise ValueError(
            f"{module.entry} takes *args, **kwargs or positional-only parameters, which cannot be passed on"
        )
    return function


def _numbered(modules: Sequence[KernelModule]) -> set[str]:
    """The top-level names that mean different things in the versions, and those whose statements mention one of them."""
    for name in {name for module in modules for name in _imported(module.tree)}:
        meanings = {_meaning(module, name) for module in modules} - {None}
        if len(meanings) > 1:
            raise ValueError(f"the versions mean different things by {name}: {', '.join(sorted(map(str, meanings)))}")
    defined = [_defined(module) for module in modules]
    names = {name for definitions in defined for name in definitions}
    changed = {name for name in names if len({d[name] for d in defined if name in d}) > 1}
    changed.add(modules[0].entry)
    while True:
        uses = {
            name
            for module in modules
            for statement in module.tree.body
            if mentioned(statement) & changed
            for name in bound(statement)
        }
        if uses <= changed:
            return changed
        changed |= uses


def _defined(module: KernelModule) -> dict[str, str]:
    """Top-level name to the code of all statements that bind it, imports apart."""
    found: dict[str, str] = {}
    for statement in module.tree.body:
        for name in bound(statement):
            found[name] = found.get(name, "") + module.code(statement).strip()
    return found


def _imported(tree: cst.CSTNode) -> set[str]:
    """The names that the imports at or below a node bind."""
    aliases = find(tree, cst.ImportAlias)
    return {alias.evaluated_alias or alias.evaluated_name.partition(".")[0] for alias in aliases}


def _meaning(module: KernelModule, name: str) -> str | None:
    """What a name that some version imports is in this one: the module or function, or a definition of the file."""
    if name in module.module_scope.bindings:
        return "a definition of the file"
    return module.names.qualified(cst.Name(name)) if name in _imported(module.tree) else None


def _renamed(module: KernelModule, names: set[str], number: int, taken: set[str]) -> dict[cst.CSTNode, Edit]:
    """The edits that put the version's number behind every mention of a module-level name."""
    labels: set[cst.CSTNode] = {n.attr for n in find(module.tree, cst.Attribute)}
    labels |= {n.keyword for n in find(module.tree, cst.Arg) if n.keyword is not None}
    found: dict[cst.CSTNode, Edit] = {}
    for node in find(module.tree, cst.Name):
        if node.value not in names or node in labels:
            continue
        owner = _scope_of_use(module, node).owner(node.value)
        if owner is None or owner is module.module_scope:
            new = _with_number(node.value, number, taken)
            found[node] = lambda name, new=new: name.with_changes(value=new)  # type: ignore[misc]
    return found


def _scope_of_use(module: KernelModule, node: cst.CSTNode) -> Scope:
    """Where a name is looked up: names, defaults, annotations and decorators of a function belong to what is around it."""
    here = node
    while here in module.above:
        above = module.above[here]
        outside = (
            (isinstance(above, cst.FunctionDef) and here is not above.body and here is not above.params)
            or (isinstance(above, cst.ClassDef) and here is not above.body)
            or (isinstance(above, cst.Param) and here is not above.name)
        )
        if outside:
            holder = above
            while not isinstance(holder, cst.FunctionDef | cst.Lambda | cst.ClassDef):
                holder = module.above[holder]
            return module.scope_of(module.above[holder])
        if isinstance(above, cst.FunctionDef | cst.Lambda):
            break
        here = above
    return module.scope_of(node)


def _with_number(name: str, number: int, taken: set[str]) -> str:
    new = f"{name}_{number}"
    while new in taken:
        new += "_"
    return new


def _own(module: KernelModule, first: KernelModule, names: set[str], number: int, taken: set[str]) -> list[str]:
    """The statements of a later version that the first one does not have, under their numbered names."""
    edits = _renamed(module, names, number, taken)
    shared = {first.code(statement).strip() for statement in first.tree.body}
    left_out: dict[cst.CSTNode, Edit] = {}
    for index, statement in enumerate(module.tree.body):
        text = index == 0 and not bound(statement) and not _imported(statement)
        same = module.code(statement).strip() in shared and not (bound(statement) & names)
        if any(_is_future(n) for n in find(statement, cst.ImportFrom)) and not same:
            raise ValueError(f"version {number} imports from __future__ what the first version does not")
        if text or same:
            left_out[statement] = lambda _node: []
    kept = {node: edit for node, edit in edits.items() if not _below(module, node, left_out)}
    source = module.rewritten({**kept, **left_out}).strip("\n")
    return [source] if source else []


def _is_future(node: cst.ImportFrom) -> bool:
    return isinstance(node.module, cst.Name) and node.module.value == "__future__"


def _below(module: KernelModule, node: cst.CSTNode, statements: Mapping[cst.CSTNode, Edit]) -> bool:
    here: cst.CSTNode | None = node
    while here is not None:
        if here in statements:
            return True
        here = module.above.get(here)
    return False


def _picking(module: KernelModule, function: cst.FunctionDef, rule: Rule, taken: set[str]) -> str:
    """The entry: it measures its arguments and calls a version."""
    parameters = function.params
    given = [p.name.value for p in parameters.params] + [
        f"{p.name.value}={p.name.value}" for p in parameters.kwonly_params
    ]
    (size,) = [name for name in ("size", "size_", "size__") if name not in taken][:1]
    lines = [f"def {module.entry}({module.code(parameters)}):", f"    {size} = {rule.size}"]
    for interval in rule.intervals:
        call = f"{_with_number(module.entry, interval.version, taken)}({', '.join(given)})"
        if interval.most is None:
            lines.append(f"    return {call}")
        else:
            lines.extend([f"    if {size} <= {interval.most}:", f"        return {call}"])
    return "\n".join(lines)
