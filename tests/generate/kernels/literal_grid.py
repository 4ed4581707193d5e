# ruff: noqa: N803  (the habits of the field, which the moves must read)
# Block and grid are literals that must change together; constexprs are positional; another kernel is not reached.
import torch
import triton
from triton import language as tl


@triton.jit
def copy_kernel(src, dst, n, BLOCK: "tl.constexpr"):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, at < n), at < n)


@triton.jit
def unused_kernel(src, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(src + at, 0.0, mask=at < n)


def copy(src):
    dst = torch.empty_like(src)
    n = src.numel()
    copy_kernel[((n + 255) // 256,)](src, dst, n, 256)
    return dst


def clear(src):
    unused_kernel[(triton.cdiv(src.numel(), 64),)](src, src.numel(), BLOCK=64)
