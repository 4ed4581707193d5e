"""problem.py, executed and checked: each piece by itself, each complaint one sentence with file, piece and remedy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kbtui.evaluate.inlane.faults import one_line
from kbtui.evaluate.inlane.tensors import NotPortable, describe, describe_value, flatten_outputs
from kbtui.problems.format import Case, Vary
from kbtui.problems.importing import PROBLEM, load_module


class ProblemFault(Exception):
    """The problem is malformed; the sentence names file, piece and remedy."""


class Problem:
    """The pieces of a problem.py, each of the right kind. Raises ProblemFault."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / PROBLEM
        module = self._import(folder)
        self.entry = str(self._piece(module, "entry", 'write entry = "softmax", the function in kernel.py to call'))
        self.reference = self._function(module, "reference", "the trusted implementation, with the entry's parameters")
        self.make_inputs = self._function(module, "make_inputs", "make_inputs(case, generator, device)")
        self.cases = self._cases(module)
        self.checks = self._checks(module)
        self.vary = self._vary(module)
        self.mutates = self._mutates(module)
        self.dtypes = self._dtypes(module)
        self.tolerance = self._tolerance(module)
        self.precision = self._precision(module)
        self.own_precision = bool(getattr(module, "own_precision", False))
        """The reference computes in the precision of the inputs and in no other, as a kernel does."""
        self.notes = tuple(map(str, getattr(module, "notes", ())))
        self.traffic: Callable[[Case], Any] | None = getattr(module, "traffic", None)
        if self.traffic is not None and not callable(self.traffic):
            self._refuse("traffic is not a function", "define traffic(case) -> (bytes, operations)")
        self.summary = (inspect.getdoc(module) or "").partition("\n")[0]

    def _refuse(self, what: str, remedy: str) -> Any:
        raise ProblemFault(f"{self.file}: {what}: {remedy}")

    def _import(self, folder: Path) -> ModuleType:
        try:
            return load_module(folder, "problem")
        except BaseException as error:
            self._refuse(f"importing it raises {one_line(error)}", _remedy(error, "mend the module"))
            raise

    def _piece(self, module: ModuleType, name: str, remedy: str) -> Any:
        if not hasattr(module, name):
            self._refuse(f"it has no {name}", remedy)
        return getattr(module, name)

    def _function(self, module: ModuleType, name: str, what: str) -> Callable[..., Any]:
        found = self._piece(module, name, f"define {what}")
        if not callable(found):
            self._refuse(f"{name} is a {type(found).__name__}", f"define it as a function: {what}")
        function: Callable[..., Any] = found
        return function

    def _cases(self, module: ModuleType) -> tuple[Case, ...]:
        remedy = 'write cases = [Case(n=1024, dtype="float32"), ...]'
        cases: Any = self._piece(module, "cases", remedy)
        if not isinstance(cases, list | tuple) or not cases:
            self._refuse("cases is empty or not a list", remedy)
        for case in cases:
            if not isinstance(case, Case):
                self._refuse(f"cases holds a {type(case).__name__}", remedy)
        names = [case.name for case in cases]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            self._refuse(f"cases holds {twice} twice", "remove one, or tell them apart by a field")
        return tuple(cases)

    def _checks(self, module: ModuleType) -> tuple[Case, ...]:
        """Further cases, which are verified and not timed."""
        remedy = 'write checks = [Case(n=1000, dtype="float32"), ...], or leave it out'
        checks: Any = getattr(module, "checks", ())
        if not isinstance(checks, list | tuple):
            self._refuse("checks is not a list", remedy)
        for case in checks:
            if not isinstance(case, Case):
                self._refuse(f"checks holds a {type(case).__name__}", remedy)
        return tuple(case for case in dict.fromkeys(checks) if case not in self.cases)

    def _vary(self, module: ModuleType) -> dict[str, Vary] | None:
        vary = getattr(module, "vary", None)
        if vary is None:
            return None
        remedy = 'write vary = {"rows": any_int, "cols": multiple_of(16)}'
        if not isinstance(vary, Mapping):
            self._refuse("vary is not a dictionary", remedy)
        for name, field in vary.items():
            if not isinstance(field, Vary):
                self._refuse(f"vary[{name!r}] is a {type(field).__name__}", remedy)
            if any(type(case.fields.get(name)) is not int for case in (*self.cases, *self.checks)):
                self._refuse(
                    f"vary names {name!r}, which is no integer field of every case", "give every case that field"
                )
        return dict(vary)

    def _mutates(self, module: ModuleType) -> tuple[str, ...]:
        mutates = getattr(module, "mutates", ())
        mutates = (mutates,) if isinstance(mutates, str) else mutates
        known = list(inspect.signature(self.reference).parameters)
        for name in mutates:
            if name not in known:
                self._refuse(f"mutates names {name!r}, which reference has not", f"use a parameter: {', '.join(known)}")
        return tuple(mutates)

    def _dtypes(self, module: ModuleType) -> tuple[str, ...]:
        dtypes = getattr(module, "dtypes", None)
        if dtypes is None:
            return tuple(dict.fromkeys(str(case.fields["dtype"]) for case in self.cases if "dtype" in case.fields))
        for name in dtypes:
            if not isinstance(getattr(torch, str(name), None), torch.dtype):
                self._refuse(f"dtypes names {name!r}", 'use names of torch dtypes, such as "float16"')
        return tuple(map(str, dtypes))

    def _tolerance(self, module: ModuleType) -> float | dict[str, float] | None:
        tolerance = getattr(module, "tolerance", None)
        if tolerance is None or (isinstance(tolerance, int | float) and not isinstance(tolerance, bool)):
            return tolerance
        if isinstance(tolerance, Mapping) and all(isinstance(value, int | float) for value in tolerance.values()):
            return {str(name): float(value) for name, value in tolerance.items()}
        self._refuse("tolerance is no number and no dictionary of numbers", 'write tolerance = {"float16": 4e-3}')
        return None

    def _precision(self, module: ModuleType) -> str:
        precision = getattr(module, "precision", "ieee")
        if precision not in ("ieee", "tf32"):
            self._refuse(f"precision is {precision!r}", 'write precision = "tf32" or leave it out')
        return str(precision)

    def arguments(self, case: Case, generator: torch.Generator, device: str) -> tuple[Any, ...]:
        """The entry's arguments of a case. Raises ProblemFault when they cannot be made or handed over."""
        try:
            made = self.make_inputs(case, generator, device)
        except BaseException as error:  # noqa: BLE001  a problem may raise anything
            remedy = _remedy(error, "mend make_inputs")
            self._refuse(f"make_inputs raises {one_line(error)} for {case.name}", remedy)
        if not isinstance(made, tuple | list):
            self._refuse(
                f"make_inputs returns a {type(made).__name__} for {case.name}",
                "return a tuple of the entry's arguments",
            )
        for index, value in enumerate(made):
            try:
                describe(value) if isinstance(value, torch.Tensor) else describe_value(value)
            except NotPortable as error:
                self._refuse(f"make_inputs returns as argument {index} of {case.name} what no lane takes", str(error))
        return tuple(made)

    def refuse_empty(self, case: Case) -> None:
        """Raises ProblemFault for a timed case that has nothing to compute."""
        self._refuse(
            f"cases holds {case.name}, which has no elements and takes no time",
            "give it a shape with elements; zero-sized shapes belong into checks, which are verified and not timed",
        )

    def expected(self, arguments: tuple[Any, ...], case: Case) -> list[tuple[str, torch.Tensor]]:
        """What `reference` returns for these arguments, as named tensors. Raises ProblemFault."""
        try:
            with torch.no_grad():
                returned = self.reference(*arguments)
        except BaseException as error:  # noqa: BLE001  a problem may raise anything
            remedy = _remedy(error, "mend reference or the inputs")
            self._refuse(f"reference raises {one_line(error)} for {case.name}", remedy)
        try:
            return flatten_outputs(returned)
        except NotPortable as error:
            self._refuse(f"reference is no oracle for {case.name}", str(error))
            raise

    def least_traffic(self, case: Case) -> tuple[int, int]:
        """(bytes, operations) that the case needs at least; zeros where the problem does not say. Raises ProblemFault."""
        if self.traffic is None:
            return 0, 0
        remedy = "return (bytes, operations), two numbers of at least 0"
        try:
            bytes_moved, operations = self.traffic(case)
            counted = int(bytes_moved), int(operations)
        except BaseException as error:  # noqa: BLE001  a problem may raise anything
            self._refuse(f"traffic fails for {case.name} ({one_line(error)})", remedy)
        if min(counted) < 0:
            self._refuse(f"traffic is negative for {case.name}", remedy)
        return counted


def _remedy(error: BaseException, remedy: str) -> str:
    """What to do about an exception; of one that is meant to end the program, not to raise it."""
    if isinstance(error, SystemExit):
        return "take out what ends the program (sys.exit, exit, argparse), a lane loads it as a module"
    return remedy
