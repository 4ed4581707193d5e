"""Walking and rebuilding a libcst tree: only what matters, and only where something changes.

libcst's own visitors rebuild every node they pass, which costs more than all the analysis here. `walk` follows the
fields that carry meaning and skips layout; `rebuild` copies the path from the root to each edit and shares the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import TypeVar

import libcst as cst

Edit = Callable[[cst.CSTNode], cst.CSTNode | Sequence[cst.CSTNode]]
"""Gets a node with the edits below it already made; gives what stands in its place (several, where it is in a list)."""
Edits = Mapping[cst.CSTNode, Edit]

N = TypeVar("N", bound=cst.CSTNode)

_LAYOUT = ("whitespace", "leading_lines", "lines_after", "trailing", "header", "footer", "lpar", "rpar", "comma")


@cache
def _meaningful(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if not f.name.startswith(_LAYOUT))


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The direct children in source order, without layout."""
    for name in _meaningful(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, tuple | list):
            yield from (item for item in value if isinstance(item, cst.CSTNode))


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """`node` and all below it, in source order."""
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        stack.extend(reversed(list(children(here))))


def walk_within(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """As `walk`, but does not enter functions, lambdas and classes below `node`: they have scopes of their own.

    The nested nodes themselves are given.
    """
    stack = list(reversed(list(children(node))))
    while stack:
        here = stack.pop()
        yield here
        if not isinstance(here, cst.FunctionDef | cst.ClassDef | cst.Lambda):
            stack.extend(reversed(list(children(here))))


def find(node: cst.CSTNode, kind: type[N]) -> Iterator[N]:
    """All nodes of a class at or below `node`, in source order."""
    return (below for below in walk(node) if isinstance(below, kind))


def mentioned(node: cst.CSTNode) -> set[str]:
    """The names at or below `node` that stand for values: keywords of calls and attributes are none."""
    labels = {n.keyword for n in find(node, cst.Arg)} | {n.attr for n in find(node, cst.Attribute)}
    return {n.value for n in find(node, cst.Name) if n not in labels}


def parents(root: cst.CSTNode) -> dict[cst.CSTNode, cst.CSTNode]:
    """Child to parent, for every node that `walk` gives."""
    above: dict[cst.CSTNode, cst.CSTNode] = {}
    for node in walk(root):
        for child in children(node):
            above[child] = node
    return above


def is_bare_return(statement: cst.CSTNode) -> bool:
    """Whether it is `return` alone: at the end of a body it does nothing."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    return isinstance(statement.body[0], cst.Return) and statement.body[0].value is None


def rebuild(root: cst.Module, edits: Edits, above: Mapping[cst.CSTNode, cst.CSTNode]) -> cst.Module:
    """The tree with `edits` made, inner ones first. Everything else is shared with `root`, layout and comments included.

    Raises ValueError for an edit of a node that is not in the tree: it would be lost without a word.
    """
    if any(target is not root and target not in above for target in edits):
        raise ValueError("an edit belongs to another tree")
    return substitute(root, edits, above)


def substitute(node: N, edits: Edits, above: Mapping[cst.CSTNode, cst.CSTNode]) -> N:
    """`node` with `edits` made at or below it; edits elsewhere are left out. `node` itself must become one node of its kind."""
    touched: set[cst.CSTNode] = set()
    for target in edits:
        here: cst.CSTNode | None = target
        while here is not None and here not in touched:
            touched.add(here)
            here = above.get(here)
    if node not in touched:
        return node
    (made,) = _rebuilt(node, edits, touched)
    assert isinstance(made, type(node))
    return made


def _rebuilt(node: cst.CSTNode, edits: Edits, touched: set[cst.CSTNode]) -> list[cst.CSTNode]:
    changes: dict[str, object] = {}
    for name in _meaningful(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            if value in touched:
                (changes[name],) = _rebuilt(value, edits, touched)
        elif isinstance(value, tuple | list) and any(item in touched for item in value):
            changes[name] = [
                new for item in value for new in (_rebuilt(item, edits, touched) if item in touched else [item])
            ]
    updated = node.with_changes(**changes) if changes else node
    edit = edits.get(node)
    if edit is None:
        return [updated]
    result = edit(updated)
    return [result] if isinstance(result, cst.CSTNode) else list(result)
