"""Scaled dot-product attention, causal or not, with as many key heads as query heads.

softmax(q @ k^T / sqrt(dim)) @ v; Vaswani et al., "Attention Is All You Need" (2017). The causal mask is aligned top left:
query i sees the keys 0..i. All three tensors have shape (batch, heads, seq, dim).
"""

import torch

from kbtui.problems import Case, any_int, multiple_of

entry = "attention"

cases = [
    Case(batch=4, heads=32, seq=1024, dim=64, causal=True, dtype="float16"),
    Case(batch=4, heads=32, seq=2048, dim=128, causal=True, dtype="float16"),
    Case(batch=1, heads=16, seq=4096, dim=128, causal=True, dtype="bfloat16"),
    Case(batch=4, heads=16, seq=1024, dim=64, causal=False, dtype="float16"),
]

vary = {"batch": any_int, "heads": any_int, "seq": any_int, "dim": multiple_of(8, most=128)}
dtypes = ("float16", "bfloat16")


def reference(q, k, v, causal):
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    # Head by head: the scores of all heads at once, in float64, would not fit many a GPU.
    for index in range(q.shape[0] * q.shape[1]):
        at = divmod(index, q.shape[1])
        scores = q[at] @ k[at].T * q.shape[-1] ** -0.5
        if causal:
            scores = scores.masked_fill(hidden, -float("inf"))
        out[at] = torch.softmax(scores, dim=-1) @ v[at]
    return out


def make_inputs(case, generator, device):
    dtype = getattr(torch, case.dtype)
    shape = (case.batch, case.heads, case.seq, case.dim)
    q, k, v = (torch.randn(shape, generator=generator, device=generator.device) for _ in range(3))
    return q.to(device, dtype), k.to(device, dtype), v.to(device, dtype), case.causal


def traffic(case):
    heads = case.batch * case.heads
    pairs = case.seq * (case.seq + 1) // 2 if case.causal else case.seq**2
    # Two products of 2 * dim operations for each visible (query, key) pair; q, k, v and the output once each.
    return 4 * heads * case.seq * case.dim * getattr(torch, case.dtype).itemsize, 4 * case.dim * heads * pairs
