# ruff: noqa: N803, N806  (the habits of the field, which the moves must read)
# The caller gives one block, a function computes the other; the grid and the number of warps follow both.
import torch
import triton
import triton.language as tl


def pick(n):
    return max(32, min(128, triton.next_power_of_2(n) // 4))


@triton.jit
def halves_kernel(x, y, rows, cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    at = r[:, None] * cols + c[None, :]
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    tl.store(y + at, tl.load(x + at, mask=mask) / 2, mask=mask)


def halves(x, BLOCK_R):
    """Half of a matrix."""
    rows, cols = x.shape
    BLOCK_C = pick(cols)
    y = torch.empty_like(x)
    grid = (triton.cdiv(rows, BLOCK_R), triton.cdiv(cols, BLOCK_C))
    halves_kernel[grid](x, y, rows, cols, BLOCK_R, BLOCK_C, num_warps=8 if BLOCK_C > 64 else 4)
    return y
