"""Importers: what becomes a problem and what does not, told from the syntax alone. No torch is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from kbtui.errors import ProblemError, UsageError
from kbtui.problems.folder import find_problem, read_folder
from kbtui.problems.importers import kernelbench, tritonbench
from kbtui.problems.importers.comparisons import what_is_compared
from kbtui.problems.importers.folders import Imported, default_folder

DATA = Path(__file__).resolve().parents[1] / "data"
LINE = "#" * 146


def imported(out: Path, kernels: tuple[str, ...] = ()) -> dict[str, Imported]:
    return {one.name: one for one in tritonbench.import_suite(DATA / "tritonbench", out, kernels)}


class TestTritonBench:
    def test_every_file_is_a_problem_or_has_a_reason(self, tmp_path: Path) -> None:
        found = imported(tmp_path)
        assert {name for name, one in found.items() if one.folder is not None} == {
            "scaled_sum",
            "shifted",
            "squared_rows",
        }
        assert "Layer, a class that is no autograd function" in found["needs_state"].reason
        assert not (tmp_path / "needs_state").exists()

    def test_a_weak_test_and_a_missing_script_are_told(self, tmp_path: Path) -> None:
        found = imported(tmp_path)
        assert found["squared_rows"].notes == ("its own test compares only shapes: values are checked instead",)
        assert found["shifted"].notes == ("no timing script: its test inputs are timed",)
        assert found["scaled_sum"].notes == ()

    def test_what_draws_its_own_inputs_is_told(self, tmp_path: Path) -> None:
        suite = tmp_path / "TritonBench_G_v1"
        suite.mkdir()
        original = (DATA / "tritonbench/TritonBench_G_v1/scaled_sum.py").read_text()
        drawing = original.replace("def scaled_sum(", "def helper():\n    return torch.rand(3)\n\n\ndef scaled_sum(")
        (suite / "scaled_sum.py").write_text(drawing)
        [beside] = tritonbench.import_suite(tmp_path, tmp_path / "a")
        head, colon, rest = drawing.partition("def scaled_sum(")
        signature, end, body = rest.partition(":\n")
        (suite / "scaled_sum.py").write_text(f"{head}{colon}{signature}{end}    noise = torch.randn(3)\n{body}")
        [inside] = tritonbench.import_suite(tmp_path, tmp_path / "b")
        assert not any("draw" in note or "torch.rand" in note for note in beside.notes)
        assert any(note.startswith("it calls torch.randn itself") for note in inside.notes)

    def test_a_function_is_the_entry_as_it_is(self, tmp_path: Path) -> None:
        folder = read_folder(imported(tmp_path)["scaled_sum"].folder or tmp_path)
        original = (DATA / "tritonbench/TritonBench_G_v1/scaled_sum.py").read_text()
        assert folder.entry == "scaled_sum"
        assert folder.kernel_source == original.partition(LINE)[0].rstrip() + "\n"
        assert LINE not in (folder.path / "calls.py").read_text()

    @pytest.mark.parametrize(
        ("name", "ending"),
        [
            ("squared_rows", "def squared_rows(x, out=None):\n    return SquaredRows.apply(x, out)\n"),
            ("shifted", "def shifted(x, by):\n    return shift_(x, by=by)\n"),
        ],
    )
    def test_what_lanes_cannot_call_gets_a_wrapper(self, tmp_path: Path, name: str, ending: str) -> None:
        folder = read_folder(imported(tmp_path)[name].folder or tmp_path)
        assert folder.entry == name
        assert folder.kernel_source.endswith(ending)

    def test_importing_again_replaces_what_an_import_wrote_and_nothing_else(self, tmp_path: Path) -> None:
        assert imported(tmp_path, ("shifted",))["shifted"].folder is not None
        assert imported(tmp_path, ("shifted",))["shifted"].folder is not None
        mine = tmp_path / "scaled_sum"
        mine.mkdir()
        (mine / "problem.py").write_text("# mine\n")
        refused = imported(tmp_path, ("scaled_sum",))["scaled_sum"]
        assert "was not made by an import" in refused.reason
        assert (mine / "problem.py").read_text() == "# mine\n"

    def test_an_imported_problem_is_found_by_suite_and_name(self, private_home: Path) -> None:
        imported(default_folder("tritonbench"), ("shifted",))
        assert find_problem("tritonbench/shifted").entry == "shifted"
        with pytest.raises(ProblemError, match="tritonbench/none"):
            find_problem("tritonbench/none")

    def test_names_and_folders_that_are_not_there_are_named(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="has no nothing"):
            imported(tmp_path, ("nothing",))
        with pytest.raises(UsageError, match="is no folder"):
            tritonbench.import_suite(tmp_path / "gone", tmp_path)
        with pytest.raises(UsageError, match="holds no file of that suite"):
            tritonbench.import_suite(tmp_path, tmp_path)

    @pytest.mark.parametrize(
        ("kernel", "calls", "reason"),
        [
            ("import triton\n@triton.jit\ndef k(x): ...\n", "k[(1,)](0)\n", "launches the kernel k itself"),
            ("import triton\n@triton.jit\ndef k(x): ...\n", "print(1)\n", "calls nothing"),
            ("def f(x): ...\n", "f(1)\n", "no @triton.jit function"),
            ("def f(x:\n", "f(1)\n", "not valid Python"),
        ],
    )
    def test_what_does_not_fit_says_why(self, tmp_path: Path, kernel: str, calls: str, reason: str) -> None:
        (tmp_path / "suite").mkdir()
        (tmp_path / "suite/one.py").write_text(f"{kernel}\n{LINE}\n{calls}")
        (one,) = tritonbench.import_suite(tmp_path / "suite", tmp_path / "out")
        assert reason in one.reason

    def test_imports_that_only_the_test_code_makes_come_with_the_kernel(self, tmp_path: Path) -> None:
        kernel = "import triton\n@triton.jit\ndef k(x): ...\ndef f(x):\n    return torch.empty_like(x)\n"
        (tmp_path / "suite").mkdir()
        (tmp_path / "suite/one.py").write_text(f"{kernel}\n{LINE}\nimport torch\nimport math\nimport triton\nf(1)\n")
        (one,) = tritonbench.import_suite(tmp_path / "suite", tmp_path / "out")
        assert read_folder(one.folder or tmp_path).kernel_source == f"import torch\n{kernel}"

    @pytest.mark.parametrize(
        ("dot", "rounds"),
        [
            ("tl.dot(a, b)", True),
            ("tl.dot(a, b, allow_tf32=True)", True),
            ("tl.dot(a, b, allow_tf32=False)", False),
            ("tl.dot(a, b, input_precision='ieee')", False),
            ("tl.sum(a)", False),
        ],
    )
    def test_products_may_be_rounded_where_the_kernel_does(self, tmp_path: Path, dot: str, rounds: bool) -> None:
        kernel = (
            f"import triton\nimport triton.language as tl\n@triton.jit\ndef k(a, b):\n    {dot}\ndef f(a, b): ...\n"
        )
        (tmp_path / "suite").mkdir()
        (tmp_path / "suite/one.py").write_text(f"{kernel}\n{LINE}\nf(1, 2)\n")
        (one,) = tritonbench.import_suite(tmp_path / "suite", tmp_path / "out")
        assert one.folder is not None
        assert ('precision = "tf32"' in (one.folder / "problem.py").read_text()) is rounds


@pytest.mark.parametrize(
    ("test", "compared"),
    [
        ("def t():\n    y = f(x)\n    return {'a': y}", "values"),
        (
            "def t():\n    r = {}\n    y = f(x)\n    r['a'] = y.shape\n    r['b'] = list(y.size())\n    return r",
            "only shapes",
        ),
        ("def t():\n    r = {}\n    f(x)\n    r['a'] = 'passed'\n    return r", "only constants"),
        ("def t():\n    r = {}\n    r['a'] = 'passed'\n    r['b'] = f(x)\n    return r", "values"),
        ("def t():\n    f(x)\n", "nothing"),
        ("def t():\n    shape = f(x).shape\n    return {'a': {'b': shape}}", "only shapes"),
    ],
)
def test_what_a_test_compares(test: str, compared: str) -> None:
    assert what_is_compared(ast.parse(test)) == compared


class TestKernelBench:
    def test_modules_become_problems_without_a_kernel(self, tmp_path: Path) -> None:
        found = {one.name: one for one in kernelbench.import_suite(DATA / "kernelbench", tmp_path)}
        assert "Dropout" in found["level1/2_Thinned"].reason
        folder = read_folder(found["level1/1_Scaled_rows"].folder or tmp_path)
        assert folder.empty
        assert folder.entry == "scaled_rows"
        # the features belong to the module's weights; the batch may be any
        assert "sizes={'batch_size': 512}" in (folder.path / "problem.py").read_text()

    def test_a_level_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="holds no file"):
            kernelbench.import_suite(DATA / "kernelbench", tmp_path, (), (2,))


def test_nothing_of_a_suite_is_executed(tmp_path: Path) -> None:
    """In a fresh interpreter: a file that would leave a trace is read, and torch is not loaded."""
    trace = tmp_path / "trace"
    suite = tmp_path / "suite"
    suite.mkdir()
    kernel = f"import triton\nopen({str(trace)!r}, 'w')\n@triton.jit\ndef k(x): ...\ndef f(x): ...\n"
    (suite / "one.py").write_text(f"{kernel}\n{LINE}\nopen({str(trace)!r}, 'w')\nf(1)\n")
    code = (
        "import sys; from pathlib import Path; from kbtui.problems.importers.tritonbench import import_suite\n"
        f"print([one.reason for one in import_suite(Path({str(suite)!r}), Path({str(tmp_path / 'out')!r}))])\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['']", "False"]
    assert not trace.exists()
