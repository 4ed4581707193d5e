"""Scales the columns of a matrix and adds one."""

import torch

from kbtui.problems import Case, any_int

entry = "scale"
cases = [Case(rows=512, cols=1024, dtype="float32"), Case(rows=512, cols=1000, dtype="float16")]
vary = {"rows": any_int, "cols": any_int}


def reference(x, w):
    return x * w + 1


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    x = torch.randn(case.rows, case.cols, generator=generator, device=generator.device)
    w = torch.randn(case.cols, generator=generator, device=generator.device)
    return x.to(device, dtype), w.to(device, dtype)


def traffic(case):
    return 2 * case.rows * case.cols * getattr(torch, case.dtype).itemsize, 2 * case.rows * case.cols
