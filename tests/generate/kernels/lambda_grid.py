# ruff: noqa: N803, E731  (the habits of the field, which the moves must read)
# The grid is a lambda that reads the block; the block is a literal at the launch.
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, out_ptr, n_elements, factor, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements  # BLOCK_SIZE=1024 in a comment stays
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * factor, mask=mask)


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    """BLOCK_SIZE=1024 in a string stays."""
    out = torch.empty_like(x)
    n_elements = out.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    scale_kernel[grid](x, out, n_elements, factor, BLOCK_SIZE=1024)
    return out
