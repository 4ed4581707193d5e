# ruff: noqa: N803  (the habits of the field, which the moves must read)
# One program for a row, in two loops; the tile is capped; a helper function does the arithmetic.
import torch
import triton
import triton.language as tl


@triton.jit
def partial_sum(ptr, start, n, TILE: tl.constexpr):
    cols = start + tl.arange(0, TILE)
    x = tl.load(ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
    return x * x


@triton.jit
def norm_kernel(x_ptr, out_ptr, weight_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        total += partial_sum(x_ptr + row * n, start, n, BLOCK)
    scale = 1.0 / tl.sqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        w = tl.load(weight_ptr + cols, mask=cols < n)
        x = tl.load(x_ptr + row * n + cols, mask=cols < n)
        tl.store(out_ptr + row * n + cols, x * scale * w, mask=cols < n)


def norm(x, weight, eps):
    n = x.shape[-1]
    out = torch.empty_like(x)
    norm_kernel[(x.numel() // n,)](x, out, weight, n, eps, BLOCK=min(1024, triton.next_power_of_2(n)))
    return out
