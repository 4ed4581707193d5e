"""Root-mean-square normalisation over the last dimension: one program holds one whole row."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    # 64-bit, so that tensors of more than 2**31 elements are addressed right.
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    x = tl.load(x_ptr + row * cols + offsets, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / cols
    scale = 1.0 / tl.sqrt(mean_square + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    out = x * scale * weight
    tl.store(out_ptr + row * cols + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    cols = x.shape[-1]
    assert weight.shape == (cols,), "weight must be as long as x's last dimension"
    x = x.contiguous()
    weight = weight.contiguous()
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    rows = x.numel() // cols
    BLOCK = triton.next_power_of_2(cols)
    rms_norm_kernel[(rows,)](x, weight, out, cols, eps, BLOCK=BLOCK)
    return out
