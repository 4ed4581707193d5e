"""Rotary position embedding by halves: one program rotates one head's vector at one position."""

import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    out_ptr,
    heads,
    seq,
    half,
    stride_xb,
    stride_xh,
    stride_xs,
    stride_xd,
    BLOCK: tl.constexpr,
):
    # One program for each (batch, head, position), in the order of the output.
    # 64-bit, so that tensors of more than 2**31 elements are addressed right.
    vector = tl.program_id(0).to(tl.int64)
    position = vector % seq
    head = vector // seq % heads
    batch = vector // seq // heads

    offsets = tl.arange(0, BLOCK)
    mask = offsets < half
    cos = tl.load(cos_ptr + position * half + offsets, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + position * half + offsets, mask=mask, other=0.0).to(tl.float32)

    x_vector = x_ptr + batch * stride_xb + head * stride_xh + position * stride_xs
    first = tl.load(x_vector + offsets * stride_xd, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_vector + (half + offsets) * stride_xd, mask=mask, other=0.0).to(tl.float32)

    out_vector = out_ptr + vector * 2 * half
    element = out_ptr.dtype.element_ty
    tl.store(out_vector + offsets, (first * cos - second * sin).to(element), mask=mask)
    tl.store(out_vector + half + offsets, (second * cos + first * sin).to(element), mask=mask)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    batch, heads, seq, dim = x.shape
    assert dim % 2 == 0, "dim must be even: its halves are rotated against each other"
    assert cos.shape == sin.shape == (seq, dim // 2), "the tables must have shape (seq, dim / 2)"
    cos = cos.contiguous()
    sin = sin.contiguous()
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    half = dim // 2
    BLOCK = triton.next_power_of_2(half)
    rope_kernel[(batch * heads * seq,)](
        x,
        cos,
        sin,
        out,
        heads,
        seq,
        half,
        x.stride(0),
        x.stride(1),
        x.stride(2),
        x.stride(3),
        BLOCK=BLOCK,
        num_warps=1,
    )
    return out
