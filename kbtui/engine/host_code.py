"""What a candidate's source does on the CPU: everything but the kernels. Pure, on the syntax tree."""

from __future__ import annotations

import ast
import hashlib

from kbtui import syntax
from kbtui.generate.digest import source_digest

_COMPILED_IN = frozenset(("num_warps", "num_stages", "num_ctas", "maxnreg"))
"""Launch options whose whole effect is in the compiled kernel and its launch."""
_JIT = frozenset(("triton.jit", "triton.runtime.jit.jit"))


def host_digest(source: str) -> str:
    """sha256 (hex) over the syntax tree without kernels, docstrings and launch options that the compiled code shows.

    Kernels are named by their order, so that renaming one changes nothing. Two candidates that launch the same machine
    code do the same thing if this is the same for both; if it is not, their wrappers may allocate, copy or pass other
    things. Source that does not parse is digested as it is.
    """
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source_digest(source)
    aliases = _aliases(tree)
    kernels = [node for node in tree.body if _is_kernel(node, aliases)]
    body = [node for node in tree.body if node not in kernels]
    names = [node.name for node in kernels if isinstance(node, ast.FunctionDef)]
    host = _Normalised(names).visit(ast.Module(body=body, type_ignores=[]))
    return hashlib.sha256(syntax.dump(host).encode("utf-8", "surrogatepass")).hexdigest()


class _Normalised(ast.NodeTransformer):
    def __init__(self, kernels: list[str]) -> None:
        self._names = {name: f"kernel {number}" for number, name in enumerate(kernels)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Subscript):  # kernel[grid](...)
            node.keywords = [one for one in node.keywords if one.arg not in _COMPILED_IN]
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            return None
        return self.generic_visit(node)


def _is_kernel(node: ast.stmt, aliases: dict[str, str]) -> bool:
    """Whether a statement of the module defines a kernel or a function that only kernels call."""
    if not isinstance(node, ast.FunctionDef):
        return False
    decorators = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(_dotted(one, aliases) in _JIT for one in decorators)


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([aliases.get(node.id, node.id), *reversed(parts)])


def _aliases(tree: ast.Module) -> dict[str, str]:
    """Local name -> dotted name, for the imports of the module's top level."""
    found: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.update((one.asname, one.name) for one in node.names if one.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)
    return found
