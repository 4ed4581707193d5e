# ruff: noqa: N803, N806  kernels write constants in capitals
"""Doubles a vector in place."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x * 2.0, mask=offsets < n)


def double_(x: torch.Tensor) -> torch.Tensor:
    BLOCK = 256
    double_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, x.numel(), BLOCK=BLOCK)
    return x
