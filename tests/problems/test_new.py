"""`kbtui new`: the template is a problem that works, and nothing is overwritten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbtui.errors import ProblemError
from kbtui.problems.folder import find_problem
from kbtui.problems.new import new_problem

Record = dict[str, Any]


def test_the_template_is_a_problem(tmp_path: Path) -> None:
    path = new_problem("my_kernel", tmp_path)
    assert path == tmp_path / "my_kernel"
    found = find_problem(str(path))
    assert found.name == found.entry == "my_kernel"
    assert found.summary == "relu(x + y), element by element."
    assert "ENTRY_NAME" not in found.kernel_source + found.problem_file.read_text()


def test_the_templates_kernel_is_right(
    tmp_path: Path, interpret: Callable[[list[Record]], list[Record]], accept: Callable[[Record], None]
) -> None:
    path = str(new_problem("fresh", tmp_path))
    fields = [{"n": n, "dtype": dtype} for n in (1, 1023, 1025) for dtype in ("float32", "float16")]
    records = interpret([{"folder": path, "fields": one, "strided": False} for one in fields])
    assert len(records) == 6
    for record in records:
        accept(record)


def test_missing_parents_are_made(tmp_path: Path) -> None:
    assert new_problem("inner", tmp_path / "a" / "b").parent == tmp_path / "a" / "b"


@pytest.mark.parametrize("name", ["two words", "3rd", "class", "", "../up", "a-b"])
def test_a_name_that_no_function_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProblemError, match="cannot name a Python function"):
        new_problem(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_bundled_name(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="softmax is the name of a bundled problem: choose another"):
        new_problem("softmax", tmp_path)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = new_problem("mine", tmp_path)
    (path / "kernel.py").write_text("precious")
    with pytest.raises(ProblemError, match="exists already: choose another name, or remove it first"):
        new_problem("mine", tmp_path)
    assert (path / "kernel.py").read_text() == "precious"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProblemError, match="cannot be created"):
        new_problem("mine", tmp_path / "file")
