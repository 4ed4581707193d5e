"""Makes the recording behind `kbtui run softmax --generator replay`: scripted replies, written by people, not by a model.

    python benchmarks/demonstration.py [ITERATIONS]

A local server hands the replies below to the `llm` generator of a real run on the `cpu` lane; what its journal has of prompts
and replies becomes kbtui/generate/recordings/softmax.jsonl. Run it again when prompts or events change.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import ModuleType

import msgspec

from kbtui import paths
from kbtui.engine.launch import run_here
from kbtui.engine.spec import RunSpec
from kbtui.generate.llm.recorded import FOLDER
from kbtui.history.journal import read_journal
from kbtui.state import events as e
from kbtui.state.records import STRATEGIES

LABEL = "scripted replies, not a model's"
ROOT = Path(__file__).resolve().parents[1]
KERNEL = (paths.library_dir() / "softmax" / "kernel.py").read_text()
WARPS = "num_warps=8"
LOAD = 'mask=mask, other=-float("inf"))'
NORMALISE = "    numerator = tl.exp(x - tl.max(x, axis=0))\n    out = numerator / tl.sum(numerator, axis=0)\n"
LAUNCH = "softmax_kernel[(rows,)]("

SEVERAL_ROWS = '''\
"""Softmax over the last dimension of a matrix: one program holds several short rows, or one long one."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    x_ptr, out_ptr, x_row_stride, x_col_stride, out_row_stride, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    offsets = tl.arange(0, BLOCK)
    mask = (row < rows)[:, None] & (offsets < cols)[None, :]
    places = row[:, None] * x_row_stride + offsets[None, :] * x_col_stride
    x = tl.load(x_ptr + places, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=1)[:, None])
    # A row beyond the last is all -inf: its sum is not a number, and it is not stored.
    out = numerator / tl.sum(numerator, axis=1)[:, None]
    tl.store(out_ptr + row[:, None] * out_row_stride + offsets[None, :], out.to(out_ptr.dtype.element_ty), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    assert x.dim() == 2, "softmax takes a matrix"
    rows, cols = x.shape
    out = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
    BLOCK = triton.next_power_of_2(cols)
    ROWS = max(1, 2048 // BLOCK)
    softmax_kernel[(triton.cdiv(rows, ROWS),)](
        x, out, x.stride(0), x.stride(1), out.stride(0), rows, cols, ROWS=ROWS, BLOCK=BLOCK, num_warps=8
    )
    return out
'''


def changed(*pairs: tuple[str, str]) -> str:
    """The bundled kernel with these pieces replaced."""
    source = KERNEL
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new)
    return source


def answer(title: str, source: str, cause: str = "") -> str:
    lines = [f"Cause: {cause}"] if cause else []
    return "\n".join([*lines, f"Title: {title}", "```python", source.rstrip(), "```", ""])


BY_WIDTH = changed((WARPS, "num_warps=min(max(BLOCK // 512, 1), 16)"))
SCRIPT: dict[str, list[str]] = {
    "tiling": [
        answer("warps by the width of a row", BY_WIDTH),
        answer("several short rows per program", SEVERAL_ROWS),
        answer("four warps", changed((WARPS, "num_warps=4"))),
    ],
    "vectorization": [
        answer("sixteen warps", changed((WARPS, "num_warps=16"))),
        answer("two warps for narrow rows", changed((WARPS, "num_warps=2 if BLOCK <= 1024 else 8"))),
    ],
    "fusion": [
        answer("leave it to torch", changed((f"    {LAUNCH}", f"    return torch.softmax(x, dim=-1)\n    {LAUNCH}"))),
        answer(
            "base-2 exponentials",
            changed((NORMALISE, "    x = x * 1.4426950408889634\n" + NORMALISE.replace("exp", "exp2"))),
        ),
    ],
    "pipeline": [
        answer("three stages, sum renamed", changed(("tl.sum", "tl.summ"), (WARPS, "num_warps=8, num_stages=3"))),
        answer("two stages", changed((WARPS, "num_warps=8, num_stages=2"))),
    ],
    "reordering": [
        answer("zeros beyond the edge", changed((LOAD, "mask=mask, other=0.0)"))),
        answer("eight warps for wide rows only", changed((WARPS, "num_warps=8 if BLOCK > 2048 else 4"))),
    ],
    "access_layout": [
        "I would read each row once and mark it as evicted first, since nothing is used again.",
        answer("rows read once leave the cache first", changed((LOAD, LOAD[:-1] + ', eviction_policy="evict_first")'))),
    ],
}
MENDED = {
    "pipeline": answer(
        "three stages", changed((WARPS, "num_warps=8, num_stages=3")), "tl.summ does not exist; it is tl.sum"
    ),
    "reordering": answer(
        "one reciprocal per row, edges at minus infinity",
        changed(("numerator / tl.sum(numerator, axis=0)", "numerator * (1.0 / tl.sum(numerator, axis=0))")),
        "zeros beyond the edge count as exp(0 - max) in the sum; only minus infinity adds nothing",
    ),
}


SPARE = [
    answer(f"{warps} warps, {stages} stages", changed((WARPS, f"num_warps={warps}, num_stages={stages}")))
    for stages in (1, 4)
    for warps in (4, 2, 16)
]
"""For what a strategy is asked beyond its script."""


def chat_server() -> ModuleType:
    """The tests' server, which lives beside them."""
    spec = importlib.util.spec_from_file_location("chat_server", ROOT / "tests" / "generate" / "llm" / "chat_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chat_server"] = module
    spec.loader.exec_module(module)
    return module


def main(iterations: int) -> None:
    server_module = chat_server()
    given: Counter[str] = Counter()

    def script(received):  # type: ignore[no-untyped-def]
        first, last = received.body["messages"][1]["content"], received.body["messages"][-1]["content"]
        strategy = next(name for name in STRATEGIES if f"**{name.replace('_', ' ')}**" in first)
        if last.startswith("That version failed"):
            text = MENDED.get(strategy, SCRIPT[strategy][-1])
        elif given[strategy] < len(SCRIPT[strategy]):
            text = SCRIPT[strategy][given[strategy]]
            given[strategy] += 1
        else:
            text = SPARE[given["spare"] % len(SPARE)]
            given["spare"] += 1
        return server_module.Answer(text, prompt_tokens=len(received.prompt) // 4, completion_tokens=len(text) // 4)

    with tempfile.TemporaryDirectory() as home, server_module.ChatServer(script) as server:
        os.environ["KBTUI_HOME"] = home
        spec = RunSpec(
            problem="softmax",
            run_id="softmax-scripted",
            generator="llm",
            model="openai/scripted",
            generator_parameters={"api_base": server.base},
            policy="round_robin",
            iterations=iterations,
            device="cpu",
        )
        run_here(spec, lambda event: print(type(event).__name__) if e.is_durable(event) else None)
        write(read_journal(paths.journal_file(spec.run_id)))


def write(events: list[e.Event]) -> None:
    """Keep what replay needs, without what names this machine."""
    kept: list[bytes] = []
    for event in events:
        if isinstance(event, e.RunStarted):
            fields = {
                "host": "",
                "user": "",
                "python": "",
                "arguments": (),
                "generator_parameters": {},
                "isolation": {},
            }
            problem = msgspec.structs.replace(event.problem, path="")
            kept.append(e.encode(msgspec.structs.replace(event, problem=problem, **fields)))
            kept.append(e.encode(e.Noted(level="info", text=LABEL, source="recording")))
        elif isinstance(event, e.Replied):
            kept.append(e.encode(event))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "softmax.jsonl").write_bytes(b"\n".join(kept) + b"\n")
    print(f"{len(kept)} events, {sum(map(len, kept))} bytes in {FOLDER / 'softmax.jsonl'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
