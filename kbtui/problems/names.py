"""What a module's syntax tree says about its names: what it binds, what it imports, whether it makes a Triton kernel."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from kbtui.problems.importing import import_name

_MAKERS = ("jit", "autotune", "heuristics")


def bindings(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """(name, statement) for each name that running `body` can bind in the module, in order; branches count."""
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield statement.name, statement
            case ast.Assign():
                for target in statement.targets:
                    for name in _target_names(target):
                        yield name, statement
            case ast.AnnAssign(value=value) if value is not None:
                for name in _target_names(statement.target):
                    yield name, statement
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    yield alias.asname or alias.name.partition(".")[0], statement
            case _:
                for inner in _branches(statement):
                    yield from bindings(inner)


def has_star_import(body: list[ast.stmt]) -> bool:
    """Whether `from x import *` stands in `body` or a branch of it: then any name may be bound."""
    return any(name == "*" for name, _ in bindings(body))


def makes_a_kernel(tree: ast.Module) -> bool:
    """Whether `tree` decorates a function with, or calls, `triton.jit`, `triton.autotune` or `triton.heuristics`.

    Follows import aliases, and takes the same names of Triton's own submodules (Gluon's `jit`) too.
    """
    aliases = _triton_aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(_is_maker(used, aliases) for used in node.decorator_list):
            return True
        if isinstance(node, ast.Call) and _is_maker(node.func, aliases):
            return True
    return False


def is_a_kernel(statement: ast.stmt, tree: ast.Module) -> bool:
    """Whether `statement` of `tree` defines a function that a Triton decorator turns into a kernel."""
    if not isinstance(statement, ast.FunctionDef):
        return False
    aliases = _triton_aliases(tree)
    return any(_is_maker(used, aliases) for used in statement.decorator_list)


def imported_files(file: Path, tree: ast.Module) -> Iterator[Path]:
    """The files of `file`'s own folder or package that `tree` imports, as far as names and folders alone can tell."""
    folder = file.resolve().parent
    root, _ = import_name(folder)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module_files(root, alias.name)
        elif isinstance(node, ast.ImportFrom):
            start = root if node.level == 0 else _up(folder, node.level - 1)
            module = node.module or ""
            yield from _module_files(start, module)
            for alias in node.names:
                yield from _module_files(start, f"{module}.{alias.name}" if module else alias.name)


def _branches(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for attribute in ("body", "orelse", "finalbody"):
        yield getattr(statement, attribute, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
    for case in getattr(statement, "cases", []):
        yield case.body


def _target_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _target_names(element)


def _triton_aliases(tree: ast.Module) -> dict[str, str]:
    """Local name -> full dotted name, for everything imported from triton."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "triton":
                    aliases[alias.asname or "triton"] = alias.name if alias.asname else "triton"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "triton" and not node.level:
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return aliases


def _is_maker(expression: ast.expr, aliases: dict[str, str]) -> bool:
    """`triton.jit`, or `triton.jit(...)` and `triton.autotune(...)` called as a decorator."""
    if isinstance(expression, ast.Call):
        return _is_maker(expression.func, aliases)
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name) or expression.id not in aliases:
        return False
    full = ".".join([aliases[expression.id], *reversed(parts)])
    return full.rpartition(".")[2] in _MAKERS


def _up(folder: Path, levels: int) -> Path:
    for _ in range(levels):
        folder = folder.parent
    return folder


def _module_files(start: Path, dotted: str) -> Iterator[Path]:
    parts = [part for part in dotted.split(".") if part and part != "*"]
    path = start.joinpath(*parts)
    for candidate in (path.with_name(f"{path.name}.py") if parts else None, path / "__init__.py"):
        if candidate is not None and candidate.is_file():
            yield candidate.resolve()
