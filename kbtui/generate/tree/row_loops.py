"""Writing a row's kernel as loops over pieces of the row."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.tree.flow import TL
from kbtui.generate.tree.nodes import Edit, find, substitute
from kbtui.generate.tree.row import REDUCTIONS, Line, Row

_INFINITY = {"max": '-float("inf")', "min": 'float("inf")'}


def looped_row(row: Row) -> cst.IndentedBlock:
    """The kernel's body as loops over the row: one for each reduction, and one for all that is stored."""
    return _LoopWriter(row).body()


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
        waiting: list[Line] = []
        stores: list[Line] = []
        for line in self._row.lines:
            for reduction in line.reductions:
                body.extend(self._reduced(reduction, waiting))
            if not line.tile:
                body.append(self._copy(line))
                continue
            waiting.append(line)
            if line.stores:
                stores.append(line)
        # In their old order: a store may stand before a statement that binds its tile's name again.
        needed = _closure(waiting, set(), stores)
        body.append(self._loop([*map(self._copy, needed)]))
        original = self._row.flow.body
        assert isinstance(original, cst.IndentedBlock)
        return original.with_changes(body=body)

    def _reduced(self, reduction: cst.Call, waiting: list[Line]) -> Iterator[cst.BaseStatement]:
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
        needed = _closure(waiting, {n.value for n in find(reduction.args[0].value, cst.Name)}, [])
        yield self._loop([*map(self._copy, needed), cst.parse_statement(step)])
        call = reduction.with_changes(args=[reduction.args[0].with_changes(value=cst.Name(parts)), *reduction.args[1:]])
        yield cst.parse_statement(f"{result} = {self._module.code(call.with_changes(lpar=[], rpar=[]))}")
        self._edits[reduction] = lambda _node: cst.Name(result)

    def _loop(self, body: list[cst.BaseStatement]) -> cst.BaseStatement:
        loop = cst.parse_statement(f"for {self._start} in range(0, {self._row.end}, {self._row.size}):\n    pass\n")
        assert isinstance(loop, cst.For)
        return loop.with_changes(body=cst.IndentedBlock(body=body))

    def _copy(self, line: Line) -> cst.BaseStatement:
        """The statement with its reductions named; its comments only the first time."""
        made = substitute(line.node, self._edits, self._module.above)
        if line.node not in self._shown:
            self._shown.add(line.node)
            return made
        if isinstance(made, cst.If):
            return made.with_changes(leading_lines=[])
        return made.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace())

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


def _closure(pending: list[Line], wanted: set[str], effects: list[Line]) -> list[Line]:
    """The statements among `pending` that the wanted tiles and the `effects` need, in order."""
    needed = set(wanted)
    found: list[Line] = []
    for line in reversed(pending):
        if line in effects or (not line.stores and line.binds & needed):
            needed |= line.needs
            found.append(line)
    return found[::-1]
