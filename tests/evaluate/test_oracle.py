"""Problems as their oracle sees them: errors with file, piece and remedy; plans; expected outputs; package imports."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from kbtui.errors import EnvironmentFailure, ProblemError
from kbtui.evaluate import wire
from kbtui.evaluate.oracle import Oracle as OracleProcess

torch = pytest.importorskip("torch", reason="needs torch")
from kbtui.evaluate.inlane.oracle import Oracle  # noqa: E402  needs torch
from kbtui.evaluate.inlane.problem_module import ProblemFault  # noqa: E402
from kbtui.evaluate.inlane.tensors import map_tensors, pack  # noqa: E402

PROBLEM = """
import torch
from kbtui.problems import Case, any_int, multiple_of
entry = "f"
cases = [Case(rows=64, cols=32, dtype="float32")]
vary = {"rows": any_int, "cols": multiple_of(16)}
def reference(x, eps):
    return x * 2 + eps
def make_inputs(case, generator, device):
    return torch.randn(case.rows, case.cols, generator=generator, device=device), 0.5
"""


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "problem.py").write_text(text)
    (folder / "kernel.py").write_text("def f(x, eps):\n    return x\n")
    return folder


def opened(folder: Path, text: str = PROBLEM) -> Oracle:
    oracle = Oracle(str(write(folder, text)), "cpu", 0)
    oracle.describe_problem()
    return oracle


def outputs(key: dict[str, Any], tensors: list[Any], allowed: list[float]) -> tuple[dict[str, Any], list[int]]:
    descriptions, memory, size = pack(tensors)
    body = {"key": key, "size": size, "names": [str(at) for at in range(len(tensors))], "tensors": descriptions}
    return {"compare": {**body, "changed": [], "allowed": allowed}}, [memory]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('entry = "f"', "", ["entry", "write entry ="]),
        ("def reference(x, eps):\n    return x * 2 + eps", "", ["reference", "define"]),
        ("def reference(x, eps):\n    return x * 2 + eps", "reference = 3", ["reference", "int"]),
        ('[Case(rows=64, cols=32, dtype="float32")]', "[]", ["cases", "Case("]),
        ('[Case(rows=64, cols=32, dtype="float32")]', "[{'rows': 1}]", ["cases", "dict"]),
        ('dtype="float32")]', 'dtype="float32")] * 2', ["twice"]),
        (": any_int", ": 3", ["vary['rows']", "int"]),
        ('"rows": any_int', '"rowz": any_int', ["rowz", "every case"]),
        (
            "return torch.randn",
            "raise RuntimeError('no luck')\n    return torch.randn",
            ["make_inputs", "no luck", "rows="],
        ),
        (", 0.5", ", object()", ["argument 1", "object"]),
        ("return torch.randn(case.rows, case.cols, generator=generator, device=device), 0.5", "return {}", ["dict"]),
        ("return x * 2 + eps", "return x @ x @ x", ["reference", "raises", "rows="]),
        ("return x * 2 + eps", "return 'text'", ["reference", "str"]),
        ("import torch\n", "import torch\nimport no_such_module\n", ["no_such_module", "importing"]),
        ("def reference", "precision = 'fast'\ndef reference", ["precision", "tf32"]),
        ("def reference", "mutates = ('z',)\ndef reference", ["mutates", "'z'", "x, eps"]),
        ("def reference", "dtypes = ('float17',)\ndef reference", ["float17"]),
        ("def reference", "tolerance = 'small'\ndef reference", ["tolerance"]),
        ("def reference", "def traffic(case):\n    return 1\ndef reference", ["traffic", "(bytes, operations)"]),
        ("def reference", "def traffic(case):\n    return -1, 0\ndef reference", ["traffic", "negative"]),
        ("import torch\n", "import sys\nsys.exit(2)\n", ["importing it raises SystemExit: 2", "take out"]),
        ("return x * 2 + eps", "raise SystemExit", ["reference raises SystemExit for rows=", "take out"]),
        (
            "return torch.randn",
            "exit(1)\n    return torch.randn",
            ["make_inputs raises SystemExit: 1 for rows=", "take out"],
        ),
        ("import torch\n", "raise KeyboardInterrupt\n", ["importing it raises KeyboardInterrupt", "mend the module"]),
        ("[Case(", "[Case(rows=0, cols=16), Case(", ["rows=0 cols=16, which has no elements", "belong into checks"]),
    ],
)
def test_problem_errors_name_file_piece_and_remedy(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in PROBLEM
    with pytest.raises(ProblemFault) as caught:
        opened(tmp_path / "p", PROBLEM.replace(old, new))
    sentence = str(caught.value)
    assert str(tmp_path / "p" / "problem.py") in sentence
    assert "\n" not in sentence
    for word in words:
        assert word in sentence


def test_boundaries_respect_vary_and_size(tmp_path: Path) -> None:
    oracle = opened(tmp_path / "p")
    body = {
        "constants": [64, 128],
        "most_elements": 20_000,
        "most": 18,
        "unchecked_dtypes": [],
        "too_much": [],
        "salt": 0,
    }
    plan = oracle.answer({"plan": body}, [])[0]
    fields = [key["fields"] for key in plan["keys"]]
    assert all(one["cols"] % 16 == 0 and one["rows"] * one["cols"] <= 20_000 for one in fields)
    assert {65, 129} <= {one["rows"] for one in fields}
    assert {1, 63, 64} <= {one["rows"] for one in fields}
    assert {"wide", "special", "ties", "tiny", "strided"} == {key["variant"] for key in plan["keys"]} - {""}
    assert len({str(key) for key in plan["keys"]}) == len(plan["keys"]) <= 18
    assert oracle.answer({"plan": body}, [])[0] == plan
    bounded = oracle.answer({"plan": {**body, "too_much": [{"rows": 60, "cols": 16}]}}, [])[0]
    assert max(key["fields"]["rows"] for key in bounded["keys"]) < 60


def test_checks_are_planned_as_they_stand_behind_the_audited_cases(tmp_path: Path) -> None:
    text = PROBLEM.replace(
        "vary =", "checks = [Case(rows=0, cols=16, dtype='float32'), Case(rows=7, cols=48, dtype='float16')]\nvary ="
    )
    oracle = opened(tmp_path / "p", text)
    body = {"constants": [64], "most_elements": 20_000, "most": 18, "unchecked_dtypes": [], "too_much": [], "salt": 0}
    keys = oracle.answer({"plan": body}, [])[0]["keys"]
    assert [key["fields"] for key in keys[2:4]] == [
        {"rows": 0, "cols": 16, "dtype": "float32"},
        {"rows": 7, "cols": 48, "dtype": "float16"},
    ]
    assert all(key["fields"]["rows"] for key in keys[:2])
    unseen = oracle.answer({"plan": {**body, "salt": 5}}, [])[0]["keys"]
    assert {"rows": 0, "cols": 16, "dtype": "float32"} not in [key["fields"] for key in unseen]


def test_an_operand_without_elements_is_no_empty_case(tmp_path: Path) -> None:
    text = PROBLEM.replace("), 0.5", "), torch.zeros(case.get)").replace(
        'dtype="float32")]', 'dtype="float32", get=0)]'
    )
    text = text.replace("x * 2 + eps", "x * 2 + eps.sum()")
    described = opened(tmp_path / "p", text).describe_problem()
    assert described["problem"]["cases"][0]["shapes"] == [[64, 32], [0]]
    with pytest.raises(ProblemFault, match="has no elements"):
        opened(tmp_path / "q", text.replace("x * 2 + eps.sum()", "x[:0]"))


def test_dtypes_of_the_reference_are_told_of_a_baseline_alone(tmp_path: Path) -> None:
    text = PROBLEM.replace("device=device), 0.5", "device=device).to(getattr(torch, case.dtype)), 0.5")
    oracle = opened(tmp_path / "p", text)
    key = {"fields": {"rows": 3, "cols": 16, "dtype": "float16"}, "variant": "", "draw": 0}
    told = []
    for allowed in ([], [1e9]):
        request, memory = outputs(key, [torch.zeros(3, 16)], allowed)
        told.append(oracle.answer(request, memory)[0].get("reference_dtypes"))
    assert told == [["float16"], None]


def test_inputs_are_the_same_each_time_and_differ_by_case(tmp_path: Path) -> None:
    oracle = opened(tmp_path / "p")

    def made(**key: Any) -> Any:
        answer, (memory,) = oracle.answer(
            {"inputs": {"fields": {"rows": 5, "cols": 16, "dtype": "float32"}, **key}}, []
        )
        return map_tensors([answer["arguments"][0]["tensor"]], memory, answer["size"])[0]

    assert torch.equal(made(variant=""), made(variant=""))
    assert not torch.equal(made(variant=""), made(variant="wide"))
    assert bool(made(variant="special").isnan().any())
    strided = made(variant="strided")
    assert strided.stride() == (40, 1)


def test_comparison_against_float64(tmp_path: Path) -> None:
    oracle = opened(tmp_path / "p")
    key = {"fields": {"rows": 5, "cols": 16, "dtype": "float32"}, "variant": ""}
    right = oracle._arguments(key)[0] * 2 + 0.5
    good = oracle.answer(*outputs(key, [right], [1e-5]))[0]
    assert good["comparisons"][0]["reason"] == ""
    assert good["floors"] == [1e-5]
    assert not good["own_dtype"]
    wrong = right.clone()
    wrong[3, 7] += 1
    bad = oracle.answer(*outputs(key, [wrong], [1e-5]))[0]["comparisons"][0]
    assert (bad["reason"], bad["index"], bad["wrong"]) == ("error", [3, 7], 1)
    assert "shape" in oracle.answer(*outputs(key, [right[:1]], [1e-5]))[0]["refused"]
    assert "0 tensors" in oracle.answer(*outputs(key, [], [1e-5]))[0]["refused"]


def test_one_zeroed_row_among_wide_magnitudes_shows(tmp_path: Path) -> None:
    oracle = opened(tmp_path / "p", PROBLEM.replace("x * 2 + eps", "x * 2"))
    key = {"fields": {"rows": 64, "cols": 32, "dtype": "float32"}, "variant": "wide"}
    right = oracle._arguments(key)[0] * 2
    smallest = int(right.abs().amax(dim=1).argmin())
    right[smallest] = 0
    bad = oracle.answer(*outputs(key, [right], [1e-2]))[0]["comparisons"][0]
    assert bad["reason"] == "error"
    assert bad["index"][0] == smallest


def test_a_reference_without_float64_says_so(tmp_path: Path) -> None:
    text = PROBLEM.replace("return x * 2 + eps", "assert x.dtype == torch.float32\n    return x * 2 + eps")
    oracle = opened(tmp_path / "p", text)
    key = {"fields": {"rows": 5, "cols": 16, "dtype": "float32"}, "variant": ""}
    answer = oracle.answer(*outputs(key, [oracle._arguments(key)[0] * 2 + 0.5], [1e-5]))[0]
    assert answer["own_dtype"]
    assert answer["comparisons"][0]["reason"] == ""


@pytest.mark.parametrize(("cast", "said"), [(".float()", True), (".half()", True), ("", False)])
def test_a_reference_that_leaves_float64_says_so(tmp_path: Path, cast: str, said: bool) -> None:
    oracle = opened(tmp_path / "p", PROBLEM.replace("return x * 2 + eps", f"return (x{cast} * 2 + eps)"))
    key = {"fields": {"rows": 5, "cols": 16, "dtype": "float32"}, "variant": ""}
    answer = oracle.answer(*outputs(key, [oracle._arguments(key)[0] * 2 + 0.5], [1e-2]))[0]
    assert bool(answer["own_dtype"]) is said
    assert bool(oracle.answer({"contract": key}, [])[0]["own_dtype"]) is said


def test_a_mutated_input_is_an_expected_output(tmp_path: Path) -> None:
    text = PROBLEM.replace("return x * 2 + eps", "x.mul_(2)").replace(
        "def reference", "mutates = ('x',)\ndef reference"
    )
    oracle = opened(tmp_path / "p", text)
    key = {"fields": {"rows": 5, "cols": 16, "dtype": "float32"}, "variant": ""}
    x = oracle._arguments(key)[0]
    request, memory = outputs(key, [x * 2], [1e-5])
    body = request["compare"]
    body.update(tensors=[], names=[], changed=[{"input": 0, "tensor": body["tensors"][0]}])
    assert oracle.answer(request, memory)[0]["comparisons"][0]["reason"] == ""
    body.update(changed=[])
    assert "argument 0 was not changed" in oracle.answer(request, memory)[0]["refused"]


def test_shapes_of_large_cases_cost_no_memory(tmp_path: Path) -> None:
    oracle = opened(tmp_path / "p", PROBLEM.replace("rows=64, cols=32", "rows=1 << 20, cols=1 << 14"))
    fields = {"rows": 1 << 20, "cols": 1 << 14, "dtype": "float32"}
    described = oracle.answer({"describe": {"fields": fields, "variant": ""}}, [])[0]["arguments"]
    assert described[0]["empty"]["shape"] == [1 << 20, 1 << 14]
    assert described[1] == {"float": "0.5"}


def test_package_relative_imports(tmp_path: Path) -> None:
    package = tmp_path / "mykernels"
    folder = write(package / "double", PROBLEM.replace("import torch\n", "import torch\nfrom ..common import TWO\n", 1))
    (folder / "problem.py").write_text((folder / "problem.py").read_text().replace("x * 2", "x * TWO"))
    (package / "common.py").write_text("TWO = 2\n")
    for place in (package, folder):
        (place / "__init__.py").touch()
    process = OracleProcess(sys.executable, tmp_path / "scratch", folder, "cpu", 0)
    try:
        process.launch()
        described = process.open()
        assert described.entry == "f"
        assert [case.name for case in described.cases] == ["rows=64 cols=32 dtype=float32"]
        key = wire.CaseKey(fields=described.cases[0].fields)
        assert process.describe(key)["arguments"][0]["empty"]["shape"] == [64, 32]
        with pytest.raises(ProblemError, match="make_inputs"):
            process.describe(wire.CaseKey(fields={"rows": 3}))
    finally:
        process.close()
    assert process.pid is None


def test_a_problem_that_kills_its_process_is_a_problem_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", "import os\nos._exit(3)\n")
    process = OracleProcess(sys.executable, tmp_path / "scratch", folder, "cpu", 0)
    try:
        process.launch()
        with pytest.raises(ProblemError, match=r"problem.py: loading it ends the process with status 3: take out what"):
            process.open()
    finally:
        process.close()


def test_a_problem_that_ends_its_process_later_is_no_fault_of_the_machine(tmp_path: Path) -> None:
    leaving = "import os\n    case.rows != 5 or os._exit(0)\n    return torch.randn"
    folder = write(tmp_path / "p", PROBLEM.replace("return torch.randn", leaving))
    process = OracleProcess(sys.executable, tmp_path / "scratch", folder, "cpu", 0)
    try:
        process.launch()
        process.open()
        with pytest.raises(
            ProblemError, match="reference or make_inputs ends the process with status 0: take out what"
        ):
            process.inputs(wire.CaseKey(fields={"rows": 5, "cols": 16, "dtype": "float32"}))
    finally:
        process.close()


def test_no_such_interpreter(tmp_path: Path) -> None:
    process = OracleProcess("/no/such/python", tmp_path / "scratch", tmp_path, "cpu", 0)
    with pytest.raises(EnvironmentFailure, match=r"/no/such/python.*--python"):
        process.launch()


def test_an_interpreter_without_torch(tmp_path: Path) -> None:
    import subprocess

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    python = str(tmp_path / "bare" / "bin" / "python")
    process = OracleProcess(python, tmp_path / "scratch", tmp_path, "cpu", 0)
    try:
        process.launch()
        with pytest.raises(EnvironmentFailure, match=r"no torch.*pip install \"kbtui\[torch\]\".*--python"):
            process.open()
    finally:
        process.close()
