"""`kbtui new`: a problem's folder to start from."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from kbtui.cli import output
from kbtui.errors import UsageError


def register(app: typer.Typer) -> None:
    app.command()(new)


def new(
    name: Annotated[Path, typer.Argument(help="The folder to make.")],
    like: Annotated[str, typer.Option("--like", help="The bundled problem to copy.")] = "vector_add",
) -> None:
    """Make a problem's folder to start from.

    It is a copy of a bundled problem that works, for you to change.
    """
    from kbtui.problems.folder import find_problem

    problem = find_problem(like)
    try:
        name.mkdir(parents=True)
        for file in (problem.kernel_file, problem.problem_file):
            shutil.copyfile(file, name / file.name)
    except FileExistsError:
        raise UsageError(f"{name} exists already: choose another name") from None
    except OSError as error:
        raise UsageError(f"{name} cannot be made: {error.strerror}") from None
    output.line(f"{name / problem.kernel_file.name}  the kernel to speed up")
    output.line(f"{name / problem.problem_file.name}  its reference, cases and inputs")
    place = name if name.is_absolute() else f"./{name}"  # a bare name would mean a bundled problem first
    output.line(f"then `kbtui check {place}` and `kbtui run {place}`")
