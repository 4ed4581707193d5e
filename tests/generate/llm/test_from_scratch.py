"""A problem without a kernel on the cpu lane: a model writes the first one, and the first correct one is the baseline."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from chat_server import Answer, ChatServer, Received

from kbtui import paths
from kbtui.engine.launch import run_here
from kbtui.engine.spec import RunSpec
from kbtui.history.journal import read_journal
from kbtui.state.run_state import RunState

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("litellm") is None or find_spec("torch") is None,
        reason="needs the extras kbtui[llm] and kbtui[torch]",
    ),
    pytest.mark.filterwarnings("ignore::UserWarning:pydantic", "ignore::DeprecationWarning:litellm"),
]
PROBLEM = """\
\"\"\"Twice every element.\"\"\"
from kbtui.problems import Case, any_int
entry = "twice"
cases = [Case(n=65536, dtype="float16")]
vary = {"n": any_int}
def reference(x):
    return 2 * x
def make_inputs(case, generator, device):
    import torch
    return (torch.randn(case.n, generator=generator, device=device, dtype=torch.float16),)
def traffic(case):
    return 4 * case.n, case.n
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
    twice_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out
"""


def block(source: str, title: str) -> Answer:
    return Answer(f"Title: {title}\n```python\n{source}```\n")


def run(folder: Path, run_id: str, server: ChatServer, **changes: object) -> RunState:
    fields: dict[str, object] = {
        "problem": str(folder),
        "run_id": run_id,
        "generator": "llm",
        "model": "openai/local",
        "generator_parameters": {"api_base": server.base, "repairs": 1},
        "device": "cpu",
        "policy_parameters": {"tune": 0},
        **changes,
    }
    run_here(RunSpec(**fields), lambda _: None)  # type: ignore[arg-type]
    return RunState().apply_all(read_journal(paths.journal_file(run_id)))


def test_from_a_reference_to_a_best_kernel_on_the_cpu_lane(tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "problem.py").write_text(PROBLEM)
    script: list[Callable[[], Answer]] = [
        lambda: block("import torch\n\n\ndef twice(x):\n    return torch.mul(x, 2)\n", "torch"),
        lambda: block(KERNEL.replace("empty_like(x)", "empty_like(x, dtype=torch.float32)"), "wide"),
        lambda: block(KERNEL, "plain"),
        lambda: block(KERNEL.replace("256", "1024"), "larger blocks"),
    ]

    def answer(received: Received) -> Answer:
        return script[received.number - 1]()

    with ChatServer(answer) as server:
        first = run(tmp_path / "bare", "scratch", server, iterations=1)
        assert (first.baseline, first.best) == (None, None)
        state = run(tmp_path / "bare", "scratch", server, problem="", iterations=3, continue_run=True)
        asked = [received.prompt for received in server.received]
    found = [(one.move, one.status) for one in state.candidates.values()]
    assert found[:3] == [("empty start", "empty"), ("torch", "cheat"), ("wide", "wrong")]
    verification = state.candidates[2].verification
    assert verification is not None
    assert "output 0 is float32 where float16 is expected" in verification.reason
    assert [one.correct for one in state.candidates.values()] == [False, False, False, True, True]
    assert state.baseline_id == 3
    assert state.candidates[3].repairs == 2
    assert state.candidates[3].estimate == 1.0
    assert state.candidates[4].parent_id == 3
    assert state.candidates[4].timing is not None
    assert state.candidates[4].timing.parent_estimate == pytest.approx(state.candidates[4].estimate)
    assert not (paths.run_dir("scratch") / "problem" / "kernel.py").exists()

    assert all("Write `twice` from scratch" in prompt for prompt in asked[:3])
    assert "return 2 * x" in asked[0]
    assert "torch: cheat" in asked[1], "what was tried is told"
    assert "float32 where float16 is expected" in asked[2]
    assert "Make `twice` faster" in asked[3]
