# ruff: noqa: N803, N806  (the habits of the field, which the moves must read)
# Pointers move to the program's row; a branch on a flag; names bound twice; a function says how large a block is.
import torch
import triton
import triton.language as tl

MAX_FUSED_SIZE = 65536


def settings(n):
    BLOCK_SIZE = triton.next_power_of_2(n)
    num_warps = 4
    if BLOCK_SIZE >= 2048:
        num_warps = 8
    return BLOCK_SIZE, num_warps


@triton.jit
def scaled_kernel(
    Y, Y_row_stride, X, X_row_stride, W, B, r, n_cols, eps, HAS_BIAS: tl.constexpr, BLOCK_SIZE: tl.constexpr
):  # fmt: skip
    row_idx = tl.program_id(0)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    Y += row_idx * Y_row_stride
    X += row_idx * X_row_stride
    r += row_idx
    x = tl.load(X + col_offsets, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(W + col_offsets, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    x = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(x * x, axis=0) / n_cols
    inverse = 1.0 / tl.sqrt(variance + eps)
    tl.store(r, inverse)
    y = x * inverse * w
    if HAS_BIAS:
        b = tl.load(B + col_offsets, mask=mask, other=0.0)
        y = y + b
    tl.store(Y + col_offsets, y, mask=mask)
    return


def scaled(x, weight, bias, eps):
    n_rows, n_cols = x.shape
    BLOCK_SIZE, num_warps = settings(n_cols)
    y = torch.empty_like(x)
    r = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    scaled_kernel[(n_rows,)](
        y, y.stride(0), x, x.stride(0), weight, bias, r, n_cols, eps,
        HAS_BIAS=bias is not None, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps,
    )  # fmt: skip
    return y, r
