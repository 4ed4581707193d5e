"""Softmax over the last dimension of a matrix: one program holds one whole row."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    x_ptr,
    out_ptr,
    x_row_stride,
    x_col_stride,
    out_row_stride,
    cols,
    BLOCK: tl.constexpr,
):
    # 64-bit, so that matrices of more than 2**31 elements are addressed right.
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    x = tl.load(x_ptr + row * x_row_stride + offsets * x_col_stride, mask=mask, other=-float("inf")).to(tl.float32)
    # Subtracting the row's maximum keeps every exponential at most 1.
    numerator = tl.exp(x - tl.max(x, axis=0))
    out = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_row_stride + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    assert x.dim() == 2, "softmax takes a matrix"
    rows, cols = x.shape
    out = torch.empty((rows, cols), device=x.device, dtype=x.dtype)
    BLOCK = triton.next_power_of_2(cols)
    softmax_kernel[(rows,)](
        x,
        out,
        x.stride(0),
        x.stride(1),
        out.stride(0),
        cols,
        BLOCK=BLOCK,
        num_warps=8,
    )
    return out
