"""docs/problems.md: its example works as printed, and its tables say what the code does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kbtui.problems
from kbtui.problems.folder import bundled, find_problem

Record = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


def code_blocks() -> list[str]:
    return [part.partition("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    kernel, problem = code_blocks()
    folder = tmp_path / "scale_rows"
    folder.mkdir()
    (folder / "kernel.py").write_text(kernel)
    (folder / "problem.py").write_text(problem)
    return folder


def test_the_example_is_a_problem(example: Path) -> None:
    found = find_problem(str(example))
    assert found.entry == "scale_rows"
    assert found.summary == "Each row of a matrix times a factor of its own."


def test_the_examples_kernel_is_right(
    example: Path, interpret: Callable[[list[Record]], list[Record]], accept: Callable[[Record], None]
) -> None:
    shapes = [(1, 8), (3, 248), (97, 256), (2, 264)]
    fields = [{"rows": rows, "cols": cols, "dtype": dtype} for rows, cols in shapes for dtype in ("float32", "float16")]
    records = interpret([{"folder": str(example), "fields": one, "strided": False} for one in fields])
    assert len(records) == len(fields)
    for record in records:
        accept(record)


def test_every_bundled_problem_is_in_the_table() -> None:
    listed = [line.split("`")[1].partition("(")[0] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert set(bundled()) <= set(listed)


def test_every_rule_is_explained() -> None:
    page = PAGE.read_text()
    rules = set(kbtui.problems.__all__) - {"Case", "Vary"}
    assert rules
    assert all(f"`{rule}" in page for rule in rules)
