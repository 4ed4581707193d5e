"""What a problem asks for, read without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbtui.problems.contract import read_contract
from kbtui.problems.folder import bundled, find_problem, read_folder

PROBLEM = '''"""Doubles.

More of it.
"""
from kbtui.problems.format import Case
entry = "double"
cases: list[Case] = %s
def reference(x, scale=2): return x * scale
def make_inputs(case, generator, device): return (1,)
'''


@pytest.mark.parametrize("name", bundled())
def test_every_bundled_problem_has_one(name: str) -> None:
    found = read_contract(find_problem(name))
    assert found.signature.startswith(f"{name}(")
    assert found.about
    assert found.cases


def folder(tmp_path: Path, cases: str) -> Path:
    (tmp_path / "problem.py").write_text(PROBLEM % cases)
    return tmp_path


def test_cases_are_shown_as_written(tmp_path: Path) -> None:
    found = read_contract(
        read_folder(folder(tmp_path, '[Case(n=1 << 20, dtype="float32"), Case(flag=True, weight=2.5)]'))
    )
    assert found.cases == ("n=1 << 20 dtype=float32", "flag=True weight=2.5")
    assert found.signature == "double(x, scale=2)"
    assert found.about == "Doubles.\n\nMore of it."


def test_computed_cases_are_left_to_the_run(tmp_path: Path) -> None:
    assert read_contract(read_folder(folder(tmp_path, "[Case(n=n) for n in (1, 2)]"))).cases == ()
