"""A piece of text read as a version of the kernel: mended where that is safe, and what is wrong with it where it is not."""

from __future__ import annotations

import ast
import builtins
import html
import io
import symtable
import textwrap
import tokenize
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from kbtui import syntax

IMPORTS = {
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "math": "import math",
}
"""Names that kernels use and models forget to import."""
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'"})
_LEFT_OUT = (
    "rest unchanged", "rest of the code", "rest of the kernel", "rest of the function", "rest of code", "remains unchanged",
    "remain unchanged", "unchanged code", "existing code", "code unchanged", "omitted for brevity", "code omitted",
    "same as before", "same as above", "as in the original", "your code here", "code here", "unchanged from",
)  # fmt: skip
_LEFT_OUT_WORDS = frozenset(
    {"rest", "remaining", "same", "existing", "unchanged", "previous", "before", "above", "omitted"}
)


@dataclass(frozen=True)
class Source:
    """Text that may be a module. `error` is why it does not parse, "" when it does; `mended` says what was put right."""

    text: str
    error: str = ""
    mended: tuple[str, ...] = field(default=())

    @cached_property
    def tree(self) -> ast.Module:
        """Raises SyntaxError when `error` is set."""
        return syntax.parse(self.text)

    @cached_property
    def functions(self) -> dict[str, ast.FunctionDef]:
        """The functions at the top level, by name."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.FunctionDef)}

    def binds(self, name: str) -> bool:
        """Whether running the module gives `name` a value at the top level."""
        return not self.error and name in _bound(self.text)

    @cached_property
    def undefined(self) -> tuple[str, ...]:
        """Global names that are read and never bound, in the order of the alphabet; none under a star import."""
        if any(isinstance(n, ast.ImportFrom) and n.names[0].name == "*" for n in ast.walk(self.tree)):
            return ()
        known = _bound(self.text) | set(dir(builtins)) | {"__file__", "__name__"}
        return tuple(sorted(_read_globals(symtable.symtable(self.text, "reply", "exec")) - known))

    @property
    def lacking(self) -> tuple[str, ...]:
        """What is undefined and no import of the usual ones would define."""
        return tuple(name for name in self.undefined if name not in IMPORTS)

    @cached_property
    def left_out(self) -> str:
        """The comment or statement that stands for code which is not there; "" when there is none."""
        for comment in _comments(self.text):
            if _means_left_out(comment):
                return comment
        for name, function in self.functions.items() if not self.error else ():
            if any(_is_ellipsis(statement) for statement in ast.walk(function)):
                return f"... in {name}"
        return ""


def read_source(text: str) -> Source:
    """`text` as source: as it is if it parses, else mended step by step until it does, else with its error."""
    text = textwrap.dedent(text.strip("\n")).rstrip() + "\n"
    error = _syntax_error(text)
    if not error:
        return Source(text)
    tried = text
    mended: list[str] = []
    for what, mend in _MENDS:
        changed = mend(tried)
        if changed == tried:
            continue
        tried = changed
        mended.append(what)
        if not _syntax_error(tried):
            return Source(tried, mended=tuple(mended))
    return Source(text, error)


def with_imports(source: Source) -> Source:
    """`source` with the usual imports that it uses and lacks."""
    missing = [line for name, line in IMPORTS.items() if name in source.undefined]
    if not missing:
        return source
    lines = source.text.split("\n")
    place = _after_docstring(source.tree)
    text = "\n".join([*lines[:place], *missing, *lines[place:]])
    return Source(text, mended=(*source.mended, "imports added"))


def with_entry(source: Source, entry: str, parameters: list[str]) -> Source | None:
    """`source` in which `entry` names the one function that takes the entry's parameters; None when there is no such one."""
    alike = [
        name
        for name, function in source.functions.items()
        if [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)] == parameters
        and not function.decorator_list
    ]
    if len(alike) != 1:
        return None
    text = f"{source.text.rstrip()}\n\n\n{entry} = {alike[0]}\n"
    return Source(text, mended=(*source.mended, f"{alike[0]} renamed"))


def _syntax_error(text: str) -> str:
    try:
        syntax.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return ""


def _plain_spaces(text: str) -> str:
    kept = (" " if unicodedata.category(c) == "Zs" else "" if unicodedata.category(c) == "Cf" else c for c in text)
    return "".join(kept)


_MENDS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("odd spaces", _plain_spaces),
    ("tabs", lambda text: text.expandtabs(4)),
    ("HTML escapes", html.unescape),
    ("curly quotes", lambda text: text.translate(_QUOTES)),
)


def _bound(text: str) -> set[str]:
    """What the module binds at its top level, and what functions bind there by `global`."""
    table = symtable.symtable(text, "reply", "exec")
    names = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported() or s.is_namespace()}
    for inner in _tables(table):
        names |= {s.get_name() for s in inner.get_symbols() if s.is_declared_global() and s.is_assigned()}
    return names


def _read_globals(table: symtable.SymbolTable) -> set[str]:
    names = {s.get_name() for s in table.get_symbols() if s.is_referenced()} if table.get_type() == "module" else set()
    for inner in _tables(table):
        names |= {s.get_name() for s in inner.get_symbols() if s.is_global() and s.is_referenced()}
    return names


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    for child in table.get_children():
        yield child
        yield from _tables(child)


def _comments(text: str) -> Iterator[str]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.string.lstrip("# ")
    except (tokenize.TokenError, SyntaxError):  # of source that does not parse, the comments up to there
        return


def _means_left_out(comment: str) -> bool:
    said = comment.lower().strip()
    if any(phrase in said for phrase in _LEFT_OUT):
        return True
    dotted = said.startswith(("...", "…")) or said.endswith(("...", "…"))
    return dotted and (
        not said.strip(".… ") or bool(_LEFT_OUT_WORDS & set(said.replace(".", " ").replace("…", " ").split()))
    )


def _is_ellipsis(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is Ellipsis


def _after_docstring(tree: ast.Module) -> int:
    """Lines to leave above the first ordinary import: the docstring and what comes from `__future__`."""
    last = 0
    for number, node in enumerate(tree.body):
        docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring or (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            last = node.end_lineno or last
    return last
