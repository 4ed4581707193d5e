"""What a wheel holds: everything that is read at run time, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = folder.glob("*.whl")
    return zipfile.ZipFile(file)


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "kbtui", "themes"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("not a git checkout: the list of files is not known")
    files = [name for name in tracked.stdout.splitlines() if (ROOT / name).is_file()]
    assert len(files) > 100
    wanted = {f"kbtui/{name}" if name.startswith("themes/") else name for name in files}
    missing = {name for name in wanted if not name.endswith(".gitkeep")} - set(wheel.namelist())
    assert not missing


@pytest.mark.parametrize(
    "name",
    [
        "kbtui/py.typed",
        "kbtui/themes/kbtui-dark.toml",
        "kbtui/tui/styles/app.tcss",
        "kbtui/problems/library/softmax/kernel.py",
        "kbtui/problems/library/softmax/problem.py",
        "kbtui/problems/templates/kernel.py.txt",
    ],
)
def test_what_is_read_at_run_time_is_there(name: str, wheel: zipfile.ZipFile) -> None:
    assert wheel.read(name) is not None


def test_nothing_else_is_there(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kbtui"}


def test_metadata(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    text = wheel.read(name).decode()
    assert "License-Expression: Apache-2.0" in text
    assert "Requires-Python: >=3.11" in text
    for requirement in ("torch>=2.6; extra == 'torch'", "triton>=3.2; extra == 'torch'"):
        assert f"Requires-Dist: {requirement}" in text
    assert "Requires-Dist: torch\n" not in text
    assert any(entry.endswith("licenses/LICENSE") for entry in wheel.namelist())
