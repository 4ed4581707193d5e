"""Rotary position embedding, by halves of each head's vector.

With x = [x1, x2]: [x1 * cos - x2 * sin, x2 * cos + x1 * sin]; Su et al., "RoFormer" (2021), in the layout that Llama and
GPT-NeoX use. x has shape (batch, heads, seq, dim), the tables (seq, dim / 2).
"""

import torch

from kbtui.problems import Case, any_int, multiple_of

entry = "rope"

cases = [
    Case(batch=4, heads=32, seq=2048, dim=128, dtype="bfloat16"),
    Case(batch=1, heads=32, seq=8192, dim=128, dtype="bfloat16"),
    Case(batch=8, heads=16, seq=1024, dim=64, dtype="float16"),
    Case(batch=4, heads=32, seq=1024, dim=128, dtype="float32"),
]

vary = {"batch": any_int, "heads": any_int, "seq": any_int, "dim": multiple_of(2)}
dtypes = ("float32", "float16", "bfloat16")


def reference(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    x = torch.randn(case.batch, case.heads, case.seq, case.dim, generator=generator, device=generator.device)
    half = case.dim // 2
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(case.seq, dtype=torch.float64)[:, None] * frequencies[None, :]
    return x.to(device, dtype), angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def traffic(case):
    elements = case.batch * case.heads * case.seq * case.dim
    tables = case.seq * case.dim
    # Per element: two products and one sum.
    return (2 * elements + tables) * getattr(torch, case.dtype).itemsize, 3 * elements
