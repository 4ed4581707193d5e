"""What every importer gives back, and where imported problems lie."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kbtui import paths
from kbtui.errors import EnvironmentFailure, UsageError
from kbtui.problems.importing import PROBLEM

GENERATED = "# Written by `kbtui import`; importing again replaces it."


@dataclass(frozen=True)
class Imported:
    """One file of a suite: its problem's folder, or the reason why it is none. `notes` are worth a reader's look."""

    name: str
    folder: Path | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()


def default_folder(suite: str) -> Path:
    """Where a suite's problems go unless said otherwise; `kbtui run SUITE/NAME` finds them there."""
    return paths.problems_dir() / suite


def chosen(files: list[Path], kernels: tuple[str, ...], where: Path) -> list[Path]:
    """The files called so, in their own order; all where no name is given. Raises UsageError for a name that none has."""
    if not files:
        raise UsageError(f"{where} holds no file of that suite: give the folder that has them, or one above it")
    if not kernels:
        return files
    known = {file.stem for file in files}
    unknown = next((name for name in kernels if name not in known), None)
    if unknown is not None:
        raise UsageError(f"{where} has no {unknown}: it has {len(known)} files, such as {min(known)}")
    return [file for file in files if file.stem in kernels]


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Write a problem's files. A folder that an import made is replaced; another one is refused.

    Raises UsageError or EnvironmentFailure.
    """
    problem = folder / PROBLEM
    if folder.exists() and not (problem.is_file() and GENERATED in problem.read_text("utf-8", "replace")):
        raise UsageError(f"{folder} exists and was not made by an import: choose another place by --out, or remove it")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise EnvironmentFailure(
            f"{folder} cannot be written ({error.strerror}): choose another place by --out"
        ) from None


def digest(text: str) -> str:
    """sha256 of what `write_folder` writes."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
