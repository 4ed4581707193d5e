"""Vectorization and reordering: how many warps share a program's tile.

With the tile unchanged, fewer warps give each thread more elements, hence wider loads and more independent work in
one thread; more warps give the scheduler more to interleave. The two directions act on different resources, so they
are two moves.
"""

from __future__ import annotations

from collections.abc import Callable

from kbtui.generate.moves.move import Move, Site
from kbtui.generate.tree.module import KernelModule
from kbtui.generate.tree.options import Setting, settings
from kbtui.state.records import NumberChange, Strategy

DEFAULT_WARPS = 4
"""Triton's own, on NVIDIA devices."""
LEAST_WARPS, MOST_WARPS = 1, 16
COMPUTED_FEWER, COMPUTED_MORE = 2, 8
"""What replaces a computed number: half and twice the default."""


class FewerWarps(Move):
    name = "fewer_warps"
    strategy: Strategy = "vectorization"
    kind = "parameter"
    summary = "halve num_warps (launch, wrapper, autotune list): more elements a thread for the same tile"

    def sites(self, module: KernelModule) -> list[Site]:
        return _sites(module, lambda old: COMPUTED_FEWER if old is None else old // 2)


class MoreWarps(Move):
    name = "more_warps"
    strategy: Strategy = "reordering"
    kind = "parameter"
    summary = "double num_warps (launch, wrapper, autotune list): more warps for the scheduler to interleave"

    def sites(self, module: KernelModule) -> list[Site]:
        return _sites(module, lambda old: COMPUTED_MORE if old is None else old * 2)


def _sites(module: KernelModule, step: Callable[[int | None], int]) -> list[Site]:
    found = []
    for setting in settings(module, "num_warps", DEFAULT_WARPS):
        new = step(setting.value)
        if not LEAST_WARPS <= new <= MOST_WARPS or new & (new - 1):
            continue
        edits = setting.change(new)
        if edits is not None:
            found.append(
                Site(
                    f"num_warps {shown(setting)} → {new}",
                    setting.kernel.name,
                    module.line(setting.node),
                    edits,
                    f"{setting.kernel.name}, {setting.place}",
                    changed(setting, "num_warps", new),
                )
            )
    return found


def shown(setting: Setting) -> str:
    """The old value as a title says it."""
    if setting.value is None:
        return "computed"
    return str(setting.value) if setting.written else f"{setting.value} (default)"


def changed(setting: Setting, option: str, new: int) -> NumberChange | None:
    """The number that a new value changes; None where it adds a configuration to an autotune list, or replaces what is
    computed."""
    if setting.value is None or setting.kernel.tuned:
        return None
    return NumberChange(f"{option} of {setting.kernel.name}", setting.value, new)
