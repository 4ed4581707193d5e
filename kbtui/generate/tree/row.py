"""Straight kernels over one row: which values are tiles, which are reductions of them, and the same work in a loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.tree.flow import TL, KernelFlow
from kbtui.generate.tree.nodes import Edit, children, find, substitute, walk
from kbtui.generate.tree.origins import integer

REDUCTIONS = {f"{TL}.sum": "sum", f"{TL}.max": "max", f"{TL}.min": "min"}
_ELEMENTWISE_NAMES = (
    "load", "store", "where", "exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "abs", "maximum", "minimum",
    "sigmoid", "fma", "cos", "sin", "erf", "floor", "ceil", "clamp", "cast", "div_rn", "fdiv",
)  # fmt: skip
_ELEMENTWISE = {"float", *(f"{TL}.{name}" for name in _ELEMENTWISE_NAMES)}
_ELEMENTWISE_MODULES = (f"{TL}.math.", f"{TL}.extra.")
_INFINITY = {"max": '-float("inf")', "min": 'float("inf")'}


@dataclass(eq=False)
class _Line:
    """One statement: the name it binds (None: a call for its effect), whether it is made of tiles, its reductions inner first."""

    node: cst.SimpleStatementLine
    name: str | None
    tile: bool
    reductions: list[cst.Call]
    needs: set[str] = field(default_factory=set)
    """The names of tiles it reads, other than inside its reductions."""


@dataclass(frozen=True, eq=False)
class Row:
    """A kernel whose one tile, of `size`, covers a row from 0 to `end`."""

    flow: KernelFlow = field(repr=False)
    size: str
    end: str
    lines: list[_Line] = field(repr=False)
    aranges: list[cst.Call] = field(repr=False)

    @property
    def passes(self) -> int:
        """How often the looped kernel goes over the row."""
        return sum(len(line.reductions) for line in self.lines) + 1

    def looped(self) -> cst.IndentedBlock:
        """The kernel's body as loops over the row."""
        return _LoopWriter(self).body()


