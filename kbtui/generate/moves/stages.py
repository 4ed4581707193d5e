"""Pipeline: how many iterations of a loop are in flight at once, for a launch and for one loop."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.moves.warps import changed, shown
from kbtui.generate.tree.edits import call_edit, with_keyword
from kbtui.generate.tree.flow import TL, KernelFlow, flow_of
from kbtui.generate.tree.loops import Loop, as_tl_range, kernel_loops, keyword_integer
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.nodes import Edits
from kbtui.generate.tree.options import settings
from kbtui.state.records import NumberChange, Strategy

DEFAULT_STAGES = 3
"""Triton's own, on NVIDIA devices from sm_80."""
LEAST_STAGES, MOST_STAGES = 1, 6
FIRST_STAGES = (2, 3, 4)
"""What a loop without a number of its own gets."""
UNPIPELINED = 1
"""What such a loop counts as: where nothing is loaded ahead."""


class LaunchStages(Move):
    name = "launch_stages"
    strategy: Strategy = "pipeline"
    kind = "parameter"
    summary = "num_stages of the launch one up or down; only with a tl.dot in a loop, where Triton acts on it"

    def sites(self, module: KernelModule) -> list[Site]:
        found = []
        for setting in settings(module, "num_stages", DEFAULT_STAGES):
            flow = flow_of(module, setting.kernel)
            if not _dots_in_loops(flow):
                continue
            steps = (2, 3, 4) if setting.value is None else (setting.value + 1, setting.value - 1)
            for new in steps:
                edits = setting.change(new) if LEAST_STAGES <= new <= MOST_STAGES else None
                if edits is not None:
                    title = f"num_stages {shown(setting)} → {new}"
                    detail = f"{setting.kernel.name}, {setting.place}"
                    line = module.line(setting.node)
                    change = changed(setting, "num_stages", new)
                    found.append(Site(title, setting.kernel.name, line, edits, detail, change))
        return found


def _dots_in_loops(flow: KernelFlow) -> bool:
    return any(
        flow.module.names.calls(inner, f"{TL}.dot", f"{TL}.dot_scaled")
        for node in flow.nodes(flow.body)
        if isinstance(node, cst.For | cst.While)
        for inner in flow.nodes(node.body)
    )


class LoopStages(Move):
    name = "loop_stages"
    strategy: Strategy = "pipeline"
    kind = "parameter"
    summary = (
        "num_stages of one loop through tl.range, for loops with loads: unlike the launch's it acts without tl.dot"
    )

    def sites(self, module: KernelModule) -> list[Site]:
        loops = enumerate(kernel_loops(module), 1)
        return [site for number, loop in loops if loop.loads for site in self._of_loop(module, loop, number)]

    def _of_loop(self, module: KernelModule, loop: Loop, number: int) -> Iterator[Site]:
        line, name = module.line(loop.node), f"stages of loop {number}"
        if loop.kind == "tl.range":
            old = keyword_integer(loop.header, "num_stages")
            given = any(a.keyword is not None and a.keyword.value == "num_stages" for a in loop.header.args)
            if given and old is None:
                return
            for new in FIRST_STAGES if old is None else (old + 1, old - 1):
                if LEAST_STAGES <= new <= MOST_STAGES:
                    edits: Edits = {loop.header: call_edit(with_keyword("num_stages", str(new)))}
                    before = "" if old is None else f" {old} →"
                    yield Site(
                        f"loop num_stages{before} {new}", loop.kernel.name, line, edits, loop.describe(module),
                        NumberChange(name, UNPIPELINED if old is None else old, new),
                    )  # fmt: skip
        elif loop.kind == "range":
            for new in FIRST_STAGES:
                change = as_tl_range(module, "num_stages", new)
                if change is not None:
                    edits = {loop.header: call_edit(change)}
                    yield Site(
                        f"loop num_stages {new}", loop.kernel.name, line, edits, loop.describe(module),
                        NumberChange(name, UNPIPELINED, new),
                    )  # fmt: skip
