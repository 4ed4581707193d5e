"""A problem made of a torch module: the layout of KernelBench (`Model`, `get_inputs`, `get_init_inputs`).

The module's forward pass is the reference, and there is no kernel to start from. An entry takes what `forward` takes, then
the module's parameters and buffers in the order of `named_parameters` and `named_buffers`, as one flat list: so a kernel
can be written as a function, and nothing of the module has to be made in a candidate's process.

Sizes that only `get_inputs` uses (a batch, a length) are fields of the case, so that small and awkward ones are checked.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kbtui.problems.format import Case, Vary, any_int
from kbtui.problems.suites.elsewhere import elsewhere

MODEL = "model.py"
_SMALL = 5


class TorchModel:
    """The pieces of such a problem. `sizes` are the integers of the file that cases may change; `most_bytes` bounds a timed
    input, whose first size is halved until it fits.

    Raises ValueError with one sentence when the file has changed.
    """

    def __init__(self, problem_file: str, *, sizes: Mapping[str, int], sha256: str, most_bytes: int = 1 << 32) -> None:
        self._file = Path(problem_file).resolve().parent / MODEL
        self._text = self._file.read_text(encoding="utf-8")
        if hashlib.sha256(self._text.encode("utf-8")).hexdigest() != sha256:
            raise ValueError(f"{MODEL} is not what it was when it was imported: import it again")
        self._tree = ast.parse(self._text, str(self._file))
        self._modules: dict[tuple[tuple[str, object], ...], tuple[ModuleType, Any]] = {}
        self.notes: list[str] = []
        self.vary = self._usable_sizes(dict(sizes))
        self.cases = [self._fitting(dict(sizes), most_bytes)]
        self.reference = self._with_parameters()

    def _usable_sizes(self, sizes: dict[str, int]) -> dict[str, Vary]:
        """The sizes that may be made small: those with which the forward pass still works, tried on shapes alone."""
        names = list(sizes)
        while names:
            small = {**sizes, **{name: _SMALL + 2 * index for index, name in enumerate(names)}}
            try:
                self._forward_of_shapes(Case(**small))
            except Exception:  # noqa: BLE001  a model may raise anything for a shape that it was not made for
                names.pop()
            else:
                break
        return dict.fromkeys(names, any_int)

    def _forward_of_shapes(self, case: Case) -> None:
        arguments = self._made(case, "meta", 0)
        self._run(case, arguments)

    def _fitting(self, sizes: dict[str, int], most_bytes: int) -> Case:
        if not sizes:
            return Case(input="given")
        first = next(iter(sizes))
        whole = sizes[first]
        while sizes[first] > 1:
            with elsewhere("meta", 0):
                made = [one for one in self._executed(Case(**sizes)).get_inputs() if isinstance(one, torch.Tensor)]
            if sum(one.numel() * one.element_size() for one in made) <= most_bytes:
                break
            sizes = {**sizes, first: sizes[first] // 2}
        if sizes[first] != whole:
            self.notes.append(
                f"{first} is {sizes[first]} instead of {whole}: its inputs would take over {most_bytes >> 30} GiB"
            )
        return Case(**sizes)

    # inputs and outputs

    def make_inputs(self, case: Case, generator: torch.Generator, device: str) -> tuple[Any, ...]:
        """What `get_inputs` gives and the module's state, made anew under the generator's seed."""
        return self._made(case, device, generator.initial_seed())

    def _made(self, case: Case, device: str, seed: int) -> tuple[Any, ...]:
        module = self._executed(case)
        with elsewhere(device, seed):
            model = _made_model(module)
            inputs = module.get_inputs()
        return (*inputs, *(value.detach() for value in _state(model).values()))

    def _reference(self, *arguments: Any) -> Any:
        return self._run(self.cases[0], arguments)

    def _run(self, case: Case, arguments: tuple[Any, ...]) -> Any:
        """The forward pass of a skeleton of the model, with the state that is among the arguments."""
        model = self._skeleton(case)
        names = list(_state(model))
        count = len(arguments) - len(names)
        # buffers are copied: running statistics that a forward pass updates are no output. Parameters it only reads
        buffers = dict(model.named_buffers())
        given = zip(names, arguments[count:], strict=True)
        state = {name: value.clone() if name in buffers else value for name, value in given}
        return torch.func.functional_call(model, state, tuple(arguments[:count]))

    def _skeleton(self, case: Case) -> Any:
        key = tuple(case.fields.items())
        if key not in self._modules:
            module = self._executed(case)
            # torch.compile looks the globals of what it traces up by the name of their module
            module.__name__ = f"kbtui_model_{id(self):x}_{len(self._modules)}"
            sys.modules[module.__name__] = module
            with elsewhere("meta", 0):
                self._modules[key] = module, _made_model(module)
        return self._modules[key][1]

    def _executed(self, case: Case) -> ModuleType:
        """The file's module, with the sizes of the case in place of its own."""
        tree = ast.Module(body=[_sized(one, case.fields) for one in self._tree.body], type_ignores=[])
        module = ModuleType("kbtui_model")
        exec(compile(ast.fix_missing_locations(tree), str(self._file), "exec"), vars(module))  # noqa: S102  the user's suite
        return module

    def _with_parameters(self) -> Callable[..., Any]:
        """The reference, which shows the names of the inputs and of the state."""
        model = self._skeleton(self.cases[0])
        forward = list(inspect.signature(type(model).forward).parameters)[1:]
        names = [*forward, *(name.replace(".", "_") for name in _state(model))]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD

        def reference(*arguments: Any) -> Any:
            return self._reference(*arguments)

        signature = inspect.Signature([inspect.Parameter(name, kind) for name in names])
        reference.__signature__ = signature  # type: ignore[attr-defined]
        return reference


def _made_model(module: ModuleType) -> Any:
    given = module.get_init_inputs()
    if isinstance(given, dict):
        return module.Model(**given)
    return module.Model(*given)


def _state(model: Any) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _sized(statement: ast.stmt, sizes: Mapping[str, Any]) -> ast.stmt:
    """An assignment of a size with the case's value; any other statement as it is."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        named = [target.id for target in statement.targets if isinstance(target, ast.Name)]
        if named and all(name in sizes for name in named):
            value = ast.copy_location(ast.Constant(sizes[named[0]]), statement.value)
            return ast.copy_location(ast.Assign(targets=statement.targets, value=value), statement)
    return statement
