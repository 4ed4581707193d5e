"""Source is parsed in several threads at a time, with the garbage collector letting them in wherever it can."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbtui import paths, syntax


class Garbage:
    """A cycle whose end runs Python code, which is where another thread gets its turn."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        sum(range(50))


@pytest.fixture
def often() -> Iterator[None]:
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(50, 2, 2)
    sys.setswitchinterval(1e-6)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(interval)


def test_threads_can_parse_beside_one_another(often: None) -> None:
    source = (paths.library_dir() / "attention" / "kernel.py").read_text()
    errors: list[BaseException] = []
    end = time.monotonic() + 1.5

    def work() -> None:
        while time.monotonic() < end and not errors:
            for _ in range(20):
                Garbage()
            try:
                syntax.parse(source)
            except SystemError as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_nothing_of_the_run_process_parses_by_itself() -> None:
    package = Path(syntax.__file__).parent
    apart = {
        package / "syntax.py",
        *(package / "evaluate" / "inlane").rglob("*.py"),
        package / "problems" / "suites" / "torch_model.py",  # in the oracle, which has one thread
        *paths.library_dir().rglob("*.py"),
    }
    for file in package.rglob("*.py"):
        if file not in apart:
            assert "ast.parse(" not in file.read_text(), f"{file}: use kbtui.syntax"


def test_the_dump_is_that_of_ast_and_all_statements_are_found() -> None:
    files = [*sorted(Path(syntax.__file__).parent.rglob("*.py"))[::4], *paths.library_dir().glob("*/kernel.py")]
    for file in files:
        tree = syntax.parse(file.read_text())
        assert syntax.dump(tree) == ast.dump(tree, annotate_fields=False), file
        found = {id(node) for node in syntax.statements(tree)}
        assert found == {id(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)}, file
    tree = syntax.parse("match x:\n    case 1:\n        import a\n    case _:\n        def f(y=lambda: 1): return y\n")
    assert [type(node).__name__ for node in syntax.statements(tree)] == ["Match", "Import", "FunctionDef", "Return"]
