"""Pipeline: loads that stand behind a reduction, a loop or a matrix product, and need nothing of it, are issued before it.

The compiler does not move a load over the barriers of a reduction or out of a loop's tail, so the order in the source decides
whether its latency is hidden. In return the loaded tile waits in registers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.flow import TL, KernelFlow, flow_of
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edit, find, mentioned, walk
from kbtui.generate.tree.pure import bound, is_pure
from kbtui.state.records import Strategy

_SLOW = tuple(
    f"{TL}.{name}" for name in ("sum", "max", "min", "argmax", "argmin", "reduce", "dot", "dot_scaled", "sort")
)
"""What is worth issuing a load before; loops too."""


@dataclass(eq=False)
class _Body:
    """A kernel's statements in order, as loads move up in them."""

    flow: KernelFlow = field(repr=False)
    statements: list[cst.BaseStatement]

    def move(self, load: cst.BaseStatement) -> bool:
        """Puts the load, and what computes its address, right before the first slow statement that it may pass."""
        group, first = self._rising(load)
        place = self.statements.index(load)
        passed = [
            i for i in range(first, place) if self.statements[i] not in group and self._is_slow(self.statements[i])
        ]
        if not passed:
            return False
        target = passed[0]
        rising = [s for s in self.statements[target:place] if s in group] + [load]
        kept = [s for s in self.statements[target:] if s not in rising]
        self.statements[target:] = [*rising, *kept]
        return True

    def _rising(self, load: cst.BaseStatement) -> tuple[list[cst.BaseStatement], int]:
        """The statements that only compute what the load reads, and the index of the first statement it may pass."""
        group: list[cst.BaseStatement] = []
        reads = mentioned(load)
        here = self.statements.index(load)
        while here > 0:
            above = self.statements[here - 1]
            if not is_pure(self.flow, above):
                break
            if bound(above) & reads:
                if self._is_slow(above) or not self._binds_once(above):
                    break
                group.append(above)
                reads |= mentioned(above)
            here -= 1
        return group, here

    def _binds_once(self, statement: cst.BaseStatement) -> bool:
        names = bound(statement)
        once = all(len(self.flow.scope.bindings[n]) == 1 and n not in self.flow.scope.parameters for n in names)
        return isinstance(statement, cst.SimpleStatementLine) and once

    def _is_slow(self, statement: cst.BaseStatement) -> bool:
        return any(isinstance(n, cst.For) or self.flow.module.names.calls(n, *_SLOW) for n in walk(statement))


class EarlyLoads(Move):
    name = "early_loads"
    strategy: Strategy = "pipeline"
    kind = "structural"
    summary = "a load behind a reduction or a loop that it does not depend on is issued before it; or all such loads"

    def sites(self, module: KernelModule) -> list[Site]:
        found: list[Site] = []
        for kernel in module.launched:
            flow = flow_of(module, kernel)
            if not isinstance(flow.body, cst.IndentedBlock):
                continue
            loads = [s for s in flow.body.body if _is_load(flow, s)]
            single = [(load, moved) for load in loads if (moved := _moved(flow, [load])) is not None]
            for load, body in single:
                title = f"load of {_name(load)} before what it does not need"
                found.append(_site(module, flow, title, load, body))
            together = _moved(flow, [load for load, _ in single])
            if len(single) > 1 and together is not None and all(together != body for _, body in single):
                title = f"{len(single)} loads before what they do not need"
                found.append(_site(module, flow, title, loads[0], together))
        return found


def _site(module: KernelModule, flow: KernelFlow, title: str, load: cst.CSTNode, body: list[cst.BaseStatement]) -> Site:
    edits: dict[cst.CSTNode, Edit] = {flow.body: lambda node: node.with_changes(body=body)}
    return Site(title, flow.kernel.name, module.line(load), edits, f"order of statements in {flow.kernel.name}")


def _moved(flow: KernelFlow, loads: list[cst.BaseStatement]) -> list[cst.BaseStatement] | None:
    """The body with the loads moved up as far as each may; None when none of them moves."""
    body = _Body(flow, [s for s in flow.body.body if isinstance(s, cst.BaseStatement)])
    moved = [body.move(load) for load in loads]
    return body.statements if any(moved) else None


def _is_load(flow: KernelFlow, statement: cst.CSTNode) -> bool:
    """Whether it binds one name, once in the kernel, to something loaded, and does nothing slow itself."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return False
    small = statement.body[0]
    if (
        not isinstance(small, cst.Assign)
        or len(small.targets) != 1
        or not isinstance(small.targets[0].target, cst.Name)
    ):
        return False
    name = small.targets[0].target.value
    once = len(flow.scope.bindings.get(name, [])) == 1 and name not in flow.scope.parameters
    calls = list(find(small.value, cst.Call))
    names = flow.module.names
    return once and any(names.calls(c, f"{TL}.load") for c in calls) and not any(names.calls(c, *_SLOW) for c in calls)


def _name(statement: cst.BaseStatement) -> str:
    return ", ".join(sorted(bound(statement)))
