"""KernelBench: files with a torch module `Model`, `get_inputs` and `get_init_inputs`, in a folder for each level.

The module is the reference; there is no kernel to start from, so a run needs a model to write the first one.
"""

from __future__ import annotations

import ast
import keyword
import re
from pathlib import Path

from kbtui.errors import KbtuiError, ProblemError, UsageError
from kbtui.problems.checks import parse
from kbtui.problems.folder import read_folder
from kbtui.problems.importers.folders import GENERATED, Imported, chosen, digest, write_folder
from kbtui.problems.importing import PROBLEM

SUITE = "kernelbench"
MODEL = "model.py"
LEVELS = (1, 2)
_NEEDED = ("Model", "get_inputs", "get_init_inputs")
_RANDOM = ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "RReLU", "dropout", "bernoulli", "rrelu")


def import_suite(
    where: Path, out: Path, kernels: tuple[str, ...] = (), levels: tuple[int, ...] = LEVELS
) -> list[Imported]:
    """Import the files of some levels below `where`, or those called `kernels`. Raises UsageError when there is none."""
    if not where.is_dir():
        raise UsageError(f"{where} is no folder: give the folder of the suite, or one above it")
    files = [file for level in levels for file in _files(where, level)]
    return [_import(file, out / file.parent.name) for file in chosen(files, kernels, where)]


def _files(where: Path, level: int) -> list[Path]:
    name = f"level{level}"
    folders = [where] if where.name == name else [path for path in sorted(where.rglob(name)) if path.is_dir()]
    found = next((folder for folder in folders if any(folder.glob("*.py"))), None)
    return sorted(found.glob("*.py"), key=_number) if found is not None else []


def _number(file: Path) -> tuple[int, str]:
    number = re.match(r"\d+", file.name)
    return (int(number[0]) if number else 0, file.name)


def _import(file: Path, out: Path) -> Imported:
    name = f"{file.parent.name}/{file.stem}"
    try:
        _write(file, out / file.stem)
    except (KbtuiError, UnicodeDecodeError) as error:
        return Imported(name, reason=str(error).replace(f"{file}", file.name))
    return Imported(name, out / file.stem)


def _write(file: Path, folder: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree = parse(file, text)
    defined = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    missing = next((name for name in _NEEDED if name not in defined), None)
    if missing is not None:
        raise ProblemError(f"it defines no {missing}")
    random = next((name for name in _names(defined["Model"]) if name in _RANDOM), None)
    if random is not None:
        raise ProblemError(f"its Model uses {random}, which draws at random: there is no right output to compare with")
    sizes = _sizes(tree, defined)
    written = {MODEL: text, PROBLEM: _problem(file.stem, sizes, text)}
    write_folder(folder, written)
    read_folder(folder)


def _names(tree: ast.AST) -> set[str]:
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _sizes(tree: ast.Module, defined: dict[str, ast.FunctionDef | ast.ClassDef]) -> dict[str, int]:
    """Integers that `get_inputs` uses, by itself or by way of other constants, and the module does not: they may change."""
    assigned = {
        target.id: one.value
        for one in tree.body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    fixed = _reached(defined["get_init_inputs"], assigned) | _reached(defined["Model"], assigned)
    free = _reached(defined["get_inputs"], assigned) - fixed
    found = {}
    for name, value in assigned.items():
        if name in free and isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
            found[name] = value.value
    return found


def _reached(start: ast.AST, assigned: dict[str, ast.expr]) -> set[str]:
    found: set[str] = set()
    waiting = _names(start) & set(assigned)
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= (_names(assigned[name]) & set(assigned)) - found
    return found


def _problem(stem: str, sizes: dict[str, int], text: str) -> str:
    return f'''"""{stem} of KernelBench; its torch module is the reference, and there is no kernel to start from."""
{GENERATED}

from kbtui.problems.suites.torch_model import TorchModel

entry = "{_entry(stem)}"
suite = TorchModel(__file__, sizes={sizes!r}, sha256="{digest(text)}")
cases = suite.cases
vary = suite.vary
notes = suite.notes
make_inputs = suite.make_inputs
reference = suite.reference
'''


def _entry(stem: str) -> str:
    name = re.sub(r"\W+", "_", re.sub(r"^\d+_", "", stem)).strip("_").lower() or "forward"
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"op_{name}"
