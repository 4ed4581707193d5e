"""Trying imported problems out, each in a process of its own: can their inputs be made?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import kbtui
from kbtui.evaluate import facts
from kbtui.evaluate.job import JobOrder, Outcome
from kbtui.evaluate.process import ProcessGone
from kbtui.evaluate.targets import device_info, find_target
from kbtui.evaluate.zygotes import Zygote
from kbtui.state.records import Record

DEADLINE_S = 60.0
MEMORY_BYTES = 3 << 30
_SUITES = Path(kbtui.__file__).resolve().parent / "problems" / "suites"


class Surveyed(Record, frozen=True, kw_only=True):
    """What trying a problem out came to: `reason` says why it cannot be used, "" if it can."""

    folder: Path
    reason: str = ""
    cases: int = 0
    checks: int = 0
    notes: tuple[str, ...] = ()


class _Found(Record, frozen=True):
    cases: int
    checks: int
    notes: tuple[str, ...]


def survey(python: str, target: str, folders: Sequence[Path], scratch: Path) -> Iterator[Surveyed]:
    """Try the problems in `folders` in turn, under the interpreter `python`. `scratch` is a folder of the caller's.

    Raises EnvironmentFailure when nothing can be tried there.
    """
    parameters = facts.compile_parameters(device_info(find_target(target)), 0)
    pretend = {key: parameters[key] for key in ("capability", "properties")}
    zygote = Zygote("interpret", python, scratch)
    try:
        zygote.launch()
        zygote.await_ready()
        for folder in folders:
            order = JobOrder(
                kind="survey",
                source="",
                entry="",
                problem_folder=folder,
                parameters={"pretend": pretend},
                deadline_s=DEADLINE_S,
                memory_bytes=MEMORY_BYTES,
                readable=(str(folder), str(_SUITES)),
            )
            try:
                yield _surveyed(folder, zygote.run(order, _refuse))
            except ProcessGone as gone:
                yield Surveyed(folder=folder, reason=str(gone))
                zygote.launch()
                zygote.await_ready()
    finally:
        zygote.release()


def _surveyed(folder: Path, outcome: Outcome) -> Surveyed:
    if outcome.kind != "done":
        return Surveyed(folder=folder, reason=outcome.reason or outcome.kind)
    try:
        found = msgspec.convert(outcome.value, _Found)
    except msgspec.ValidationError as error:
        return Surveyed(folder=folder, reason=f"its code got in the way of trying it ({error})")
    return Surveyed(folder=folder, cases=found.cases, checks=found.checks, notes=found.notes)


def _refuse(job: object, message: object, descriptors: object) -> Any:
    """The job asks nothing: one that does is ended."""
    del job, message, descriptors
