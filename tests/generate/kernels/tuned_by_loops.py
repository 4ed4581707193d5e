# ruff: noqa: N803  (the habits of the field, which the moves must read)
# The autotune list comes from a function, in loops over literals.
import itertools

import torch
import triton
import triton.language as tl


def configurations():
    found = []
    for block in [256, 512]:
        for warps, stages in itertools.product((2, 4), (2, 3)):
            found.append(triton.Config({"BLOCK": block}, num_warps=warps, num_stages=stages))
    return found


@triton.autotune(configs=configurations(), key=["n"])
@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def double(x):
    y = torch.empty_like(x)
    double_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
