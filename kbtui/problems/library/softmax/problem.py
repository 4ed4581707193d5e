"""Softmax over the last dimension of a matrix.

Bound by memory as long as a row is read once. The cases are attention scores and small classifier heads.
"""

import torch

from kbtui.problems import Case, any_int

entry = "softmax"

cases = [
    Case(rows=4096, cols=4096, dtype="float32"),
    Case(rows=4096, cols=1024, dtype="float32"),
    Case(rows=32768, cols=512, dtype="float16"),
    Case(rows=8192, cols=2048, dtype="bfloat16"),
    Case(rows=2048, cols=8192, dtype="float16"),
    Case(rows=4096, cols=1000, dtype="float32"),
]

vary = {"rows": any_int, "cols": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(x):
    return torch.softmax(x, dim=-1)


def make_inputs(case, generator, device):
    x = torch.randn(case.rows, case.cols, generator=generator, device=generator.device)
    return (x.to(device, getattr(torch, case.dtype)),)


def traffic(case):
    elements = case.rows * case.cols
    # Per element: compare for the maximum, subtract, exponential, add to the sum, divide.
    return 2 * elements * getattr(torch, case.dtype).itemsize, 5 * elements
