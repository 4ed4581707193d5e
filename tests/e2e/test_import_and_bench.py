"""Import, then a benchmark of what was imported, by the real program on the `cpu` lane."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("triton", reason="needs triton")
pytestmark = pytest.mark.slow

DATA = Path(__file__).resolve().parents[1] / "data"


def kbtui(*arguments: str) -> Any:
    command = [sys.executable, "-m", "kbtui", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_three_imported_kernels_are_benchmarked_and_resumed(tmp_path: Path) -> None:
    found = kbtui("import", "tritonbench", str(DATA / "tritonbench"))
    assert found["imported"] == 3
    rows = {one["kernel"]: one for one in found["files"]}
    assert (rows["scaled_sum"]["timed"], rows["scaled_sum"]["checked"]) == (5, 2)
    assert rows["needs_state"]["problem"] is None
    assert "state of its own" in rows["needs_state"]["reason"]

    out = str(tmp_path / "results")
    bench = ["bench", "tritonbench", "--iterations", "1", "--device", "cpu", "--out", out]
    first = kbtui(*bench, "--kernels", "shifted")
    assert [one["kernel"] for one in first["rows"]] == ["shifted"]
    whole = kbtui(*bench, "--resume", "--jobs", "2")
    assert {one["kernel"]: one["status"] for one in whole["rows"]} == {
        "scaled_sum": "done",
        "shifted": "done",
        "squared_rows": "done",
    }
    assert whole["rows"][1]["run_id"] == first["rows"][0]["run_id"]  # what was over was left alone
    assert whole["figures"]["timing"] == "modelled"
    assert whole["figures"]["tasks"] == 3
    for one in whole["rows"]:
        assert one["ratio"] is None  # nothing was measured
        assert one["pulls"] == 1
    assert "none of them is a speedup" in (tmp_path / "results" / "table.md").read_text()
    kept = kbtui("history", "sql", "select count(*) as n, count(ratio) as measured from benchmarks")
    assert kept == [{"n": 3, "measured": 0}]
