"""What the cockpit's process may load, and when."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "triton", "litellm", "sklearn", "libcst", "numpy", "duckdb", "pygments")
ENGINE = (
    "kbtui.search",
    "kbtui.generate",
    "kbtui.evaluate",
    "kbtui.engine.run_process",
    "kbtui.telemetry",
    "kbtui.cli",
)


@pytest.mark.parametrize(
    "statement",
    ["import kbtui.tui.app", "import kbtui.tui.screens.candidate, kbtui.tui.screens.new_run, kbtui.tui.screens.pick"],
)
def test_a_fresh_interpreter_loads_nothing_heavy(statement: str) -> None:
    code = f"{statement}\nimport sys\nprint([m for m in {HEAVY + ENGINE!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_textual_is_told_before_it_is_imported() -> None:
    code = (
        "import sys, kbtui.tui\nassert 'textual' not in sys.modules\n"
        "from textual import constants as c\nprint(c.MAX_FPS, c.TEXTUAL_ANIMATIONS, c.SMOOTH_SCROLL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["120", "none", "False"]
