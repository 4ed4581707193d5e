"""Launch options (`num_warps`, `num_stages`): where a launch gets them, and how to give it another value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import libcst as cst

from kbtui.generate.tree.edits import call_edit, to_integer, vary_config, with_keyword
from kbtui.generate.tree.module import Kernel, KernelModule, Launch, bind
from kbtui.generate.tree.nodes import Edits
from kbtui.generate.tree.origins import Origins, integer
from kbtui.generate.tree.spreads import spreads


@dataclass(frozen=True, eq=False)
class Setting:
    """One place that gives an option to the launches of a kernel.

    `value` is None where it is computed. `written` is False where nothing is written and Triton's default holds.
    """

    kernel: Kernel
    node: cst.CSTNode
    value: int | None
    written: bool
    place: str
    change: Callable[[int], Edits | None] = field(repr=False)
    """The edits that set another value; None when that would repeat another configuration."""


def settings(module: KernelModule, option: str, default: int) -> list[Setting]:
    """Every place that gives `option`, in source order; launches that may get it through `**kwargs` are left out."""
    found: list[Setting] = []
    origins = Origins(module)
    seen: set[cst.CSTNode] = set()
    for launch in module.launches:
        if launch.kernel.tuned or option in launch.kernel.scope.parameters:
            continue
        for setting in _of_launch(origins, launch, option, default):
            if setting.node not in seen:
                seen.add(setting.node)
                found.append(setting)
    for kernel in module.launched:
        if option not in kernel.scope.parameters:
            found.extend(_of_configs(module, kernel, option, default))
            found.extend(_of_spreads(module, kernel, option))
    return found


def _of_launch(origins: Origins, launch: Launch, option: str, default: int) -> Iterator[Setting]:
    def at_launch(value: int) -> Edits:
        return {launch.call: call_edit(with_keyword(option, str(value)))}

    if option not in launch.bound:
        if not launch.open:
            yield Setting(launch.kernel, launch.call, default, False, "at the launch", at_launch)
        return
    places = [o for o in origins.of(launch, option) if o.kind == "literal" and not o.cap]
    if len(places) != 1 or not _single(launch, option):
        # Computed, or chosen by branches: a fixed number at the launch replaces it.
        yield Setting(launch.kernel, launch.call, None, True, "at the launch", at_launch)
        return
    node = places[0].node
    yield Setting(launch.kernel, node, places[0].value, True, "where it is written", lambda v: {node: to_integer(v)})


def _single(launch: Launch, option: str) -> bool:
    """Whether the argument is a literal or one name with one binding all the way."""
    expression, scope = launch.bound[option].value, launch.scope
    while isinstance(expression, cst.Name):
        owner = scope.owner(expression.value)
        if owner is None:
            return False
        values = [b.value for b in owner.bindings.get(expression.value, [])]
        parameter = owner.parameters.get(expression.value)
        if parameter is not None:
            values.append(parameter.default)
        if len(values) != 1 or values[0] is None:
            return False
        expression, scope = values[0], owner
    return integer(expression) is not None


def _of_configs(module: KernelModule, kernel: Kernel, option: str, default: int) -> Iterable[Setting]:
    for number, config in enumerate(kernel.configs, 1):
        bound, is_open = bind(config, ["kwargs", "num_warps", "num_stages"])
        if is_open or (option in bound and bound[option].keyword is None):
            continue
        value = integer(bound[option].value) if option in bound else default

        def in_config(new: int, config: cst.Call = config) -> Edits | None:
            return vary_config(module, kernel, config, with_keyword(option, str(new)))

        place = f"in config {number} of {len(kernel.configs)}"
        yield Setting(kernel, config, value, option in bound, place, in_config)


def _of_spreads(module: KernelModule, kernel: Kernel, option: str) -> Iterable[Setting]:
    """Every value of a list that a loop over configurations takes for the option; a change adds one to it."""
    for spread in spreads(module, kernel):
        if spread.key == option:
            for value in spread.values:
                yield Setting(kernel, spread.listed, value, True, "one more in the autotune loops", spread.with_value)
