"""Job "selftest": whether Triton's interpreter works at all with the numpy beside it.

Triton 3.6's turns a one-element array into a loop bound, which numpy 2.4 refuses: every kernel with a loop would fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

if TYPE_CHECKING:
    from kbtui.evaluate.inlane.candidate import JobContext


@triton.jit  # type: ignore[untyped-decorator]  # triton is not followed by mypy
def _sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803  compiled by Triton
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0))


def run(ctx: JobContext) -> dict[str, Any]:
    """Reply: {"right": bool}. What the interpreter raises goes the way of any failure of a job."""
    del ctx
    x = torch.arange(10, dtype=torch.float32)
    out = torch.zeros(1)
    _sum_kernel[(1,)](x, out, 10, BLOCK=4)
    return {"right": bool(out.item() == 45.0)}
