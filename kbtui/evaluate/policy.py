"""What a candidate's source may not do, seen on its syntax tree: hand the work to torch, or lose its entry.

Only proof makes a finding. A call counts as handing work over when the baseline does not make the same call, so a
baseline that prepares its inputs with torch may go on doing so.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

import msgspec

from kbtui import syntax
from kbtui.evaluate import host_tensors
from kbtui.evaluate.inlane.compute import COMPUTE

_HOLDERS = ("torch", "torch.Tensor", "torch.special", "torch.linalg", "torch._C._nn", "torch.nn.functional")
_COMPILERS = frozenset(
    ("torch.compile", "torch.jit.script", "torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline")
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Proof against a candidate: `outcome` "cheat" or "invalid", one sentence, and the line it points at (0: the whole file)."""

    outcome: str
    reason: str
    line: int = 0


def static_policy(source: str, baseline_source: str, entry: str) -> list[Finding]:
    """What speaks against a candidate's source, in order of lines; [] when nothing does. Executes nothing.

    Calls inside `@triton.jit` functions are kernels' own and never findings.
    """
    try:
        tree = syntax.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None) or 0
        return [Finding(outcome="invalid", reason=f"it is not valid Python: {error}", line=line)]
    findings = []
    if entry not in _bound_names(tree):
        findings.append(Finding(outcome="invalid", reason=f"it has no {entry}, the function that is called"))
    allowed = _handed_over_by(baseline_source)
    seen: set[str] = set()
    for name, line in sorted(_handed_over(tree), key=lambda one: one[1]):
        if name not in allowed and name not in seen:
            seen.add(name)
            why = "which the baseline does not" if baseline_source else "which a kernel of its own has to do"
            reason = f"line {line} hands work to {name}, {why}"
            findings.append(Finding(outcome="cheat", reason=reason, line=line))
    return findings


@functools.lru_cache(maxsize=4)
def _handed_over_by(source: str) -> frozenset[str]:
    """Of a baseline, which is asked for with every candidate."""
    return frozenset(name for name, _ in _handed_over(syntax.parse(source)))


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that the module's top level binds, also inside its `if` and `try`."""
    names: set[str] = set()
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        statement = todo.pop()
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(statement.name)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            todo.extend(child for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt))
            todo.extend(inner for handler in getattr(statement, "handlers", ()) for inner in handler.body)
        else:
            names.update(
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            )
    return names


_TELLING = frozenset((ast.Attribute, ast.Name, ast.BinOp, ast.AugAssign, ast.FunctionDef, ast.AsyncFunctionDef))


def _handed_over(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(name, line) of every computation that torch is asked for outside kernels."""
    aliases = dict(_aliases(tree))
    # Kernels are most of a file; those at its top level, which is nearly all, are not even walked.
    host = [node for part in tree.body if not _is_kernel(part, aliases) for node in ast.walk(part)]
    kernels = {id(node) for kernel in host if _is_kernel(kernel, aliases) for node in ast.walk(kernel)}
    for node in host:
        if type(node) not in _TELLING or id(node) in kernels:
            continue
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            dotted = host_tensors.dotted(node, aliases)
            if _is_torch_compute(dotted):
                yield dotted, node.lineno
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield "the operator @", node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = host_tensors.tensor_names(node, aliases)
            yield from host_tensors.computations(node, names, aliases, COMPUTE)


def _is_torch_compute(dotted: str) -> bool:
    holder, _, name = dotted.rpartition(".")
    if dotted in _COMPILERS:
        return True
    held = holder in _HOLDERS or holder.startswith(("torch.ops.", "torch.nn."))
    return held and name.rstrip("_") in COMPUTE


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local name -> dotted name, for every import anywhere in the file."""
    for node in syntax.statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _is_kernel(node: ast.AST, aliases: dict[str, str]) -> bool:
    if not isinstance(node, ast.FunctionDef):
        return False
    decorators = (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)
    return any(host_tensors.dotted(item, aliases) in ("triton.jit", "triton.runtime.jit.jit") for item in decorators)
