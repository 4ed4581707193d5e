# ruff: noqa: N803  (the habits of the field, which the moves must read)
# Values reach the launch through a module constant, a default of the wrapper, and a default of the kernel.
import torch
import triton
import triton.language as tl

ROWS = 4


@triton.jit
def add_bias_kernel(x, bias, out, rows, cols, ROWS_PER: tl.constexpr, COLS_PER: tl.constexpr, SCALE: tl.constexpr = 2):
    r = tl.program_id(0) * ROWS_PER + tl.arange(0, ROWS_PER)
    c = tl.program_id(1) * COLS_PER + tl.arange(0, COLS_PER)
    inside = (r[:, None] < rows) & (c[None, :] < cols)
    b = tl.load(bias + c, mask=c < cols)
    v = tl.load(x + r[:, None] * cols + c[None, :], mask=inside)
    tl.store(out + r[:, None] * cols + c[None, :], v + b[None, :] * SCALE, mask=inside)


def _launch(x, bias, out, cols_per=128):
    rows, cols = x.shape
    n_rows = triton.cdiv(rows, ROWS)
    grid = (n_rows, triton.cdiv(cols, cols_per))
    add_bias_kernel[grid](x, bias, out, rows, cols, ROWS, cols_per, num_warps=2)


def add_bias(x, bias):
    out = torch.empty_like(x)
    _launch(x, bias, out)
    return out
