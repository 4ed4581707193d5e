"""The static checks of a problem's two files. Each failure is a ProblemError of one sentence: file, piece, remedy."""

from __future__ import annotations

import ast
import difflib
import keyword
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from kbtui import syntax
from kbtui.errors import ProblemError
from kbtui.problems.importing import import_name
from kbtui.problems.names import bindings, has_star_import, imported_files, is_a_kernel, makes_a_kernel

_REQUIRED = {
    "reference": "define reference(...), the trusted implementation, with the entry's parameters",
    "cases": 'add cases = [Case(n=1024, dtype="float32"), ...], the input cases to time',
    "make_inputs": "define make_inputs(case, generator, device), which returns the entry's arguments",
}


@dataclass(frozen=True)
class Described:
    """What the syntax of a problem.py says."""

    entry: str
    summary: str


def parse(file: Path, source: str) -> ast.Module:
    """The syntax tree of `source`. Raises ProblemError naming the line where it does not parse."""
    try:
        with warnings.catch_warnings():
            # An invalid escape is the user's to see when the module is imported, not a line across the screen now.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            return syntax.parse(source, str(file))
    except SyntaxError as error:
        where = f"{file}:{error.lineno}" if error.lineno else str(file)
        raise ProblemError(f"{where} is not valid Python ({error.msg}): correct that line") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ProblemError(f"{file} cannot be parsed ({error or type(error).__name__}): simplify or mend it") from None


def check_problem(file: Path, tree: ast.Module, folder: Path) -> Described:
    """Check problem.py: `entry`, `reference`, `cases`, `make_inputs`, and that relative imports have a package."""
    _check_relative_imports(file, tree, folder)
    bound = dict(bindings(tree.body))
    entry = _entry(file, bound)
    for name, remedy in _REQUIRED.items():
        if name not in bound and not has_star_import(tree.body):
            raise ProblemError(f"{file} has no {name}{_near(name, bound)}: {remedy}")
    _check_cases(file, bound.get("cases"))
    _check_make_inputs(file, bound.get("make_inputs"))
    return Described(entry=entry, summary=_summary(tree))


def check_kernel(file: Path, tree: ast.Module, folder: Path, entry: str) -> None:
    """Check kernel.py: it binds the entry to something callable, and a Triton kernel is in it or in what it imports."""
    _check_relative_imports(file, tree, folder)
    bound = list(bindings(tree.body))
    made = [statement for name, statement in bound if name == entry]
    if not made and not has_star_import(tree.body):
        raise ProblemError(
            f"{file} does not define {entry}{_near(entry, dict(bound))}: define that function, "
            f"or set entry in problem.py to the name of the one to call"
        )
    # A name bound in several branches is refused only if it is no function in any of them.
    unfit = [what for statement in made if (what := _no_function(statement, tree))]
    if made and len(unfit) == len(made):
        raise ProblemError(
            f"{file}:{made[-1].lineno} makes {entry} {unfit[-1]}: "
            f"the entry must be the Python function that launches the kernel and returns its outputs"
        )
    if not _reaches_a_kernel(file, tree):
        raise ProblemError(
            f"{file} has no @triton.jit function, nor has any module beside it that it imports: "
            f"put the Triton kernel to speed up into {file.name}"
        )


def _no_function(statement: ast.stmt, tree: ast.Module) -> str:
    """What `statement` binds its name to if that certainly cannot be called as the entry, else ""."""
    if isinstance(statement, ast.ClassDef):
        return "a class"
    if isinstance(statement, ast.AsyncFunctionDef):
        return "a coroutine"
    if isinstance(_assigned(statement), ast.Constant):
        return "a constant"
    return "a Triton kernel" if is_a_kernel(statement, tree) else ""


def _entry(file: Path, bound: dict[str, ast.stmt]) -> str:
    remedy = 'write entry = "softmax", with the name of the function in kernel.py to call'
    if "entry" not in bound:
        raise ProblemError(f"{file} has no entry{_near('entry', bound)}: {remedy}")
    value = _assigned(bound["entry"])
    line = f"{file}:{bound['entry'].lineno}"
    if not (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        raise ProblemError(f"{line} does not set entry to a string literal: {remedy}")
    if not value.value.isidentifier() or keyword.iskeyword(value.value):
        raise ProblemError(f"{line} sets entry to {value.value!r}, which is not a Python name: {remedy}")
    return value.value


def _check_cases(file: Path, statement: ast.stmt | None) -> None:
    value = _assigned(statement)
    if isinstance(value, ast.List | ast.Tuple) and not value.elts:
        raise ProblemError(f'{file}:{value.lineno} leaves cases empty: add at least one Case(n=1024, dtype="float32")')
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        raise ProblemError(
            f"{file}:{statement.lineno} makes cases a {_kind(statement)}: it must be a list of Case(...)"
        )


def _check_make_inputs(file: Path, statement: ast.stmt | None) -> None:
    if not isinstance(statement, ast.FunctionDef):
        return
    takes = statement.args
    positional = len(takes.posonlyargs) + len(takes.args)
    required = positional - len(takes.defaults)
    fits = required <= 3 <= positional or (takes.vararg is not None and required <= 3)
    if not fits or any(default is None for default in takes.kw_defaults):
        raise ProblemError(
            f"{file}:{statement.lineno} defines make_inputs with other parameters than it is called with: "
            f"make it make_inputs(case, generator, device)"
        )


def _check_relative_imports(file: Path, tree: ast.Module, folder: Path) -> None:
    package = import_name(folder)[1]
    depth = package.count(".") + 1 if package else 0
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level > depth:
            dots = "." * node.level
            if not package:
                _refuse_import(file, node, dots, f"{folder} is not a package: add an __init__.py there")
            _refuse_import(file, node, dots, f"that is above the package {package}: add an __init__.py there")


def _refuse_import(file: Path, node: ast.ImportFrom, dots: str, why: str) -> NoReturn:
    raise ProblemError(
        f"{file}:{node.lineno} imports from {dots}{node.module or ''}, but {why}, or import by full name"
    )


def _reaches_a_kernel(file: Path, tree: ast.Module) -> bool:
    """Whether a Triton kernel is made in `file` or in a file that it imports from its own folder or package, at any depth."""
    return any(makes_a_kernel(seen) for seen in _reachable(file, tree))


def _reachable(file: Path, tree: ast.Module) -> Iterator[ast.Module]:
    yield tree
    waiting, seen = [(file, tree)], {file.resolve()}
    while waiting:
        for imported in imported_files(*waiting.pop()):
            if imported in seen:
                continue
            seen.add(imported)
            found = _parse_quietly(imported)
            if found is not None:
                yield found
                waiting.append((imported, found))


def _parse_quietly(file: Path) -> ast.Module | None:
    """None for a file that cannot be read or parsed: importing it will say so better than a check of another file."""
    try:
        return parse(file, file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, ProblemError):
        return None


def _assigned(statement: ast.stmt | None) -> ast.expr | None:
    return statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None


def _kind(statement: ast.stmt) -> str:
    return "class" if isinstance(statement, ast.ClassDef) else "function"


def _near(name: str, bound: dict[str, ast.stmt]) -> str:
    near = difflib.get_close_matches(name, bound, n=1, cutoff=0.75)
    return f" (but {near[0]}, line {bound[near[0]].lineno})" if near else ""


def _summary(tree: ast.Module) -> str:
    lines = (ast.get_docstring(tree) or "").splitlines()
    return lines[0].strip() if lines else ""