class _LoopWriter:
    """Writes a row's statements into loops. Statements of tiles wait until a reduction or the last loop needs them."""

    def __init__(self, row: Row) -> None:
        self._row = row
        self._module = row.flow.module
        self._taken = {n.value for n in find(row.flow.kernel.node, cst.Name)}
        self._start = self._fresh("start")
        self._edits: dict[cst.CSTNode, Edit] = {call: self._moved(call) for call in row.aranges}
        self._shown: set[cst.CSTNode] = set()

    def body(self) -> cst.IndentedBlock:
        body: list[cst.BaseStatement] = []
        waiting: list[_Line] = []
        stores: list[_Line] = []
        for line in self._row.lines:
            for reduction in line.reductions:
                body.extend(self._reduced(reduction, waiting))
            if not line.tile:
                body.append(self._copy(line))
            elif line.name is None:
                stores.append(line)
            else:
                waiting.append(line)
        needed = {name for store in stores for name in store.needs}
        body.append(self._loop([*map(self._copy, _closure(waiting, needed)), *map(self._copy, stores)]))
        original = self._row.flow.body
        assert isinstance(original, cst.IndentedBlock)
        return original.with_changes(body=body)

    def _reduced(self, reduction: cst.Call, waiting: list[_Line]) -> Iterator[cst.BaseStatement]:
        """The loop that computes one reduction, and the statement that names its result."""
        names, size = self._module.names, self._row.size
        kind = REDUCTIONS[str(names.qualified(reduction.func))]
        tl = str(names.spell(f"{TL}.zeros")).removesuffix("zeros")
        parts, result = self._fresh(f"{kind}_parts"), self._fresh(f"row_{kind}")
        code = self._module.code(substitute(reduction.args[0].value, self._edits, self._module.above))
        if kind == "sum":
            yield cst.parse_statement(f"{parts} = {tl}zeros(({size},), dtype={tl}float32)")
            step = f"{parts} += {code}"
        else:
            yield cst.parse_statement(f"{parts} = {tl}full(({size},), {_INFINITY[kind]}, dtype={tl}float32)")
            step = f"{parts} = {tl}{kind}imum({parts}, {code})"
        needed = _closure(waiting, {n.value for n in find(reduction.args[0].value, cst.Name)})
        yield self._loop([*map(self._copy, needed), cst.parse_statement(step)])
        call = reduction.with_changes(args=[reduction.args[0].with_changes(value=cst.Name(parts)), *reduction.args[1:]])
        yield cst.parse_statement(f"{result} = {self._module.code(call.with_changes(lpar=[], rpar=[]))}")
        self._edits[reduction] = lambda _node: cst.Name(result)

    def _loop(self, body: list[cst.BaseStatement]) -> cst.BaseStatement:
        loop = cst.parse_statement(f"for {self._start} in range(0, {self._row.end}, {self._row.size}):\n    pass\n")
        assert isinstance(loop, cst.For)
        return loop.with_changes(body=cst.IndentedBlock(body=body))

    def _copy(self, line: _Line) -> cst.BaseStatement:
        """The statement with its reductions named; its comments only the first time."""
        made = substitute(line.node, self._edits, self._module.above)
        if line.node in self._shown:
            return made.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace())
        self._shown.add(line.node)
        return made

    def _moved(self, call: cst.Call) -> Edit:
        start, alone = self._start, isinstance(self._module.above[call], cst.Assign)

        def edit(node: cst.CSTNode) -> cst.CSTNode:
            assert isinstance(node, cst.BaseExpression)
            moved = cst.BinaryOperation(cst.Name(start), cst.Add(), node)
            return moved if alone else moved.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])

        return edit

    def _fresh(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._taken:
            number += 1
            name = f"{wanted}_{number}"
        self._taken.add(name)
        return name


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
    if lines is None or end is None or not _stores_last(lines):
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
        self._plain: set[str] = set()
        """Tiles that are the column numbers themselves."""

    def lines(self, body: cst.IndentedBlock) -> list[_Line] | None:
        mentions = sum(isinstance(n, cst.Name) and n.value == self._size for n in walk(body))
        if mentions != len(self.aranges):
            return None
        found = []
        for statement in body.body:
            line = self._line(statement)
            if line is None:
                return None
            found.append(line)
        return found

    def _line(self, statement: cst.BaseStatement) -> _Line | None:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return None
        small, name = statement.body[0], None
        if isinstance(small, cst.Assign) and len(small.targets) == 1 and isinstance(small.targets[0].target, cst.Name):
            name = small.targets[0].target.value
            if len(self._flow.scope.bindings[name]) != 1 or name in self._flow.scope.parameters:
                return None
        elif not isinstance(small, cst.Expr):
            return None
        reductions: list[cst.Call] = []
        tile = self._read(small.value, reductions)
        if tile is None or (tile and name is None and not self._names.calls(small.value, f"{TL}.store")):
            return None
        if tile and name is not None:
            self._tiles.add(name)
            if any(small.value is call for call in self.aranges):
                self._plain.add(name)
        inside = {n for call in reductions for n in walk(call)}
        needs = {n.value for n in walk(small.value) if isinstance(n, cst.Name) and n not in inside} & self._tiles
        return _Line(statement, name, tile, reductions, needs)

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


def _stores_last(lines: list[_Line]) -> bool:
    """Whether no reduction follows the first store of a tile, and there is a store."""
    stores = [i for i, line in enumerate(lines) if line.tile and line.name is None]
    return bool(stores) and not any(line.reductions for line in lines[stores[0] + 1 :])


def _closure(pending: list[_Line], wanted: set[str]) -> list[_Line]:
    """The statements among `pending` that the wanted tiles need, in order."""
    needed = set(wanted)
    for line in reversed(pending):
        if line.name in needed:
            needed |= line.needs
    return [line for line in pending if line.name in needed]
