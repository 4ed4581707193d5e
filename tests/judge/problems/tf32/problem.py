"""Matrix product of fp32 matrices; TF32 is allowed."""

import torch

from kbtui.problems import Case, any_int

entry = "product"
cases = [Case(m=512, n=512, k=512)]
vary = {"m": any_int, "n": any_int, "k": any_int}
precision = "tf32"


def reference(a, b):
    return a @ b


def make_inputs(case, generator, device):
    a = torch.randn(case.m, case.k, generator=generator, device=generator.device)
    b = torch.randn(case.k, case.n, generator=generator, device=generator.device)
    return a.to(device), b.to(device)


def traffic(case):
    m, n, k = case.m, case.n, case.k
    return (m * k + k * n + m * n) * 4, 2 * m * n * k
