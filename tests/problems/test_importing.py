"""Loading problem modules: alone, as members of a package, and a candidate in the kernel's place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbtui.problems.importing import import_name, load_module, load_source_file, problem_digest


@pytest.fixture(autouse=True)
def imports_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Before, too: other tests of this process may have loaded a problem."""
    for name in ("kernel", "problem"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    path, modules = list(sys.path), dict(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - set(modules):
        del sys.modules[name]


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text)
    return folder


def package(tmp_path: Path) -> Path:
    """root/outer_kb/inner/fast, each but the root a package."""
    root = tmp_path / "root"
    write(root / "outer_kb", __init__="", common="TILE = 64\n")
    write(root / "outer_kb" / "inner", __init__="", near="EIGHT = 8\n")
    return write(
        root / "outer_kb" / "inner" / "fast",
        __init__="",
        kernel="from ...common import TILE\nfrom ..near import EIGHT\nfrom outer_kb import common\nSIZE = TILE * EIGHT\n",
        problem="from .kernel import SIZE\n",
    )


def test_a_plain_folder_is_its_own_root(tmp_path: Path) -> None:
    assert import_name(tmp_path) == (tmp_path.resolve(), "")


def test_a_folder_in_a_package_has_its_full_name(tmp_path: Path) -> None:
    folder = package(tmp_path)
    assert import_name(folder) == ((tmp_path / "root").resolve(), "outer_kb.inner.fast")


def test_a_folder_without_init_belongs_to_no_package(tmp_path: Path) -> None:
    write(tmp_path / "outer_kb", __init__="")
    folder = write(tmp_path / "outer_kb" / "loose", kernel="")
    assert import_name(folder) == (folder.resolve(), "")


def test_modules_of_a_plain_folder_import_each_other(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain", helper_kb="TILE = 32\n", kernel="from helper_kb import TILE\n")
    module = load_module(folder, "kernel")
    assert module.TILE == 32
    assert module.__name__ == "kernel"
    assert sys.modules["kernel"] is module


def test_relative_imports_reach_the_whole_package(tmp_path: Path) -> None:
    folder = package(tmp_path)
    module = load_module(folder, "kernel")
    assert module.SIZE == 512
    assert module.__name__ == "outer_kb.inner.fast.kernel"
    assert load_module(folder, "problem").SIZE == 512


def test_a_candidate_takes_the_kernels_place(tmp_path: Path) -> None:
    folder = package(tmp_path)
    elsewhere = write(tmp_path / "elsewhere", candidate="from ...common import TILE\nSIZE = TILE * 2\n")
    module = load_source_file(folder, "kernel", elsewhere / "candidate.py")
    assert module.SIZE == 128
    assert module.__name__ == "outer_kb.inner.fast.kernel"
    assert module.__file__ == str(elsewhere / "candidate.py")


def test_what_a_module_raises_passes_through_and_leaves_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "broken_kb", kernel="raise LookupError('mine')\n")
    with pytest.raises(LookupError, match="mine"):
        load_module(folder, "kernel")
    assert "kernel" not in sys.modules


def test_a_failed_load_restores_the_module_that_was_there(tmp_path: Path) -> None:
    good = load_module(write(tmp_path / "good", kernel="A = 1\n"), "kernel")
    with pytest.raises(ZeroDivisionError):
        load_module(write(tmp_path / "bad", kernel="1 / 0\n"), "kernel")
    assert sys.modules["kernel"] is good


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match=r"kernel\.py does not exist"):
        load_module(tmp_path, "kernel")


def test_the_digest_covers_both_files_and_their_border(tmp_path: Path) -> None:
    one = problem_digest(write(tmp_path / "a", kernel="ab", problem="c"))
    assert len(one) == 64
    assert one == problem_digest(write(tmp_path / "b", kernel="ab", problem="c", other="x"))
    others = [("a", "bc"), ("ab", "d"), ("abc", "")]
    digests = {problem_digest(write(tmp_path / f"c{i}", kernel=k, problem=p)) for i, (k, p) in enumerate(others)}
    assert len(digests | {one}) == 4
