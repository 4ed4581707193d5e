"""SwiGLU's element-wise part, silu(gate) * up: one program computes one block of elements."""

import torch
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # 64-bit, so that tensors of more than 2**31 elements are addressed right.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    out = gate * tl.sigmoid(gate) * up
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    assert gate.shape == up.shape, "gate and up must have equal shapes"
    gate = gate.contiguous()
    up = up.contiguous()
    out = torch.empty(gate.shape, device=gate.device, dtype=gate.dtype)
    n = gate.numel()
    BLOCK = 1024
    grid = (triton.cdiv(n, BLOCK),)
    swiglu_kernel[grid](gate, up, out, n, BLOCK=BLOCK)
    return out
