"""Matrix product of int8 matrices with a scale for each row of a and each column of b.

Accumulated in int32, then scaled: the inner product of a model quantised to 8-bit weights and activations, as in
Dettmers et al., "LLM.int8()" (2022). The output has the scales' dtype, which is the cases' `dtype`.
"""

import torch

from kbtui.problems import Case, any_int

entry = "int8_matmul"

cases = [
    Case(m=4096, n=4096, k=4096, dtype="float16"),
    Case(m=2048, n=11008, k=4096, dtype="float16"),
    Case(m=1024, n=1024, k=1024, dtype="bfloat16"),
    Case(m=64, n=4096, k=4096, dtype="float32"),
]

vary = {"m": any_int, "n": any_int, "k": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(a, b, scale_a, scale_b):
    # Exact: the sums of a product of int8 matrices are integers far below 2**53.
    products = a.to(torch.float64) @ b.to(torch.float64)
    return (products * scale_a[:, None] * scale_b[None, :]).to(scale_a.dtype)


def make_inputs(case, generator, device):
    def integers(*shape):
        values = torch.randint(-127, 128, shape, generator=generator, device=generator.device)
        return values.to(device, torch.int8)

    def scales(length):
        # About 1 / 127, as quantising values around 1 gives, each scale its own.
        values = (0.5 + torch.rand(length, generator=generator, device=generator.device)) / 127
        return values.to(device, getattr(torch, case.dtype))

    return integers(case.m, case.k), integers(case.k, case.n), scales(case.m), scales(case.n)


def traffic(case):
    m, n, k = case.m, case.n, case.k
    # a and b have one byte an element; the output and the scales have the case's dtype.
    return m * k + k * n + (m * n + m + n) * getattr(torch, case.dtype).itemsize, 2 * m * n * k
