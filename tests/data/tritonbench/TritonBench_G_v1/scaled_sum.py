import torch
import triton
import triton.language as tl


@triton.jit
def scaled_sum_kernel(x_ptr, y_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + scale * y, mask=mask)


def scaled_sum(x, y, scale=2.0):
    out = torch.empty_like(x)
    n = x.numel()
    scaled_sum_kernel[(triton.cdiv(n, 256),)](x, y, out, scale, n, BLOCK=256)
    return out


##################################################################################################################################################

import torch


def test_scaled_sum():
    torch.manual_seed(7)
    results = {}
    for index, n in enumerate((100, 1000)):
        x = torch.randn(n, device="cuda")
        y = torch.randn(n, device="cuda", dtype=torch.float32)
        results[f"case_{index}"] = scaled_sum(x, y, scale=0.5 * (index + 1))
    first = results["case_0"]
    total = scaled_sum(first, first)
    results["after"] = total.sum().item()
    return results


result_gold = test_scaled_sum()
