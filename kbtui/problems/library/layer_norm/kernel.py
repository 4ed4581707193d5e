"""Layer normalisation over the last dimension: one program holds one whole row."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, cols, eps, BLOCK: tl.constexpr):
    # 64-bit, so that tensors of more than 2**31 elements are addressed right.
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    x = tl.load(x_ptr + row * cols + offsets, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / cols
    # Padding must not count: it is 0 in x, so -mean here unless masked.
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / cols
    scale = 1.0 / tl.sqrt(variance + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    out = centred * scale * weight + bias
    tl.store(out_ptr + row * cols + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    cols = x.shape[-1]
    assert weight.shape == bias.shape == (cols,), "weight and bias must be as long as x's last dimension"
    x = x.contiguous()
    weight = weight.contiguous()
    bias = bias.contiguous()
    out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
    rows = x.numel() // cols
    BLOCK = triton.next_power_of_2(cols)
    layer_norm_kernel[(rows,)](x, weight, bias, out, cols, eps, BLOCK=BLOCK, num_warps=8)
    return out
