"""Runs kernels of problems beside their references and prints what came out, as JSON. A script: its own process.

Standard input: {"device": "cpu" | "cuda", "jobs": [{"folder", "fields", "strided"}, ...]}. On "cpu" the environment must
have TRITON_INTERPRET=1, which binds when Triton is imported. Standard output: a list with one record for each job.
"""

import json
import sys
from pathlib import Path

import torch

from kbtui.problems import Case
from kbtui.problems.importing import load_module


def strided(value):
    """The same values in every second element of a larger tensor, at an offset."""
    if not torch.is_tensor(value):
        return value
    wide = torch.zeros((*value.shape[:-1], 2 * value.shape[-1] + 1), dtype=value.dtype, device=value.device)
    wide[..., 1::2] = value
    return wide[..., 1::2]


def doubled(value):
    return value.double() if torch.is_tensor(value) and value.is_floating_point() else value


def worst_error(out, exact):
    """The largest |out - exact| / (|exact| + RMS of its row), as the judge has it."""
    scale = exact.abs() + exact.square().mean(dim=-1, keepdim=True).sqrt()
    off = (out.double() - exact).abs()
    return torch.where(off == 0, off, off / scale).max().item()


def run(job, device):
    folder = Path(job["folder"])
    problem = load_module(folder, "problem")
    kernel = load_module(folder, "kernel")
    case = Case(**job["fields"])
    inputs = problem.make_inputs(case, torch.Generator().manual_seed(0), device)
    if job["strided"]:
        inputs = tuple(strided(value) for value in inputs)
    before = [value.clone() if torch.is_tensor(value) else value for value in inputs]
    out = getattr(kernel, problem.entry)(*inputs)
    expected = problem.reference(*inputs)
    exact = problem.reference(*(doubled(value) for value in inputs))
    return {
        "case": case.name,
        "out": [str(out.dtype), list(out.shape)],
        "expected": [str(expected.dtype), list(expected.shape)],
        "exact_dtype": str(exact.dtype),
        "contiguous": out.is_contiguous(),
        "untouched": all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True) if torch.is_tensor(a)),
        "error": worst_error(out, exact),
    }


if __name__ == "__main__":
    order = json.load(sys.stdin)
    json.dump([run(job, order["device"]) for job in order["jobs"]], sys.stdout)
