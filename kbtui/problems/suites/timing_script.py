"""Stand-ins for what a timing script of TritonBench-G imports: its base class, and the module of the kernel."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

SUITE = "TritonBench"
BASE = "performance_utils"


class Appended:
    """`each(script, number, item)` is called for every input that a script appends to its list, in turn. None is kept."""

    def __init__(self, each: Callable[[Any, int, Any], None]) -> None:
        self.each = each


class _Inputs(list[Any]):
    def __init__(self, script: Any, appended: Appended, given: list[Any]) -> None:
        super().__init__()
        self._script, self._appended, self._number = script, appended, 0
        for item in given:
            self.append(item)

    def append(self, item: Any) -> None:
        number, self._number = self._number, self._number + 1
        self._appended.each(self._script, number, item)

    def extend(self, items: Any) -> None:
        for item in items:
            self.append(item)

    def __iadd__(self, items: Any) -> Any:  # type: ignore[misc]  # a list takes any iterable here
        self.extend(items)
        return self


def _base(appended: Appended) -> type:
    class Script:
        def __init__(self, op_name: str = "", dtype: Any = None, is_backward: bool = False, **kwargs: Any) -> None:
            self.op_name, self.dtype, self.is_backward, self.kwargs = op_name, dtype, is_backward, kwargs
            self.input_tensors: list[Any] = []

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "input_tensors" and isinstance(value, list) and not isinstance(value, _Inputs):
                value = _Inputs(self, appended, value)
            object.__setattr__(self, name, value)

        def to_cuda(self, item: Any) -> Any:
            return item

    return Script


class _Finder(MetaPathFinder):
    """Gives the kernel's names for every module of the suite that a script imports."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        del path, target
        if not name.partition(".")[0].startswith(SUITE):
            return None
        return ModuleSpec(name, self, is_package="." not in name)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        del spec

    def exec_module(self, module: ModuleType) -> None:
        kept = {name for name in vars(module) if name.startswith("__")}
        vars(module).update({name: value for name, value in self._names.items() if name not in kept})


@contextlib.contextmanager
def stand_ins(names: dict[str, Any], appended: Appended) -> Iterator[dict[str, Any]]:
    """Within the block a timing script can be executed in the namespace that is given."""
    before, path = dict(sys.modules), list(sys.path)
    base = ModuleType(BASE)
    script = _base(appended)
    vars(base).update({"Performance_Metrics": script, "do_bench_config": lambda *_, **__: None})
    finder = _Finder(names)
    sys.modules[BASE] = base
    sys.meta_path.insert(0, finder)
    try:
        yield {"__name__": "kbtui_timed", "__file__": __file__}
    finally:
        sys.meta_path.remove(finder)
        sys.path[:] = path
        for name in set(sys.modules) - set(before):
            if name == BASE or name.partition(".")[0].startswith(SUITE):
                del sys.modules[name]
        if BASE in before:
            sys.modules[BASE] = before[BASE]
