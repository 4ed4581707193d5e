"""What may import what: the arrows by import-linter, and what really gets loaded, asked of a fresh interpreter."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
INLANE = ROOT / "kbtui" / "evaluate" / "inlane"
EVALUATE = ROOT / "kbtui" / "evaluate"

HEAVY = {"torch", "triton", "litellm", "sklearn", "scipy", "libcst", "numpy", "duckdb"}
PROVIDED_IN_A_LANE = {"torch", "triton", "numpy"}
"""What a lane's interpreter has besides the standard library; numpy comes with triton's interpreter mode."""
OURS_IN_A_LANE = ("kbtui.problems", "kbtui.evaluate.inlane")


def loaded_by(statement: str) -> set[str]:
    """The top-level packages in memory after `statement` in a fresh interpreter."""
    code = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import statement in `file`, inside functions too; type-checking ones left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in node.body
        for inner in ast.walk(child)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            yield node.lineno, node.module or ""


def test_import_linter_holds_the_arrows() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import kbtui.tui.app", HEAVY),
        ("import kbtui.cli.main", HEAVY | {"textual", "rich", "asyncio", "pynvml"}),
        ("import kbtui.engine.client", HEAVY | {"textual"}),
        ("import kbtui.engine.run_process", {"torch", "triton", "litellm", "textual"}),
        ("import kbtui.state.run_state", HEAVY | {"textual", "asyncio", "socket"}),
        ("import kbtui.history.runs", HEAVY),
        ("import kbtui.problems", HEAVY | {"msgspec", "platformdirs"}),
        ("import kbtui", HEAVY | {"msgspec", "typing"}),
    ],
)
def test_what_a_fresh_interpreter_loads(statement: str, absent: set[str]) -> None:
    bare = loaded_by("")
    assert loaded_by(statement) & (absent - bare) == set()


def test_a_whole_run_process_needs_no_torch() -> None:
    """Not only at import: what the engine needs besides a lane is loaded late, and none of it brings torch."""
    statement = "; ".join(
        [
            "import kbtui.engine.run_process, kbtui.search.registry, kbtui.search.cluster, kbtui.search.mask",
            "import kbtui.generate.registry, kbtui.generate.rewrite, kbtui.history.database, kbtui.telemetry.sampler",
            "import kbtui.evaluate.lane, kbtui.evaluate.cpu, kbtui.evaluate.cuda",
        ]
    )
    assert loaded_by(statement) & {"torch", "triton", "litellm", "textual"} == set()


def test_inlane_imports_only_what_a_lane_has() -> None:
    wrong = []
    for file in sorted(INLANE.rglob("*.py")):
        for line, module in imports(file):
            top = module.partition(".")[0]
            ours = any(module == name or module.startswith(name + ".") for name in OURS_IN_A_LANE)
            if not ours and top not in PROVIDED_IN_A_LANE and top not in sys.stdlib_module_names:
                wrong.append(f"{file.relative_to(ROOT)}:{line}: {module}")
    assert not wrong, wrong


def test_nothing_a_candidate_sends_is_unpickled() -> None:
    """No pickle, torch.load or multiprocessing anywhere in evaluate/: unpickling runs the sender's code in the reader."""
    forbidden = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "multiprocessing"}
    wrong = []
    for file in sorted(EVALUATE.rglob("*.py")):
        wrong += [f"{file}:{line}: {m}" for line, m in imports(file) if m.partition(".")[0] in forbidden]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "torch.multiprocessing"):
                wrong.append(f"{file}:{node.lineno}: {ast.unparse(node)}")
    assert not wrong, wrong


def test_nothing_happens_at_import(tmp_path: Path) -> None:
    """Importing any module of ours writes no file, starts no thread and opens no socket."""
    modules = sorted(
        ".".join(file.relative_to(ROOT).with_suffix("").parts)
        for file in (ROOT / "kbtui").rglob("*.py")
        if "library" not in file.parts
        and "inlane" not in file.parts
        and file.name not in ("__init__.py", "__main__.py")
    )
    assert len(modules) > 50
    code = (
        "import importlib, os, threading\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "assert not [fd for fd in os.listdir('/proc/self/fd') if 'socket' in os.path.realpath('/proc/self/fd/' + fd)]\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
