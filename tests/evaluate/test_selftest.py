"""The oracle's self-test: what a sound oracle rejects, and how an unsound one is caught."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kbtui.evaluate import selftest, wire
from kbtui.evaluate.oracle import Oracle
from kbtui.evaluate.outputs import Passed
from kbtui.evaluate.selftest import SelfTest

pytest.importorskip("triton", reason="needs triton")

SOUND = """
import torch
from kbtui.problems import Case, any_int
entry = "scaled_softmax"
cases = [Case(rows=64, cols=32)]
vary = {"rows": any_int, "cols": any_int}
def reference(x, weight, bias):
    return torch.softmax(x, dim=-1) * weight + bias
def make_inputs(case, generator, device):
    x = torch.randn(case.rows, case.cols, generator=generator, device=device)
    return x, torch.rand(case.cols, generator=generator, device=device) + 0.5, 0.25
"""


def run(folder: Path, problem: str, floor: float, compared: int = 1) -> SelfTest:
    """The self-test of a problem whose baseline errs nowhere and has `compared` outputs and changed arguments."""
    folder.mkdir()
    (folder / "problem.py").write_text(problem)
    (folder / "kernel.py").write_text("")
    oracle = Oracle(sys.executable, folder / "scratch", folder, "cpu", 0)
    try:
        oracle.launch()
        oracle.open()
        keys = oracle.plan([32], ()).keys
        return selftest.run(oracle, {key: contract(key, floor, compared) for key in keys}, lambda stage, text: None)
    finally:
        oracle.close()


def contract(key: wire.CaseKey, floor: float, compared: int) -> Passed:
    rows, cols = int(key.fields["rows"]), int(key.fields["cols"])
    tensor = wire.TensorInfo(dtype="float32", shape=(rows, cols), strides=(cols, 1), span=rows * cols, offset=0)
    return Passed(
        errors=(0.0,) * compared,
        floors=(floor,) * compared,
        tensors=(tensor,),
        shared=(-1,),
        own=True,
        handed=frozenset(),
        own_dtype=False,
        seconds=0.0,
    )


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SelfTest:
    return run(tmp_path_factory.mktemp("sound") / "problem", SOUND, 1e-5)


@pytest.mark.parametrize(
    ("mutant", "words"),
    [
        ("zeros", "error"),
        ("a constant", "error"),
        ("a copy of an input", "error"),
        ("truncated output", "shape"),
        ("broadcastable shape", "shape"),
        ("wrong dtype", "float64"),
        ("one output too many", "2 tensors"),
        ("no output", "0 tensors"),
        ("tail not written", "NaN"),
        ("one boundary block wrong", "error"),
        ("the smallest row left out", "error"),
        ("shifted by one", "error"),
        ("NaN and Inf hidden", "NaN"),
        ("output of other values", "error"),
        ("stale accumulator", "error"),
        ("padding counted", "error"),
        ("weight left out", "error"),
        ("bias left out", "error"),
    ],
)
def test_a_sound_oracle_rejects(sound: SelfTest, mutant: str, words: str) -> None:
    assert words in sound.rejected[mutant], sound


def test_nothing_survives_a_sound_oracle(sound: SelfTest) -> None:
    assert sound.survivors == ()
    assert sound.total == len(sound.rejected) >= 18
    assert sound.sentence == f"your oracle rejects {sound.total} of {sound.total} mutants"


def test_an_oracle_that_accepts_zeros_is_caught(tmp_path: Path) -> None:
    found = run(tmp_path / "problem", SOUND, 10.0)
    survivors = [survivor.mutant for survivor in found.survivors]
    assert "zeros" in survivors
    assert "shifted by one" in survivors
    assert "truncated output" in found.rejected  # a tolerance has no say in shapes
    assert all(survivor.cases > 0 for survivor in found.survivors)
    assert found.sentence.startswith(f"your oracle rejects {len(found.rejected)} of {found.total} mutants; accepted: ")
    assert "zeros" in found.sentence


def test_inputs_on_which_zeros_are_right_are_no_test(tmp_path: Path) -> None:
    blind = SOUND.replace("torch.softmax(x, dim=-1) * weight + bias", "(x * 0.0).nan_to_num() * weight * bias")
    found = run(tmp_path / "problem", blind, 1e-5)
    assert "zeros" in found.inapplicable
    assert "weight left out" in found.inapplicable


def test_what_is_changed_in_place_is_mutated_too(tmp_path: Path) -> None:
    inplace = """
import torch
from kbtui.problems import Case, any_int
entry = "double"
cases = [Case(rows=64, cols=32)]
vary = {"rows": any_int, "cols": any_int}
mutates = ("x",)
def reference(x):
    return x.mul_(2.0)
def make_inputs(case, generator, device):
    return (torch.randn(case.rows, case.cols, generator=generator, device=device),)
"""
    found = run(tmp_path / "problem", inplace, 1e-5, compared=2)
    assert found.survivors == ()
    assert {"zeros", "stale accumulator", "tail not written"} <= set(found.rejected)
    assert "truncated output" in found.inapplicable
