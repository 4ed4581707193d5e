"""Kernels in the styles found in the field, and what a move changes in them."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

from kbtui.generate.moves.move import Move
from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.paths import library_dir

KERNELS = Path(__file__).parent / "kernels"
ENTRIES = {
    "lambda_grid": "scale",
    "literal_grid": "copy",
    "square_tiles": "transpose",
    "wrapper_values": "add_bias",
    "autotuned": "matmul",
    "flat_tiles": "product",
    "row_softmax": "softmax",
    "looped_row": "norm",
    "moved_pointers": "scaled",
    "computed_block": "halves",
    "tuned_by_loops": "double",
    "table_of_blocks": "triple",
}
BUNDLED = sorted(path.parent.name for path in library_dir().glob("*/kernel.py"))


def source_of(style: str) -> str:
    if style in ENTRIES:
        return (KERNELS / f"{style}.py").read_text()
    return (library_dir() / style / "kernel.py").read_text()


@pytest.fixture
def read() -> Callable[[str], KernelModule]:
    """A sample by its name, as the moves see it."""
    return lambda style: KernelModule(source_of(style), ENTRIES.get(style, style))


def changed_lines(old: str, new: str) -> list[str]:
    """The lines removed (-) and added (+), in order, without their indentation."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm="")
    return [line[0] + line[1:].strip() for line in list(lines)[2:] if not line.startswith("@@")]


@pytest.fixture
def changes(read: Callable[[str], KernelModule]) -> Callable[..., dict[str, list[str]]]:
    """`changes(move, style)`: title of each option of a move on a sample to the lines it changes. Every result parses."""

    def run(move: Move, style: str, source: str | None = None) -> dict[str, list[str]]:
        module = read(style) if source is None else KernelModule(source, style)
        found = {}
        for option in RewriteGenerator([move]).options(module, move.strategy):
            new = move.apply(module, option.site)
            ast.parse(new)
            found[option.title] = changed_lines(module.source, new)
        return found

    return run
