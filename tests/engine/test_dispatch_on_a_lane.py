"""A dispatching version on the cpu lane: two versions of a real kernel in one file, compiled, checked and modelled."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from kbtui import paths
from kbtui.engine.launch import run_here
from kbtui.engine.spec import RunSpec
from kbtui.history.journal import read_journal
from kbtui.state.run_state import Candidate, RunState

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason="needs the extra kbtui[torch]"),
]
PROBLEM = """\
\"\"\"Twice every element.\"\"\"
from kbtui.problems import Case, any_int
entry = "twice"
cases = [Case(n=4096, dtype="float32", weight=4), Case(n=16777216, dtype="float32")]
vary = {"n": any_int}
def reference(x):
    return 2 * x
def make_inputs(case, generator, device):
    import torch
    return (torch.randn(case.n, generator=generator, device=device),)
"""
KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def twice_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x * 2, mask=at < n)


def twice(x):
    out = torch.empty_like(x)
    n = x.numel()
    twice_kernel[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    return out
"""
WIDE = KERNEL.replace("64", "4096")


def test_a_run_on_the_cpu_lane_merges_what_wins_on_small_and_on_large_inputs(tmp_path: Path) -> None:
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "kernel.py").write_text(KERNEL)
    replies = tmp_path / "replies.jsonl"
    replies.write_bytes(msgspec.json.encode({"source": WIDE, "move": "wide", "strategy": "tiling"}) + b"\n")
    spec = RunSpec(
        problem=str(folder), run_id="merge", generator="replay", device="cpu", iterations=1,
        generator_parameters={"recording": str(replies)},
    )  # fmt: skip
    run_here(spec, lambda _: None)
    state = RunState().apply_all(read_journal(paths.journal_file("merge")))
    assert state.started is not None
    assert [case.shapes for case in state.started.problem.cases] == [((4096,),), ((16777216,),)]
    if state.best_id == 0:
        pytest.skip("the interpreter could not take the shapes that the hidden stage drew for the wide version")
    narrow, wide, merged = (state.candidates[number] for number in range(3))
    assert merged.parents == (1, 0), "the run's best until then comes first"
    assert merged.move == "x.shape[-1] up to 262144: #0, above: #1"
    assert merged.verification is not None
    assert merged.verification.verdict == "correct"
    assert merged.confirmation is not None
    assert merged.confirmation.verdict in ("correct", "unknown"), "unknown: shapes too large for the interpreter"
    assert state.best_id == (2 if merged.confirmation.verdict == "correct" else 1)
    assert merged.ratio is None
    small, large = (times(one)[at] for one, at in ((narrow, 0), (wide, 1)))
    assert times(merged) == pytest.approx([small, large])
    assert small < times(wide)[0] < large < times(narrow)[1]


def times(candidate: Candidate) -> list[float]:
    assert candidate.timing is not None
    assert candidate.timing.kind == "modelled"
    return [case.estimate_ms or 0.0 for case in candidate.timing.cases]
