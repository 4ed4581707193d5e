"""Parsing Python source from any thread.

`ast.parse` is not safe in threads under Python 3.11: the interpreter counts the depth of the tree it builds in one place for
all threads, and when the garbage collector lets another thread in, one of them fails with a SystemError. Every part of
kbtui that may run beside others parses here.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator

_parsing = threading.Lock()
_INNER = (ast.AST, list)


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`, one at a time. Raises what it raises."""
    with _parsing:
        return ast.parse(source, filename)


def parse_expression(source: str) -> ast.Expression:
    """`ast.parse` of an expression, one at a time. Raises what it raises."""
    with _parsing:
        return ast.parse(source, mode="eval")


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """Every statement at or below `tree`, parents first. An `ast.walk` over the expressions as well takes ten times as long."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("finalbody", "orelse", "cases", "handlers", "body"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):  # the body of a lambda or of `a if b else c` is an expression
                waiting.extend(reversed(inner))


def dump(node: object) -> str:
    """What `ast.dump(node, annotate_fields=False)` gives under Python 3.11, sooner and without what a later version changed:
    digests made from it stay the same."""
    if isinstance(node, list):
        return f"[{', '.join([dump(one) for one in node])}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    kind = type(node)
    given, named, held = [], False, node.__dict__
    for name in kind._fields:
        value = held.get(name)
        if value is None and (name not in held or getattr(kind, name, ...) is None):
            named = True
            continue
        shown = dump(value) if isinstance(value, _INNER) else repr(value)
        given.append(f"{name}={shown}" if named else shown)
    return f"{kind.__name__}({', '.join(given)})"
