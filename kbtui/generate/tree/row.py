"""Straight kernels over one row: which values are tiles, and which are reductions of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.tree.access import base_parameter
from kbtui.generate.tree.flow import TL, KernelFlow
from kbtui.generate.tree.nodes import children, find, is_bare_return, mentioned, walk
from kbtui.generate.tree.origins import integer

REDUCTIONS = {f"{TL}.sum": "sum", f"{TL}.max": "max", f"{TL}.min": "min"}
_ELEMENTWISE_NAMES = (
    "load", "store", "where", "exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "abs", "maximum", "minimum",
    "sigmoid", "fma", "cos", "sin", "erf", "floor", "ceil", "clamp", "cast", "div_rn", "fdiv",
)  # fmt: skip
_ELEMENTWISE = {"float", *(f"{TL}.{name}" for name in _ELEMENTWISE_NAMES)}
_ELEMENTWISE_MODULES = (f"{TL}.math.", f"{TL}.extra.")


@dataclass(eq=False)
class Line:
    """One statement of a row's kernel."""

    node: cst.SimpleStatementLine | cst.If
    binds: frozenset[str]
    tile: bool
    """Whether it is made of tiles."""
    stores: bool
    """Whether it is there for its effect on tiles in memory."""
    reductions: list[cst.Call]
    """Inner first."""
    needs: set[str] = field(default_factory=set)
    """The names of tiles it reads, other than inside its reductions."""


@dataclass(frozen=True, eq=False)
class Row:
    """A kernel whose one tile, of `size`, covers a row from 0 to `end`."""

    flow: KernelFlow = field(repr=False)
    size: str
    end: str
    lines: list[Line] = field(repr=False)
    aranges: list[cst.Call] = field(repr=False)

    @property
    def passes(self) -> int:
        """How often the looped kernel goes over the row."""
        return sum(len(line.reductions) for line in self.lines) + 1


def read_row(flow: KernelFlow) -> Row | None:
    """The kernel as work on one row; None unless it is straight, elementwise but for its reductions, and masked by one end."""
    sizes = [size for size, use in flow.uses.items() if use.extent]
    if (
        len(sizes) != 1
        or flow.uses[sizes[0]].tile
        or not flow.uses[sizes[0]].masked
        or flow.module.names.spell(f"{TL}.zeros") is None
    ):
        return None
    if not isinstance(flow.body, cst.IndentedBlock) or sizes[0] not in flow.kernel.constexprs:
        return None
    reader = _Reader(flow, sizes[0])
    lines = reader.lines(flow.body)
    end = reader.end()
    if lines is None or end is None or not _stores_can_wait(flow, lines):
        return None
    return Row(flow, sizes[0], end, lines, reader.aranges)


