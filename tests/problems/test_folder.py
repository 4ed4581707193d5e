"""Finding problems, and every way in which one is refused: one sentence with file, piece and remedy."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kbtui.errors import ProblemError
from kbtui.paths import library_dir
from kbtui.problems.folder import bundled, find_problem
from kbtui.problems.importing import problem_digest

KERNEL = """
import triton


@triton.jit
def add_kernel(x_ptr):
    pass


def add(x):
    add_kernel[(1,)](x)
    return x
"""
PROBLEM = '''
"""Adds nothing.

More text.
"""
from kbtui.problems import Case

entry = "add"
cases = [Case(n=1, dtype="float32")]


def reference(x):
    return x


def make_inputs(case, generator, device):
    return (1,)
'''


def folder(tmp_path: Path, kernel: str | bytes | None = KERNEL, problem: str | bytes | None = PROBLEM) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    for name, text in (("kernel.py", kernel), ("problem.py", problem)):
        if text is not None:
            (made / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return made


def refusal(path: Path | str) -> str:
    with pytest.raises(ProblemError) as caught:
        find_problem(str(path))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert caught.value.exit_status == 2
    return sentence


class TestFinding:
    @pytest.mark.parametrize("name", bundled())
    def test_a_bundled_problem_by_name(self, name: str) -> None:
        found = find_problem(name)
        assert found.path == library_dir() / name
        assert (found.name, found.entry) == (name, name)
        assert found.kernel_source == found.kernel_file.read_text()
        assert found.digest == problem_digest(found.path)

    @pytest.mark.parametrize("part", ["", "kernel.py", "problem.py"])
    def test_a_folder_or_one_of_its_files(self, tmp_path: Path, part: str) -> None:
        path = folder(tmp_path)
        found = find_problem(str(path / part))
        assert found.path == path.resolve()
        assert found.name == "mine"
        assert found.entry == "add"
        assert found.summary == "Adds nothing."
        assert found.kernel_source == KERNEL

    def test_a_relative_path_and_the_folder_one_stands_in(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = folder(tmp_path)
        monkeypatch.chdir(tmp_path)
        assert find_problem("mine").path == path.resolve()
        monkeypatch.chdir(path)
        assert find_problem(".").name == "mine"

    def test_a_bundled_name_wins_unless_a_path_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder(tmp_path).rename(tmp_path / "softmax")
        monkeypatch.chdir(tmp_path)
        assert find_problem("softmax").path == library_dir() / "softmax"
        assert find_problem("./softmax").path == (tmp_path / "softmax").resolve()

    def test_nothing_of_a_problem_is_executed(self, tmp_path: Path) -> None:
        trap = "\nraise SystemExit('executed')\n"
        assert find_problem(str(folder(tmp_path, KERNEL + trap, PROBLEM + trap))).entry == "add"

    def test_a_byte_order_mark_is_no_part_of_the_source(self, tmp_path: Path) -> None:
        path = folder(tmp_path, b"\xef\xbb\xbf" + KERNEL.encode())
        assert find_problem(str(path)).kernel_source == KERNEL

    def test_a_changed_file_changes_the_digest(self, tmp_path: Path) -> None:
        path = folder(tmp_path)
        before = find_problem(str(path)).digest
        assert before != hashlib.sha256(KERNEL.encode()).hexdigest()
        (path / "problem.py").write_text(PROBLEM + "\n")
        assert find_problem(str(path)).digest != before

    @pytest.mark.parametrize("near", ["sofmax", "Softmax", "soft-max"])
    def test_a_near_miss_is_answered_with_the_name(self, near: str) -> None:
        assert refusal(near).endswith("did you mean softmax?")

    def test_an_unknown_name_is_answered_with_all_names(self) -> None:
        sentence = refusal("no_such_thing_at_all")
        assert all(name in sentence for name in bundled())

    def test_another_file_is_not_a_problem(self, tmp_path: Path) -> None:
        (tmp_path / "other.py").write_text("")
        assert "give the folder that holds kernel.py and problem.py" in refusal(tmp_path / "other.py")

    @pytest.mark.parametrize("text", ["x" * 5000, "~nobody_of_that_name/x", "a\0b"])
    def test_a_path_the_system_refuses(self, text: str) -> None:
        assert refusal(text).startswith("There is no problem")


class TestRefusals:
    def test_a_missing_problem(self, tmp_path: Path) -> None:
        path = folder(tmp_path)
        (path / "problem.py").unlink()
        sentence = refusal(path)
        assert "problem.py is missing" in sentence
        assert "put its reference, cases and inputs" in sentence

    def test_a_folder_with_neither_file_lacks_both(self, tmp_path: Path) -> None:
        assert "kernel.py is missing: put the kernel" in refusal(tmp_path)

    def test_a_missing_kernel_is_yet_to_be_written(self, tmp_path: Path) -> None:
        path = folder(tmp_path)
        with_kernel = find_problem(str(path)).digest
        (path / "kernel.py").unlink()
        found = find_problem(str(path))
        assert (found.empty, found.kernel_source) == (True, "")
        assert found.digest != with_kernel

    def test_a_link_that_leads_nowhere_is_no_missing_kernel(self, tmp_path: Path) -> None:
        path = folder(tmp_path)
        (path / "kernel.py").unlink()
        (path / "kernel.py").symlink_to("gone.py")
        assert "kernel.py is missing: put the kernel" in refusal(path)

    def test_a_folder_in_place_of_a_file(self, tmp_path: Path) -> None:
        path = folder(tmp_path, problem=None)
        (path / "problem.py").mkdir()
        assert "problem.py cannot be read" in refusal(path)

    @pytest.mark.parametrize("which", ["kernel", "problem"])
    def test_a_file_that_is_not_utf8(self, tmp_path: Path, which: str) -> None:
        sentence = refusal(folder(tmp_path, **{which: b"# caf\xe9\n"}))
        assert f"{which}.py is not UTF-8 (byte 5)" in sentence

    @pytest.mark.parametrize("which", ["kernel", "problem"])
    def test_a_syntax_error(self, tmp_path: Path, which: str) -> None:
        sentence = refusal(folder(tmp_path, **{which: "a = 1\ndef f(:\n"}))
        assert f"{which}.py:2 is not valid Python" in sentence

    def test_null_bytes(self, tmp_path: Path) -> None:
        assert "problem.py" in refusal(folder(tmp_path, problem="a = 1\0"))

    def test_source_nested_too_deep(self, tmp_path: Path) -> None:
        assert "problem.py" in refusal(folder(tmp_path, problem="a = " + "(" * 5000 + ")" * 5000))

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (PROBLEM.replace('entry = "add"', ""), "has no entry"),
            (PROBLEM.replace('entry = "add"', 'entri = "add"'), "has no entry (but entri, line"),
            (PROBLEM.replace('entry = "add"', "entry = add"), "does not set entry to a string literal"),
            (PROBLEM.replace('entry = "add"', 'entry = f"add"'), "does not set entry to a string literal"),
            (PROBLEM.replace('entry = "add"', "def entry(): pass"), "does not set entry to a string literal"),
            (
                PROBLEM.replace('entry = "add"', 'entry = "add one"'),
                "sets entry to 'add one', which is not a Python name",
            ),
            (PROBLEM.replace('entry = "add"', 'entry = "class"'), "sets entry to 'class', which is not a Python name"),
            (PROBLEM.replace("def reference", "def helper"), "has no reference"),
            (PROBLEM.replace("def reference", "def referense"), "has no reference (but referense, line"),
            (PROBLEM.replace("cases = [", "shapes = ["), "has no cases"),
            (PROBLEM.replace('[Case(n=1, dtype="float32")]', "[]"), "leaves cases empty"),
            (PROBLEM.replace('cases = [Case(n=1, dtype="float32")]', "def cases(): pass"), "makes cases a function"),
            (PROBLEM.replace("def make_inputs", "def inputs"), "has no make_inputs"),
            (PROBLEM.replace("(case, generator, device)", "(case, generator)"), "with other parameters"),
            (PROBLEM.replace("(case, generator, device)", "(case, generator, device, more)"), "with other parameters"),
            (PROBLEM.replace("(case, generator, device)", "(case, *, generator, device)"), "with other parameters"),
            ("from . import shapes\n" + PROBLEM, "is not a package: add an __init__.py there"),
        ],
    )
    def test_problem_py_lacks_a_piece(self, tmp_path: Path, text: str, says: str) -> None:
        sentence = refusal(folder(tmp_path, problem=text))
        assert "problem.py" in sentence
        assert says in sentence
        assert ":" in sentence, "a remedy follows"

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (KERNEL.replace("def add(", "def adds("), "does not define add (but adds, line"),
            (KERNEL.replace("def add(", "class add("), "makes add a class"),
            (KERNEL.replace("def add(", "async def add("), "makes add a coroutine"),
            (KERNEL.replace("def add(x):\n    add_kernel[(1,)](x)\n    return x", "add = 3"), "makes add a constant"),
            (KERNEL.replace("def add_kernel", "def add").replace("def add(x):", "def other(x):"), "a Triton kernel"),
            (KERNEL.replace("@triton.jit", ""), "has no @triton.jit function"),
            (KERNEL.replace("@triton.jit", "@numba.jit"), "has no @triton.jit function"),
            (KERNEL.replace("@triton.jit", "# @triton.jit"), "has no @triton.jit function"),
            ("from ..up import x\n" + KERNEL, "is not a package"),
        ],
    )
    def test_kernel_py_lacks_a_piece(self, tmp_path: Path, text: str, says: str) -> None:
        sentence = refusal(folder(tmp_path, kernel=text))
        assert "kernel.py" in sentence
        assert says in sentence

    def test_a_relative_import_above_the_package(self, tmp_path: Path) -> None:
        path = folder(tmp_path, "from ..up import x\n" + KERNEL)
        (path / "__init__.py").write_text("")
        assert "above the package mine" in refusal(path)


class TestAccepted:
    """Forms that working kernels have, none of which may be refused."""

    @pytest.mark.parametrize(
        "text",
        [
            KERNEL.replace("import triton", "import triton as T").replace("@triton.jit", "@T.jit"),
            KERNEL.replace("import triton", "from triton import jit as compiled").replace("@triton.jit", "@compiled"),
            KERNEL.replace("@triton.jit", "@triton.jit(do_not_specialize=['n'])"),
            KERNEL.replace("@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit"),
            KERNEL.replace("@triton.jit", "") + "\nadd_kernel = triton.jit(add_kernel)\n",
            KERNEL.replace("import triton", "from triton.experimental import gluon").replace("triton.jit", "gluon.jit"),
            KERNEL.replace("def add(x):", "def run(x):") + "\nadd = run\n",
            KERNEL.replace("def add(x):", "def run(x):") + "\nif True:\n    add = run\nelse:\n    add = None\n",
            KERNEL.replace("def add(x):", "def run(x):") + "\nfrom elsewhere import launch as add\n",
            KERNEL.replace("def add(x):", "def run(x):") + "\nfrom elsewhere import *\n",
            KERNEL + "\nPATTERN = '\\d'\n",
        ],
    )
    def test_kernel(self, tmp_path: Path, text: str, recwarn: pytest.WarningsRecorder) -> None:
        assert find_problem(str(folder(tmp_path, text))).kernel_source == text
        assert not recwarn.list

    @pytest.mark.parametrize(
        "text",
        [
            PROBLEM.replace("entry = ", "entry: str = "),
            PROBLEM.replace("def reference(x):\n    return x", "from math import sqrt as reference"),
            PROBLEM.replace("def reference(x):\n    return x", "reference = lambda x: x"),
            PROBLEM.replace("(case, generator, device)", "(case, generator, device, scale=1.0)"),
            PROBLEM.replace("(case, generator, device)", "(*arguments)"),
            PROBLEM.replace('[Case(n=1, dtype="float32")]', "[Case(n=n) for n in (1, 2)]"),
            PROBLEM.replace('"""Adds nothing.\n\nMore text.\n"""', ""),
        ],
    )
    def test_problem(self, tmp_path: Path, text: str) -> None:
        assert find_problem(str(folder(tmp_path, problem=text))).entry == "add"

    def test_a_kernel_in_a_module_beside(self, tmp_path: Path) -> None:
        path = folder(tmp_path, "from launch import add\n")
        (path / "launch.py").write_text("import deep\nfrom deep import add_kernel\n\n\ndef add(x): ...\n")
        (path / "deep.py").write_text("import launch\n" + KERNEL)
        assert find_problem(str(path)).entry == "add"

    def test_a_kernel_elsewhere_in_the_package(self, tmp_path: Path) -> None:
        path = folder(tmp_path, "from .. import ops\nfrom ..ops.fast import add\n")
        for init in (path, tmp_path):
            (init / "__init__.py").write_text("")
        (tmp_path / "ops").mkdir()
        (tmp_path / "ops" / "__init__.py").write_text("")
        (tmp_path / "ops" / "fast.py").write_text(KERNEL)
        assert find_problem(str(path)).entry == "add"

    def test_an_imported_module_that_does_not_parse_is_not_this_checks_concern(self, tmp_path: Path) -> None:
        path = folder(tmp_path, "import torn\n" + KERNEL.replace("@triton.jit", ""))
        (path / "torn.py").write_text("def (")
        assert "kernel.py has no @triton.jit" in refusal(path)
