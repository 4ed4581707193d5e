# ruff: noqa: N803, N806  kernels write constants in capitals
"""Matrix product of fp32 matrices: one program computes one tile."""

import torch
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, m, n, k, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + rows[:, None] * k + inner[None, :], mask=(rows[:, None] < m) & (inner[None, :] < k), other=0.0
        )
        b = tl.load(
            b_ptr + inner[:, None] * n + cols[None, :], mask=(inner[:, None] < k) & (cols[None, :] < n), other=0.0
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(out_ptr + rows[:, None] * n + cols[None, :], acc, mask=(rows[:, None] < m) & (cols[None, :] < n))


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    a, b = a.contiguous(), b.contiguous()
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    BLOCK = 32
    product_kernel[(triton.cdiv(m, BLOCK), triton.cdiv(n, BLOCK))](a, b, out, m, n, k, BLOCK=BLOCK)
    return out
