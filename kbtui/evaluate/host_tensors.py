"""Which names of a host function surely hold tensors, and what is computed with them. On the syntax tree; cautious.

A name counts only on proof: an annotation, an attribute that only tensors have, or a value that torch made. One that is
also bound to something else does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

TENSOR_ATTRIBUTES = frozenset(
    ("data_ptr", "element_size", "numel", "stride", "is_contiguous", "contiguous", "is_cuda", "device", "dtype")
)
"""Attributes whose use shows that a name holds a tensor (`shape` and `size` numpy arrays and others have too)."""
_KEEPING = """
view reshape contiguous to float half bfloat16 double t transpose permute flatten unsqueeze squeeze expand clone detach
new_empty new_zeros new_full narrow
"""
_KEEP_TENSOR = frozenset(_KEEPING.split())
_MAKING = "empty empty_like empty_strided zeros zeros_like ones ones_like full full_like arange randn rand tensor"
_MAKE_TENSOR = frozenset(_MAKING.split())
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Pow: "**",
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def dotted(node: ast.AST, aliases: Mapping[str, str]) -> str:
    """`torch.nn.functional.softmax` for `F.softmax`; "" when it does not start at an imported name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(parts)])


def tensor_names(function: Function, aliases: Mapping[str, str]) -> set[str]:
    """Parameters and locals of `function` that hold tensors wherever they are bound."""
    names = _tensor_parameters(function, aliases)
    bindings = list(_bindings(function))
    while True:
        made = {name for name, value in bindings if value is not None and is_tensor(value, names, aliases)}
        grown = names | made
        if grown == names:
            break
        names = grown
    return {
        name
        for name in names
        if all(value is not None and is_tensor(value, names, aliases) for bound, value in bindings if bound == name)
    }


def _tensor_parameters(function: Function, aliases: Mapping[str, str]) -> set[str]:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    annotated = {
        argument.arg
        for argument in arguments
        if argument.annotation is not None and dotted(argument.annotation, aliases) == "torch.Tensor"
    }
    bare = {argument.arg for argument in arguments if argument.annotation is None}
    used = {
        node.value.id
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in TENSOR_ATTRIBUTES
    }
    return annotated | (bare & used)


def _bindings(function: Function) -> Iterator[tuple[str, ast.expr | None]]:
    """(name, value) of each binding; None for a value that is not told here (loops, unpacking, `with`)."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                elif isinstance(target, ast.Tuple | ast.List):
                    yield from ((name.id, None) for name in ast.walk(target) if isinstance(name, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.For | ast.comprehension):
            yield from ((name.id, None) for name in ast.walk(node.target) if isinstance(name, ast.Name))


def is_tensor(node: ast.expr, names: Collection[str], aliases: Mapping[str, str]) -> bool:
    """Whether an expression surely is a tensor, given the names that are."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT") and is_tensor(node.value, names, aliases)
    if isinstance(node, ast.Subscript):
        return is_tensor(node.value, names, aliases)
    if isinstance(node, ast.BinOp):
        return is_tensor(node.left, names, aliases) or is_tensor(node.right, names, aliases)
    if isinstance(node, ast.Call):
        made = dotted(node.func, aliases)
        if made:
            return made.startswith("torch.") and made.rpartition(".")[2] in _MAKE_TENSOR
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in _KEEP_TENSOR
            and is_tensor(node.func.value, names, aliases)
        )
    return False


def computations(
    function: Function, names: Collection[str], aliases: Mapping[str, str], methods: Collection[str]
) -> Iterator[tuple[str, int]]:
    """(what, line) for methods among `methods` and arithmetic on surely tensors."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr.rstrip("_") in methods and is_tensor(node.func.value, names, aliases):
                yield f"Tensor.{node.func.attr}", node.lineno
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            if is_tensor(node, names, aliases):
                yield f"the operator {_OPERATORS[type(node.op)]} on tensors", node.lineno
        elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS and is_tensor(node.target, names, aliases):
            yield f"the operator {_OPERATORS[type(node.op)]}= on tensors", node.lineno
