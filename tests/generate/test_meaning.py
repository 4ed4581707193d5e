"""What moves may not do: change what a kernel computes. Every option on some kernels, under Triton's interpreter."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbtui.generate.moves.dispatch import Interval, Rule, dispatched
from kbtui.generate.moves.looped_row import LoopedRow
from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.state.records import STRATEGIES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None,
        reason="needs torch and triton",
    ),
]
STYLES = {
    "vector_add": "vector_add",
    "softmax": "softmax",
    "rms_norm": "rms_norm",
    "layer_norm": "layer_norm",
    "row_softmax": "softmax",
    "matmul": "matmul",
    "cross_entropy": "cross_entropy",
    "flat_tiles": "product",
    "looped_row": "norm",
    "square_tiles": "transpose",
    "moved_pointers": "scaled",
    "computed_block": "halves",
    "int8_matmul": "int8_matmul",
    "rope": "rope",
    "swiglu": "swiglu",
}
UNSEEN = {
    "eviction_policy",
    "cache_modifier",
    "fewer_warps",
    "more_warps",
    "launch_stages",
    "loop_stages",
    "loop_unroll",
}
"""The interpreter runs these as if nothing had changed: one option of each shows that it runs."""


def versions(module: KernelModule) -> dict[str, str]:
    """Title to source: every option that changes what is interpreted, and second moves on top of some."""
    generator = RewriteGenerator()
    found = {"baseline": module.source}
    for strategy in STRATEGIES:
        seen: set[str] = set()
        for option in generator.options(module, strategy):
            if option.move.name in UNSEEN and option.move.name in seen:
                continue
            seen.add(option.move.name)
            found[f"{strategy}: {option.title}"] = option.move.apply(module, option.site)
    for title, source in list(found.items()):
        if title.startswith(
            (
                "tiling: 2 tiles",
                "tiling: row in pieces of 1024",
                "reordering: programs in groups of 4",
                "reordering: swap",
            )
        ):
            second = KernelModule(source, module.entry)
            for strategy in ("tiling", "fusion", "pipeline", "reordering"):
                for option in generator.options(second, strategy)[:2]:
                    found[f"{title} + {option.title}"] = option.move.apply(second, option.site)
    return found


def dispatched_softmax(read) -> str:
    """Two versions of the softmax in one file: short rows in one tile, long ones in pieces."""
    module, move = read("softmax"), LoopedRow()
    pieces = move.apply(module, move.sites(module)[0])
    rule = Rule("x.shape[-1]", (Interval(64, 0), Interval(None, 1)))
    return dispatched([module.source, pieces], "softmax", rule)


@pytest.mark.timeout(600)
def test_every_option_computes_the_same(read, tmp_path: Path):
    jobs = []
    for style, entry in STYLES.items():
        for number, (title, source) in enumerate(versions(read(style)).items()):
            path = tmp_path / f"{style}_{number}.py"
            path.write_text(source)
            jobs.append({"entry": entry, "title": f"{style} {title}", "path": str(path)})
    path = tmp_path / "dispatched.py"
    path.write_text(dispatched_softmax(read))
    jobs.append({"entry": "softmax", "title": "softmax dispatched", "path": str(path)})
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "interpreted.py")],
        input="\n".join(json.dumps(job) for job in jobs),
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "TRITON_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["title"] for r in results] == [job["title"] for job in jobs], done.stderr
    assert len(jobs) > 60
    assert {r["title"]: r["error"] for r in results if r["error"]} == {}
