"""Root-mean-square normalisation of each row, times a weight for each column.

x / sqrt(mean(x^2) + eps) * weight, as in Zhang and Sennrich, "Root Mean Square Layer Normalization" (2019). The cases
have the hidden sizes of common language models; `rows` counts tokens.
"""

import torch

from kbtui.problems import Case, any_int

entry = "rms_norm"

cases = [
    Case(rows=4096, cols=4096, dtype="bfloat16"),
    Case(rows=8192, cols=2048, dtype="bfloat16"),
    Case(rows=2048, cols=5120, dtype="float16"),
    Case(rows=4096, cols=8192, dtype="float16"),
    Case(rows=4096, cols=4096, dtype="float32"),
]

vary = {"rows": any_int, "cols": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(x, weight, eps):
    mean_square = (x * x).mean(dim=-1, keepdim=True)
    return (x / torch.sqrt(mean_square + eps) * weight).to(x.dtype)


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    x = torch.randn(case.rows, case.cols, generator=generator, device=generator.device)
    # Around 1, as trained weights are, and never the same twice: a kernel that drops the weight must show.
    weight = 1.0 + 0.2 * torch.randn(case.cols, generator=generator, device=generator.device)
    return x.to(device, dtype), weight.to(device, dtype), 1e-6


def traffic(case):
    elements = case.rows * case.cols
    # Per element: square, add, times the row's scale, times the weight.
    return (2 * elements + case.cols) * getattr(torch, case.dtype).itemsize, 4 * elements
