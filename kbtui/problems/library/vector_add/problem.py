"""Element-wise sum of two tensors of equal shape.

Purely bound by memory: two reads, one write and one addition for each element.
"""

import torch

from kbtui.problems import Case, any_int

entry = "vector_add"

cases = [
    Case(n=1 << 26, dtype="float32"),
    Case(n=1 << 24, dtype="float32"),
    Case(n=1 << 20, dtype="float32"),
    Case(n=1 << 26, dtype="float16"),
    Case(n=100_000_007, dtype="bfloat16"),
]

vary = {"n": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(x, y):
    return x + y


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    x = torch.randn(case.n, generator=generator, device=generator.device)
    y = torch.randn(case.n, generator=generator, device=generator.device)
    return x.to(device, dtype), y.to(device, dtype)


def traffic(case):
    return 3 * case.n * getattr(torch, case.dtype).itemsize, case.n