class _Reader:
    """Reads the statements of a body in order, and refuses what it does not know by giving None."""

    def __init__(self, flow: KernelFlow, size: str) -> None:
        self._flow = flow
        self._names = flow.module.names
        self.aranges = [
            call
            for call in find(flow.body, cst.Call)
            if self._names.calls(call, f"{TL}.arange")
            and len(call.args) == 2
            and integer(call.args[0].value) == 0
            and isinstance(call.args[1].value, cst.Name)
            and call.args[1].value.value == size
        ]
        self._size = size
        self._tiles: set[str] = set()
        self._numbers: set[str] = set(flow.scope.parameters)
        """Names of what is no tile."""
        self._plain: set[str] = set()
        """Tiles that are the column numbers themselves."""
        self._in_tiles: set[str] = set()
        """Names that statements of tiles mention: those run again in each loop, so none of them may change later."""

    def lines(self, body: cst.IndentedBlock) -> list[Line] | None:
        mentions = sum(isinstance(n, cst.Name) and n.value == self._size for n in walk(body))
        if mentions != len(self.aranges):
            return None
        found = []
        statements = list(body.body)
        if statements and is_bare_return(statements[-1]):
            statements.pop()
        for statement in statements:
            line = self._line(statement)
            if line is None:
                return None
            found.append(line)
        return found

    def _line(self, statement: cst.BaseStatement) -> Line | None:
        if isinstance(statement, cst.If):
            return self._branch(statement)
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return None
        small = statement.body[0]
        if isinstance(small, cst.Expr):
            return self._noted(self._effect(statement, small))
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target, value, again = small.targets[0].target, small.value, False
        elif isinstance(small, cst.AugAssign):
            target, value, again = small.target, small.value, True
        else:
            return None
        if not isinstance(target, cst.Name):
            return None
        reductions: list[cst.Call] = []
        tile = self._read(value, reductions)
        if tile is None:
            return None
        name = target.value
        tile = tile or (again and name in self._tiles)
        line = Line(statement, frozenset({name}), tile, False, reductions, self._needs(value, reductions))
        if again and tile:
            line.needs.add(name)
        if any(value is call for call in self.aranges):
            self._plain.add(name)
        return self._noted(line)

    def _effect(self, statement: cst.SimpleStatementLine, small: cst.Expr) -> Line | None:
        reductions: list[cst.Call] = []
        tile = self._read(small.value, reductions)
        if tile is None or (tile and not self._names.calls(small.value, f"{TL}.store")):
            return None
        return Line(statement, frozenset(), tile, tile, reductions, self._needs(small.value, reductions))

    def _branch(self, statement: cst.If) -> Line | None:
        """An `if` on a number is one statement, if it only binds tiles, only stores them, or has nothing to do with them."""
        if self._read(statement.test, []) is not False:
            return None
        inner: list[Line] = []
        for block in _blocks(statement):
            for each in block:
                line = self._line(each)
                if line is None or line.reductions:
                    return None
                inner.append(line)
        kinds = {(line.tile, line.stores) for line in inner}
        if len(kinds) != 1:
            return None
        ((tile, stores),) = kinds
        binds = frozenset(name for line in inner for name in line.binds)
        self._in_tiles |= mentioned(statement.test) if tile else set()
        # A name that one branch binds only keeps its value in the other: the earlier binding is needed too.
        needs = {name for line in inner for name in line.needs} | (binds & self._tiles)
        return Line(statement, binds, tile, stores, [], needs)

    def _noted(self, line: Line | None) -> Line | None:
        """Refuses a line that changes what an earlier statement of tiles, run again in a later loop, would read."""
        if line is None:
            return None
        if line.tile:
            if line.binds & self._numbers:
                return None
            self._tiles |= line.binds
            self._in_tiles |= mentioned(line.node)
        else:
            if line.binds & (self._in_tiles | self._tiles):
                return None
            self._numbers |= line.binds
        return line

    def _needs(self, value: cst.CSTNode, reductions: Iterable[cst.Call]) -> set[str]:
        inside = {n for call in reductions for n in walk(call)}
        return {n.value for n in walk(value) if isinstance(n, cst.Name) and n not in inside} & self._tiles

    def _read(self, node: cst.CSTNode, reductions: list[cst.Call]) -> bool | None:
        """Whether an expression is a tile; None when it does something to a tile that is not known to be elementwise."""
        if isinstance(node, cst.Name):
            return node.value in self._tiles
        if isinstance(node, cst.Call) and any(node is call for call in self.aranges):
            return True
        parts = [self._read(child, reductions) for child in children(node)]
        if None in parts:
            return None
        tile = any(parts)
        if not tile or isinstance(
            node, cst.Arg | cst.BinaryOperation | cst.UnaryOperation | cst.Comparison | cst.ComparisonTarget
        ):
            return tile
        if isinstance(node, cst.Call):
            return self._read_call(node, reductions)
        return tile if isinstance(node, cst.Attribute) else None

    def _read_call(self, call: cst.Call, reductions: list[cst.Call]) -> bool | None:
        """For a call with a tile among its arguments."""
        function = self._names.qualified(call.func) or ""
        if function in REDUCTIONS:
            if not self._reduces_rows(call):
                return None
            reductions.append(call)
            return False
        if function in _ELEMENTWISE or function.startswith(_ELEMENTWISE_MODULES):
            return True
        return True if isinstance(call.func, cst.Attribute) and call.func.attr.value == "to" else None

    def _reduces_rows(self, call: cst.Call) -> bool:
        """Whether it is `sum(tile)`, `sum(tile, 0)` or `sum(tile, axis=0)`."""
        first, *rest = call.args
        if first.keyword is not None or first.star or len(rest) > 1:
            return False
        return all(integer(a.value) == 0 and (a.keyword is None or a.keyword.value == "axis") for a in rest)

    def end(self) -> str | None:
        """The code that the column numbers are compared with as `offsets < end`; None unless that is one thing throughout."""
        found: set[str] = set()
        for node in find(self._flow.body, cst.Comparison):
            left = node.left
            plain = (isinstance(left, cst.Name) and left.value in self._plain) or any(left is c for c in self.aranges)
            if not plain:
                continue
            if len(node.comparisons) != 1 or not isinstance(node.comparisons[0].operator, cst.LessThan):
                return None
            found.add(self._flow.module.code(node.comparisons[0].comparator))
        return found.pop() if len(found) == 1 else None


def _blocks(statement: cst.If) -> Iterable[list[cst.BaseStatement]]:
    """The statements of each branch. One that is written on the line of its `if` or `else` counts as a statement."""
    here: cst.If | cst.Else | None = statement
    while here is not None:
        body = here.body
        if isinstance(body, cst.SimpleStatementSuite):
            yield [cst.SimpleStatementLine(body=body.body)]
        else:
            yield [s for s in body.body if isinstance(s, cst.BaseStatement)]
        here = here.orelse if isinstance(here, cst.If) else None


def _stores_can_wait(flow: KernelFlow, lines: list[Line]) -> bool:
    """Whether there is a store of a tile, and nothing behind such a store reads what it wrote: all stores move to the end."""
    stored: set[str] = set()
    for line in lines:
        calls = list(find(line.node, cst.Call))
        loads = {
            base_parameter(flow, c.args[0].value) for c in calls if flow.module.names.calls(c, f"{TL}.load") and c.args
        }
        if stored and (loads & stored or "" in loads | stored):
            return False
        if line.stores:
            stores = [c for c in calls if flow.module.names.calls(c, f"{TL}.store") and c.args]
            stored |= {base_parameter(flow, c.args[0].value) for c in stores}
    return bool(stored)
