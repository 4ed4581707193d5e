"""Sum of each row."""

import torch

from kbtui.problems import Case, any_int

entry = "row_sum"
cases = [Case(rows=1024, cols=4096)]
vary = {"rows": any_int, "cols": any_int}


def reference(x):
    return x.sum(dim=1)


def make_inputs(case, generator, device):
    # Positive, so that no row's sum cancels to nearly nothing.
    return (torch.rand(case.rows, case.cols, generator=generator, device=generator.device).to(device) + 0.5,)


def traffic(case):
    return case.rows * (case.cols + 1) * 4, case.rows * case.cols
