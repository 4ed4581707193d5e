"""What a dotted name in a file stands for, by the file's own imports."""

from __future__ import annotations

import libcst as cst

from kbtui.generate.tree.nodes import walk

LANGUAGE = "triton.language"


def dotted(node: cst.CSTNode) -> str | None:
    """`a.b.c` as text; None for anything but names joined by dots."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr.value}"
    return None


class Names:
    """Local names to the modules and functions they were imported from. Imports inside functions count for the whole file."""

    def __init__(self, tree: cst.Module) -> None:
        self._imported: dict[str, str] = {}
        for node in walk(tree):
            if isinstance(node, cst.Import):
                self._import(node)
            elif isinstance(node, cst.ImportFrom):
                self._import_from(node)

    def _import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = dotted(alias.name)
            if name is None:
                continue
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                self._imported[alias.asname.name.value] = name
            else:
                head = name.partition(".")[0]
                self._imported[head] = head

    def _import_from(self, node: cst.ImportFrom) -> None:
        if node.module is None or node.relative or isinstance(node.names, cst.ImportStar):
            return
        module = dotted(node.module)
        for alias in node.names:
            name = dotted(alias.name)
            bound = alias.asname.name if alias.asname is not None else alias.name
            if isinstance(bound, cst.Name):
                self._imported[bound.value] = f"{module}.{name}"

    def qualified(self, node: cst.CSTNode) -> str | None:
        """Such as `triton.language.load` for `tl.load`; a name that was not imported stands for itself."""
        name = dotted(node)
        if name is None:
            return None
        head, dot, rest = name.partition(".")
        return f"{self._imported.get(head, head)}{dot}{rest}"

    def calls(self, node: cst.CSTNode, *functions: str) -> bool:
        """Whether `node` is a call of one of the qualified `functions`."""
        return isinstance(node, cst.Call) and self.qualified(node.func) in functions

    def spell(self, qualified: str) -> str | None:
        """How this file would write `triton.language.range`: None when it imports no module to reach it by."""
        best: str | None = None
        for local, target in self._imported.items():
            if qualified == target:
                return local
            # The longest module wins: `tl.range` rather than `triton.language.range`.
            if qualified.startswith(f"{target}."):
                spelled = f"{local}{qualified[len(target) :]}"
                best = spelled if best is None or len(spelled) < len(best) else best
        return best
