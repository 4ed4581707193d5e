# ruff: noqa: N803  (the habits of the field, which the moves must read)
# Two tiles of one size as literals: which 32 of the grid belongs to which is not written anywhere.
import torch
import triton
import triton.language as tl


@triton.jit
def transpose_kernel(x_ptr, y_ptr, rows, cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    x = tl.load(x_ptr + r[:, None] * cols + c[None, :], mask=mask)
    tl.store(y_ptr + c[None, :] * rows + r[:, None], x, mask=mask)


def transpose(x):
    rows, cols = x.shape
    y = torch.empty((cols, rows), dtype=x.dtype, device=x.device)
    transpose_kernel[triton.cdiv(rows, 32), triton.cdiv(cols, 32)](x, y, rows, cols, BLOCK_R=32, BLOCK_C=32)
    return y
