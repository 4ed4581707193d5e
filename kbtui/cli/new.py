"""`kbtui new`: a problem's folder to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kbtui.cli import output


def register(app: typer.Typer) -> None:
    app.command()(new)


def new(name: Annotated[Path, typer.Argument(help="The folder to make.")]) -> None:
    """Make a problem's folder to start from.

    Its two files are a small problem that works, with comments on what to change.
    """
    from kbtui.problems.new import new_problem

    folder = new_problem(name.name, name.parent)
    place = name if name.is_absolute() else f"./{name}"  # a bare name would mean a bundled problem first
    output.line(f"{folder}: kernel.py is the kernel to speed up, problem.py its reference, cases and inputs")
    output.line(f"change them, then `kbtui check {place}` and `kbtui run {place}`")
