"""A problem made of a kernel file, code that calls it, and a script that times it: the layout of TritonBench-G.

Nothing of the suite's code is changed. To make the inputs of a case it is run again, under a fresh seed, with the entry
replaced by a recorder; the arguments of the wanted call are the inputs. The reference is the kernel as it was shipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kbtui.problems.format import Case
from kbtui.problems.importing import KERNEL, load_module
from kbtui.problems.suites.elsewhere import TooLong, elsewhere
from kbtui.problems.suites.recorder import Enough, Recorder, Unusable
from kbtui.problems.suites.setting import NO_KERNEL, SETTING
from kbtui.problems.suites.timing_script import Appended, stand_ins

CALLS, TIMED = "calls.py", "timed.py"
"""The suite's test code, and its timing script, beside kernel.py."""
MOST_BYTES = 1 << 30
"""Inputs of a timed case: a pair of processes and the oracle hold a copy each, and the outputs."""
MOST_TIMED = 5
"""Timed cases of a problem, the largest that fits and others spread below it."""
MOST_CHECKED = 12
FEW_ELEMENTS = 1 << 16
"""A timed input of at most so many elements is checked too where the suite's own tests have no usable call."""
_VALUES_NEEDED_BYTES = 1 << 26
_SURVEY_SEED = 0
_SURVEY_CALLS = 40_000
"""Calls of torch while the suite's code is looked through: inputs that take more than that to make are left out."""


class TooMuchToMake(ValueError):
    """Inputs that a suite makes element by element."""


@dataclass(frozen=True)
class Found:
    """One call that the suite makes: where, and what it gives. `reason` says why it is no case."""

    source: str
    number: int
    reason: str = ""
    nbytes: int = 0
    elements: int = 0
    shape: str = ""

    @property
    def case(self) -> Case:
        return Case(input=f"{self.source}-{self.number}", shape=self.shape or "none", elements=self.elements)


class TritonFile:
    """The pieces of such a problem. `entry` is what candidates define, `recorded` what the suite's code calls (the entry, or a
    class whose `apply` it wraps). `files` are sha256 by name of what lies beside.

    Raises ValueError with one sentence when a file has changed or no call can be a case.
    """

    def __init__(
        self,
        problem_file: str,
        *,
        entry: str,
        recorded: str,
        parameters: tuple[str, ...],
        files: Mapping[str, str],
    ) -> None:
        self._folder = Path(problem_file).resolve().parent
        self._entry, self._recorded = entry, recorded
        for name, digest in files.items():
            if hashlib.sha256((self._folder / name).read_bytes()).hexdigest() != digest:
                raise ValueError(f"{name} is not what it was when it was imported: import it again")
        self._files = frozenset(files)
        self._kernel: ModuleType | None = None
        self.notes: list[str] = []
        self.reference = _with_parameters(self._reference, parameters)
        found = [*self._survey(CALLS), *self._survey(TIMED)]
        self.cases, self.checks = self._choose(found)

    # what there is

    def _survey(self, name: str) -> list[Found]:
        """Every call of a file, from shapes alone where its code lets them be told from shapes."""
        if name not in self._files:
            return []
        found, trouble = self._recorded_calls(name, "meta", _SURVEY_SEED)
        told = not isinstance(trouble, TooMuchToMake)  # with values it would take longer still
        if told and (trouble is not None or not any(not one.reason for one in found)):
            again, still = self._recorded_calls(name, "cpu", _SURVEY_SEED)
            if sum(not one.reason for one in again) > sum(not one.reason for one in found) or still is None:
                found, trouble = again, still
        if trouble is not None:
            self.notes.append(f"{name} stops after {len(found)} calls: {_one_line(trouble)}")
        self.notes += [f"{one.source}-{one.number} is no case: {one.reason}" for one in found if one.reason]
        return found

    def _recorded_calls(self, name: str, device: str, seed: int) -> tuple[list[Found], Exception | None]:
        found: list[Found] = []
        source = name.removesuffix(".py")

        def note(number: int, arguments: Any) -> None:
            if isinstance(arguments, Unusable):
                found.append(Found(source, number, str(arguments)))
            else:
                found.append(_measured(source, number, arguments))
            if device == "cpu" and found[-1].nbytes > _VALUES_NEEDED_BYTES:
                raise Enough

        trouble = self._play(name, device, seed, note, -1)
        return found, trouble

    def _choose(self, found: list[Found]) -> tuple[list[Case], list[Case]]:
        usable = [one for one in found if not one.reason]
        calls = sorted((one for one in usable if one.source == "calls"), key=lambda one: one.elements)[:MOST_CHECKED]
        timed = [one for one in usable if one.source == "timed" and 0 <= one.nbytes <= MOST_BYTES]
        left_out = sum(one.source == "timed" for one in usable) - len(timed)
        if left_out:
            self.notes.append(f"{left_out} timed inputs of over {MOST_BYTES >> 30} GiB are left out")
        chosen = _spread(sorted(timed, key=lambda one: one.nbytes)) or _spread(calls)
        if not chosen:
            notes = sorted(self.notes, key=lambda note: "is no case" not in note)
            why = notes[0] if notes else "its code calls the entry nowhere"
            raise ValueError(f"no call of {self._recorded} can be a case ({why})")
        checks = [one for one in calls if one not in chosen]
        if not any(one.elements <= FEW_ELEMENTS for one in (*chosen, *checks)):
            checks += [one for one in timed if one.elements <= FEW_ELEMENTS and one not in chosen][:2]
        return [one.case for one in chosen], [one.case for one in checks]

    # inputs and outputs

    def make_inputs(self, case: Case, generator: torch.Generator, device: str) -> tuple[Any, ...]:
        """The arguments of the case's call under the generator's seed. Raises what the suite's code raises."""
        source, _, text = str(case.fields["input"]).rpartition("-")
        wanted: list[tuple[Any, ...]] = []

        def keep(number: int, arguments: Any) -> None:
            if number == int(text):
                if isinstance(arguments, Unusable):
                    raise arguments
                wanted.append(arguments)
                raise Enough

        trouble = self._play(f"{source}.py", device, generator.initial_seed(), keep, int(text))
        if not wanted:
            raise trouble or ValueError(f"{source}.py makes no call {text} of {self._recorded}")
        return wanted[0]

    def _reference(self, *arguments: Any) -> Any:
        function = getattr(self._module(), self._entry)
        with SETTING.pretend():
            return function(*arguments)

    # running the suite's code

    def _module(self) -> ModuleType:
        if self._kernel is None:
            try:
                with SETTING.pretend():
                    self._kernel = load_module(self._folder, KERNEL.removesuffix(".py"))
            except Exception as error:
                raise ValueError(f"{NO_KERNEL}: {_one_line(error)}") from error
            SETTING.loaded()
        return self._kernel

    def _play(
        self, name: str, device: str, seed: int, on_call: Callable[[int, Any], None], wanted: int
    ) -> Exception | None:
        """Run a file with the entry recorded; what it raised, None when it came to its end or to the wanted call."""
        module = self._module()
        function = getattr(module, self._recorded)
        recorder = Recorder(function, on_call)
        names = {**vars(module), self._recorded: recorder, "__name__": "kbtui_suite"}
        code = compile((self._folder / name).read_text(encoding="utf-8"), str(self._folder / name), "exec")
        try:
            most = _SURVEY_CALLS if wanted < 0 else 0
            with SETTING.pretend(), elsewhere(device, seed, most), _quiet():
                if name == CALLS:
                    exec(code, names)  # noqa: S102  the user's own suite, in the oracle's process
                else:
                    _time(code, names, recorder, wanted)
        except Enough:
            return None
        except TooLong:
            return TooMuchToMake("what comes next takes too long to make")
        except (Exception, SystemExit) as error:  # noqa: BLE001  a suite's code may raise anything
            return error if isinstance(error, Exception) else ValueError("it leaves by sys.exit")
        return None


