"""Habits that keep a candidate out: no pickle in a lane, a scrubbed environment, and only the parts of kbtui that belong."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kbtui.evaluate
from kbtui.evaluate.inlane import bootstrap, sandbox
from kbtui.evaluate.isolation import lane_environment, readable_around

EVALUATE = Path(kbtui.evaluate.__file__).parent
FORBIDDEN = {"pickle", "cPickle", "dill", "cloudpickle", "multiprocessing", "marshal", "shelve"}


def sources() -> list[Path]:
    return sorted(EVALUATE.rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(EVALUATE)))
def test_nothing_that_unpickles(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [f"{ast.unparse(node.value)}.{node.attr}"]
        for name in names:
            parts = name.split(".")
            assert not FORBIDDEN & set(parts), f"{path}:{node.lineno} uses {name}"  # type: ignore[attr-defined]
            assert name not in ("torch.load", "torch.save", "torch.multiprocessing"), f"{path} uses {name}"


@pytest.mark.parametrize("path", sorted((EVALUATE / "inlane").glob("*.py")), ids=lambda path: path.name)
def test_lane_code_needs_nothing_but_torch_and_triton(path: Path) -> None:
    allowed = {"torch", "triton", "numpy", "kbtui", *sys.stdlib_module_names}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert {alias.name.partition(".")[0] for alias in node.names} <= allowed
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").partition(".")[0] in allowed
            if (node.module or "").startswith("kbtui."):
                assert node.module is not None
                assert node.module.startswith(bootstrap.ALLOWED)


def test_the_environment_of_a_lane_is_an_allow_list(tmp_path: Path) -> None:
    given = {
        "PATH": "/bin",
        "OPENAI_API_KEY": "sk-1",
        "AWS_PROFILE": "x",
        "PYTHONPATH": "/x",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    made = lane_environment("interpret", tmp_path, given)
    assert made["PATH"] == "/bin"
    assert made["CUDA_VISIBLE_DEVICES"] == "0"
    assert not {"OPENAI_API_KEY", "AWS_PROFILE", "PYTHONPATH"} & set(made)
    assert made["OMP_NUM_THREADS"] == "1"
    assert lane_environment("oracle", tmp_path, given)["OMP_NUM_THREADS"] == "2"


def test_readable_around_leaves_the_oracle_out(tmp_path: Path) -> None:
    folder = tmp_path / "pkg" / "softmax"
    folder.mkdir(parents=True)
    for name in ("pkg/__init__.py", "pkg/common.py", "pkg/softmax/__init__.py", "pkg/softmax/kernel.py"):
        (tmp_path / name).touch()
    (folder / "problem.py").touch()
    (folder / "__pycache__").mkdir()
    found = {os.path.relpath(path, tmp_path) for path in readable_around(folder)}
    assert found == {"pkg/__init__.py", "pkg/common.py", "pkg/softmax/__init__.py", "pkg/softmax/kernel.py"}


def test_paths_without_goes_around_what_is_hidden(tmp_path: Path) -> None:
    (tmp_path / "a" / "hidden").mkdir(parents=True)
    (tmp_path / "a" / "beside").mkdir()
    (tmp_path / "b").mkdir()
    found = set(sandbox.paths_without(tmp_path, tmp_path / "a" / "hidden"))
    assert found == {str(tmp_path / "a" / "beside"), str(tmp_path / "b")}
    assert list(sandbox.paths_without(tmp_path / "b", tmp_path / "a")) == [str(tmp_path / "b")]


def test_a_lane_finds_its_parts_of_kbtui_and_no_others(tmp_path: Path) -> None:
    code = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("bootstrap", {bootstrap.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
sys.meta_path.insert(0, module.LaneFinder())
from kbtui.problems import Case
import kbtui.evaluate.inlane.frames
for name in ("kbtui.state.records", "kbtui.evaluate.verify", "kbtui.paths"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert "lane" in str(error)
    else:
        raise SystemExit(name)
assert not [path for path in sys.path if "kbtui" in path]
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_measure_that_fails_says_why() -> None:
    def refused() -> None:
        raise OSError(1, "Operation not permitted")

    assert sandbox.attempt(refused) == "off: Operation not permitted"
    assert sandbox.attempt(lambda: None) == "on"


def test_a_hardened_process_hides_its_environment(tmp_path: Path) -> None:
    code = "from kbtui.evaluate.isolation import harden_run_process as h; print(h(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        # the kernel gives the files of a process that is not dumpable to root
        owner = Path(f"/proc/{process.pid}/environ").stat().st_uid
        process.stdin.write("\n")
        process.stdin.close()
    assert owner == 0
