"""What a test of TritonBench-G would compare: it returns a dictionary, and the suite compares two of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_SHAPES = ("shape", "size", "dtype", "device", "numel", "dim", "stride")


def what_is_compared(tree: ast.Module) -> str:
    """ "values", "only shapes", "only constants" or "nothing", as far as the syntax tells. In doubt "values"."""
    assigned = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    kinds = {_kind(value, assigned) for value in _results(tree)}
    if not kinds:
        return "nothing"
    if "values" in kinds:
        return "values"
    return "only shapes" if "shapes" in kinds else "only constants"


def _results(tree: ast.Module) -> Iterator[ast.expr]:
    """What is put into dictionaries, and what is returned that is none."""
    named = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name | ast.Subscript):
                    if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                        yield node.value
                elif isinstance(target, ast.Name) and isinstance(node.value, ast.Dict):
                    named.add(target.id)
        if isinstance(node, ast.Dict):
            yield from (value for value in node.values if not isinstance(value, ast.Dict))
        if isinstance(node, ast.Return) and node.value is not None:
            value = node.value
            if not isinstance(value, ast.Dict) and not (isinstance(value, ast.Name) and value.id in named):
                yield value


def _kind(value: ast.expr, assigned: dict[str, ast.expr], depth: int = 0) -> str:
    if isinstance(value, ast.Constant):
        return "constants"
    if isinstance(value, ast.Attribute) and value.attr in _SHAPES:
        return "shapes"
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in _SHAPES:
            return "shapes"
        if isinstance(value.func, ast.Name) and value.func.id in ("list", "tuple", "str") and value.args:
            return _kind(value.args[0], assigned, depth)
    if isinstance(value, ast.Tuple | ast.List) and value.elts:
        kinds = {_kind(one, assigned, depth) for one in value.elts}
        return "values" if "values" in kinds else "shapes" if "shapes" in kinds else "constants"
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Attribute) and value.value.attr in _SHAPES:
        return "shapes"
    if isinstance(value, ast.Name) and value.id in assigned and depth < 2:
        inner = assigned[value.id]
        return _kind(inner, assigned, depth + 1) if not isinstance(inner, ast.Dict | ast.Call) else "values"
    return "values"
