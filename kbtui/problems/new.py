"""`kbtui new NAME`: a problem folder that works as it stands, to be edited into one's own."""

from __future__ import annotations

import keyword
from pathlib import Path

from kbtui.errors import ProblemError
from kbtui.problems.folder import bundled
from kbtui.problems.importing import KERNEL, PROBLEM

_PLACEHOLDER = "ENTRY_NAME"


def new_problem(name: str, where: Path) -> Path:
    """Write the template as the folder `where/name`, its entry called `name`, and return the folder.

    Raises ProblemError when the name cannot be a function's, is a bundled problem's, or the folder exists: nothing is
    ever overwritten.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ProblemError(
            f"{name!r} cannot name a Python function: use letters, digits and underscores, as in my_kernel"
        )
    if name in bundled():
        raise ProblemError(f"{name} is the name of a bundled problem: choose another, such as my_{name}")
    folder = where / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ProblemError(f"{folder} exists already: choose another name, or remove it first") from None
    except OSError as error:
        raise ProblemError(f"{folder} cannot be created ({error.strerror}): choose another place") from None
    for file in (KERNEL, PROBLEM):
        (folder / file).write_text(_template(file).replace(_PLACEHOLDER, name), encoding="utf-8")
    return folder


def _template(file: str) -> str:
    return (Path(__file__).parent / "templates" / f"{file}.txt").read_text(encoding="utf-8")
