"""Matrix product of fp16 matrices, accumulated in fp32.

The cases are square products, the projections of a language model's layer, and a thin one as in decoding.
"""

import torch

from kbtui.problems import Case, any_int

entry = "matmul"

cases = [
    Case(m=4096, n=4096, k=4096, dtype="float16"),
    Case(m=2048, n=2048, k=2048, dtype="float16"),
    Case(m=1024, n=1024, k=1024, dtype="float16"),
    Case(m=2048, n=11008, k=4096, dtype="float16"),
    Case(m=64, n=4096, k=4096, dtype="float16"),
]

vary = {"m": any_int, "n": any_int, "k": any_int}
dtypes = ("float16",)


def reference(a, b):
    return a @ b


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    a = torch.randn(case.m, case.k, generator=generator, device=generator.device)
    b = torch.randn(case.k, case.n, generator=generator, device=generator.device)
    return a.to(device, dtype), b.to(device, dtype)


def traffic(case):
    m, n, k = case.m, case.n, case.k
    return (m * k + k * n + m * n) * getattr(torch, case.dtype).itemsize, 2 * m * n * k
