"""Parsing Python source from any thread.

`ast.parse` is not safe in threads under Python 3.11: the interpreter counts the depth of the tree it builds in one place for
all threads, and when the garbage collector lets another thread in, one of them fails with a SystemError. Every part of
kbtui that may run beside others parses here.
"""

from __future__ import annotations

import ast
import threading

_parsing = threading.Lock()


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`, one at a time. Raises what it raises."""
    with _parsing:
        return ast.parse(source, filename)


def parse_expression(source: str) -> ast.Expression:
    """`ast.parse` of an expression, one at a time. Raises what it raises."""
    with _parsing:
        return ast.parse(source, mode="eval")
