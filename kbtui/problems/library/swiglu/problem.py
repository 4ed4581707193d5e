"""The gate of a SwiGLU feed-forward layer: silu(gate) * up, element by element.

silu(x) = x * sigmoid(x); Shazeer, "GLU Variants Improve Transformer" (2020). The cases have the inner sizes of common
language models; `rows` counts tokens.
"""

import torch

from kbtui.problems import Case, any_int

entry = "swiglu"

cases = [
    Case(rows=4096, cols=11008, dtype="bfloat16"),
    Case(rows=4096, cols=14336, dtype="bfloat16"),
    Case(rows=2048, cols=8192, dtype="float16"),
    Case(rows=512, cols=11008, dtype="float16"),
    Case(rows=4096, cols=4096, dtype="float32"),
]

vary = {"rows": any_int, "cols": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(gate, up):
    return gate * torch.sigmoid(gate) * up


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    gate = torch.randn(case.rows, case.cols, generator=generator, device=generator.device)
    up = torch.randn(case.rows, case.cols, generator=generator, device=generator.device)
    return gate.to(device, dtype), up.to(device, dtype)


def traffic(case):
    elements = case.rows * case.cols
    # Per element: exponential, add, divide (the sigmoid), and two products.
    return 3 * elements * getattr(torch, case.dtype).itemsize, 5 * elements
