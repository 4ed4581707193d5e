"""The `inject` generator's part: a person's own version, looked at before it is queued.

What cannot be read or lacks the entry is refused with a sentence; everything else is judged like any candidate.
"""

from __future__ import annotations

import ast

from kbtui import syntax
from kbtui.errors import UsageError
from kbtui.generate.generator import Written

MOST_BYTES = 1 << 20
"""Source above 1 MiB is no kernel."""


def injected(source: str, entry: str, name: str) -> Written:
    """`source` as a version called `name` (a file name, say).

    Raises UsageError when it is empty, too long, does not parse, or does not define `entry`.
    """
    size = len(source.encode("utf-8", "surrogatepass"))
    if not source.strip():
        raise UsageError(f"{name} is empty: give a file that defines {entry}(...)")
    if size > MOST_BYTES:
        raise UsageError(f"{name} has {size} bytes: a version may have at most {MOST_BYTES}")
    try:
        tree = syntax.parse(source)
    except SyntaxError as error:
        raise UsageError(f"{name}, line {error.lineno}: {error.msg}; correct it and inject again") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{name} cannot be read as Python ({error}); correct it and inject again") from None
    if entry not in _bound_names(tree):
        raise UsageError(f"{name} does not define {entry}, which the problem calls: define it at the top level")
    return Written(source=source, move=name, detail="written by a person")


def _bound_names(tree: ast.Module) -> set[str]:
    """The names that running the module binds at its top level, branches included."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
        else:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            waiting.extend(ast.iter_child_nodes(node))
    return names
