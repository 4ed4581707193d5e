"""Digests of source: of the bytes, and of the syntax tree without comments, layout and docstrings."""

from __future__ import annotations

import ast
import hashlib

from kbtui import syntax

_WITH_DOCSTRING = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def source_digest(source: str) -> str:
    """sha256 of the UTF-8 bytes, hex."""
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def syntax_digest(source: str) -> str:
    """sha256 of the normalised syntax tree: the same for sources that differ in comments, layout or docstrings only.

    Source that does not parse is digested as it is, so that an identical broken reply is still a duplicate.
    """
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source_digest(source)
    for node in (tree, *syntax.statements(tree)):
        if isinstance(node, _WITH_DOCSTRING):
            body = node.body
            if (
                body
                and isinstance(body[0], ast.Expr)
                and isinstance(body[0].value, ast.Constant)
                and isinstance(body[0].value.value, str)
            ):
                node.body = body[1:] or [ast.Pass()]
    return hashlib.sha256(syntax.dump(tree).encode("utf-8", "surrogatepass")).hexdigest()
