"""Layer normalisation of each row, then a weight and a bias for each column.

(x - mean) / sqrt(variance + eps) * weight + bias with the biased variance, as in Ba, Kiros and Hinton, "Layer
Normalization" (2016). The cases have the hidden sizes of common transformers; `rows` counts tokens.
"""

import torch

from kbtui.problems import Case, any_int

entry = "layer_norm"

cases = [
    Case(rows=8192, cols=1024, dtype="float16"),
    Case(rows=4096, cols=4096, dtype="float16"),
    Case(rows=8192, cols=768, dtype="float32"),
    Case(rows=4096, cols=5120, dtype="bfloat16"),
    Case(rows=2048, cols=8192, dtype="bfloat16"),
]

vary = {"rows": any_int, "cols": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(x, weight, bias, eps):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = (centred * centred).mean(dim=-1, keepdim=True)
    return (centred / torch.sqrt(variance + eps) * weight + bias).to(x.dtype)


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, device=generator.device)

    # A mean that is not 0 by row, so that a kernel that forgets to subtract it must show.
    x = normal(case.rows, case.cols) + normal(case.rows, 1)
    weight = 1.0 + 0.2 * normal(case.cols)
    bias = 0.5 * normal(case.cols)
    return x.to(device, dtype), weight.to(device, dtype), bias.to(device, dtype), 1e-5


def traffic(case):
    elements = case.rows * case.cols
    # Per element: add to the mean, subtract it, square, add to the variance, scale, weight, bias.
    return (2 * elements + 2 * case.cols) * getattr(torch, case.dtype).itemsize, 7 * elements
