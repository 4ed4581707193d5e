"""What a problem asks for, read from its files without running them: for people who choose one."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass

from kbtui import syntax
from kbtui.problems.folder import ProblemFolder


@dataclass(frozen=True)
class Contract:
    """`signature` is the entry's, such as `softmax(x)`; `cases` are the timed ones as they are written, empty where they are
    computed and only running the file can tell; `about` is the module's docstring."""

    signature: str
    about: str
    cases: tuple[str, ...]


def read_contract(folder: ProblemFolder) -> Contract:
    """The contract of a problem that passed the static checks."""
    problem = syntax.parse(folder.problem_file.read_text(encoding="utf-8-sig"))
    kernel = syntax.parse(folder.kernel_source)
    # A problem without a kernel has its signature in the reference: both take the same arguments.
    found = _function(kernel, folder.entry) or _function(problem, "reference")
    arguments = ast.unparse(found.args) if found is not None else "..."
    return Contract(
        signature=f"{folder.entry}({arguments})",
        about=inspect.cleandoc(ast.get_docstring(problem) or ""),
        cases=tuple(_cases(problem)),
    )


def _function(module: ast.Module, name: str) -> ast.FunctionDef | None:
    return next((node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _cases(module: ast.Module) -> list[str]:
    for node in module.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if not any(isinstance(target, ast.Name) and target.id == "cases" for target in targets):
            continue
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.List | ast.Tuple) and all(isinstance(item, ast.Call) for item in value.elts):
            return [_written(item) for item in value.elts if isinstance(item, ast.Call)]
    return []


def _written(call: ast.Call) -> str:
    """`Case(rows=4096, dtype="float32")` as `rows=4096 dtype=float32`."""
    parts = []
    for keyword in call.keywords:
        constant = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        value = constant if isinstance(constant, str) else ast.unparse(keyword.value)
        parts.append(f"{keyword.arg}={value}" if keyword.arg is not None else f"**{value}")
    return " ".join(parts)
