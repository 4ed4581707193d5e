"""Loading the modules of a problem folder, alone or as members of the package the folder lies in. Standard library only.

Used inside lanes, under the user's interpreter. A folder with an `__init__.py` belongs to a package: its modules are
loaded under their full dotted name, so that `from ..common import tile` works in them; the package's root is put on
`sys.path`. The modules of any other folder are loaded by their plain name with the folder itself on `sys.path`, as
Python does for a script.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

KERNEL = "kernel.py"
PROBLEM = "problem.py"


def import_name(folder: Path) -> tuple[Path, str]:
    """(what `sys.path` needs, dotted package of the folder); the package is "" for a folder outside any package."""
    folder = folder.resolve()
    parts: list[str] = []
    root = folder
    while (root / "__init__.py").is_file() and "." not in root.name and root.parent != root:
        parts.append(root.name)
        root = root.parent
    return root, ".".join(reversed(parts))


def load_module(folder: Path, stem: str) -> ModuleType:
    """Import `<folder>/<stem>.py` and return it.

    Whatever the module raises passes through unchanged; a file that is not there raises ModuleNotFoundError.
    """
    return load_source_file(folder, stem, folder / f"{stem}.py")


def load_source_file(folder: Path, stem: str, file: Path) -> ModuleType:
    """Execute `file` as if it were `<folder>/<stem>.py`: under that name and package, so that its imports resolve alike.

    A candidate's source lies elsewhere than the kernel it descends from; this loads it in the kernel's place. The module
    stays in `sys.modules` under that name, as Triton and `inspect` expect, and replaces one that was there.
    """
    root, package = import_name(folder)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    if package:
        importlib.import_module(package)
    name = f"{package}.{stem}" if package else stem
    if not file.is_file():
        raise ModuleNotFoundError(f"{file} does not exist", name=name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python source file", name=name)
    module = importlib.util.module_from_spec(spec)
    previous = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        raise
    return module


def problem_digest(folder: Path) -> str:
    """sha256 (hex) over kernel.py and problem.py, each preceded by its length so that no text can move between them.

    A kernel.py that is not there counts as an empty one, which no problem can have.
    """
    whole = hashlib.sha256()
    for name in (KERNEL, PROBLEM):
        file = folder / name
        data = file.read_bytes() if name == PROBLEM or file.exists() else b""
        whole.update(len(data).to_bytes(8, "big"))
        whole.update(data)
    return whole.hexdigest()