def _time(code: Any, names: dict[str, Any], recorder: Recorder, wanted: int) -> None:
    """Run a timing script and call what it would time, for each of its inputs in turn: the input's number is the call's."""

    def each(script: Any, number: int, item: Any) -> None:
        if wanted in (-1, number):
            recorder.calls, recorder.most = number, number + 1  # of several calls the first one counts
            trouble: Exception | None = None
            try:
                script.call_op(script.to_cuda(item))
            except Exception as error:  # noqa: BLE001  a suite's code may raise anything
                trouble = error
            if trouble is not None and (wanted == number or recorder.calls == number):
                raise trouble  # one that was called is a case, whatever its code does with the result

    with stand_ins(names, Appended(each)) as namespace:
        exec(code, namespace)  # noqa: S102  as above
        made: list[Any] = [
            one for one in namespace.values() if inspect.isclass(one) and "get_input_tensors" in vars(one)
        ]
        if not made:
            raise ValueError("it defines no class with get_input_tensors")
        made[-1]().get_input_tensors()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What the suite prints is nobody's: it would land between a lane's own lines."""
    import io

    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _measured(source: str, number: int, arguments: tuple[Any, ...]) -> Found:
    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    largest = max(tensors, key=lambda one: one.numel(), default=None)
    shape = ""
    if largest is not None:
        dtype = str(largest.dtype).removeprefix("torch.")
        shape = f"{dtype}[{'x'.join(map(str, largest.shape))}]"
    nbytes = sum(one.numel() * one.element_size() for one in tensors)
    return Found(source, number, "", nbytes, sum(one.numel() for one in tensors), shape)


def _spread(ordered: list[Found]) -> list[Found]:
    """At most `MOST_TIMED` of them, the last one included, at even steps down from it."""
    step = max(1, -(-len(ordered) // MOST_TIMED))
    return ordered[::-1][::step][::-1]


def _with_parameters(function: Callable[..., Any], parameters: tuple[str, ...]) -> Callable[..., Any]:
    """A function that shows these parameters: who looks for the reference's names finds the entry's."""

    def reference(*arguments: Any) -> Any:
        return function(*arguments)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    reference.__signature__ = inspect.Signature([inspect.Parameter(one, kind) for one in parameters])  # type: ignore[attr-defined]
    return reference


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1].strip()}"[:160] if lines else type(error).__name__
