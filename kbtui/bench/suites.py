"""Which problems a suite has: the bundled ones, an imported suite by name, or a folder of problem folders."""

from __future__ import annotations

from pathlib import Path

from kbtui import paths
from kbtui.errors import UsageError
from kbtui.problems.folder import bundled
from kbtui.problems.importing import PROBLEM
from kbtui.text import clean_line

BUNDLED = "bundled"


def find_suite(text: str) -> dict[str, Path]:
    """The suite's problems by name, sorted. Raises UsageError when there is no such suite, or nothing in it."""
    if text == BUNDLED:
        return {name: paths.library_dir() / name for name in bundled()}
    imported = paths.problems_dir() / text
    folder = imported if imported.is_dir() else Path(text).expanduser()
    if not folder.is_dir():
        known = sorted(one.name for one in paths.problems_dir().glob("*") if one.is_dir())
        names = ", ".join([BUNDLED, *known])
        raise UsageError(f"there is no suite {text!r}: use {names}, or a folder of problems; `kbtui import` makes them")
    found = {str(file.parent.relative_to(folder)): file.parent for file in folder.rglob(PROBLEM)}
    if not found:
        raise UsageError(f"{folder} holds no problem: `kbtui import` makes them of a suite's files")
    return dict(sorted(found.items()))


def chosen(problems: dict[str, Path], kernels: tuple[str, ...], shard: str) -> dict[str, Path]:
    """Those called so, in the order that is given, and of them every N-th from the I-th on for a `shard` "I/N".

    Raises UsageError for a name that none has and for a shard that is none.
    """
    if kernels:
        unknown = next((name for name in kernels if name not in problems), None)
        if unknown is not None:
            raise UsageError(f"--kernels {unknown}: the suite has no such problem, it has {len(problems)} others")
        problems = {name: problems[name] for name in kernels}
    index, count = read_shard(shard)
    return {name: path for at, (name, path) in enumerate(problems.items()) if at % count == index - 1}


def read_shard(text: str) -> tuple[int, int]:
    """(I, N) of "I/N", 1 <= I <= N; (1, 1) of "". Raises UsageError."""
    if not text:
        return 1, 1
    first, slash, second = text.partition("/")
    if not (slash and first.isdecimal() and second.isdecimal() and 1 <= int(first) <= int(second)):
        raise UsageError(f"--shard takes I/N, from 1/N to N/N, not {text!r}")
    return int(first), int(second)


def read_names(file: Path) -> tuple[str, ...]:
    """Names of kernels, one a line; empty lines and those that begin with # are none. Raises UsageError."""
    found = tuple(line.strip() for line in _lines(file) if line.strip() and not line.lstrip().startswith("#"))
    if not found:
        raise UsageError(f"{file} names no kernel: write one a line")
    return found


def read_families(file: Path) -> dict[str, str]:
    """Kernel -> family, of lines `kernel,family`. Raises UsageError naming file and line."""
    found = {}
    for number, line in enumerate(_lines(file), 1):
        kernel, comma, family = line.partition(",")
        if not line.strip():
            continue
        if not (comma and kernel.strip() and family.strip()):
            raise UsageError(f"{file}, line {number}: write kernel,family")
        found[kernel.strip()] = clean_line(family.strip(), 40)
    return found


def _lines(file: Path) -> list[str]:
    try:
        return file.expanduser().read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): give a text file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no UTF-8 text: save it as UTF-8") from None
