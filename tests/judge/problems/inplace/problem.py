"""Doubles a vector in place and returns it."""

import torch

from kbtui.problems import Case, any_int

entry = "double_"
cases = [Case(n=1 << 20)]
vary = {"n": any_int}
mutates = ("x",)


def reference(x):
    return x.mul_(2.0)


def make_inputs(case, generator, device):
    return (torch.randn(case.n, generator=generator, device=generator.device).to(device),)


def traffic(case):
    return 2 * case.n * 4, case.n
