"""Cross-entropy losses, one for each row of logits, without a reduction.

log(sum(exp(logits))) - logits[target]; a negative target gives 0. The vocabularies are those of GPT-2, Llama 2 and
Llama 3; `rows` counts tokens.
"""

import torch

from kbtui.problems import Case, any_int

entry = "cross_entropy"

cases = [
    Case(rows=4096, vocab=32000, dtype="float32"),
    Case(rows=2048, vocab=128256, dtype="bfloat16"),
    Case(rows=8192, vocab=32000, dtype="bfloat16"),
    Case(rows=4096, vocab=50257, dtype="float16"),
]

vary = {"rows": any_int, "vocab": any_int}
dtypes = ("float32", "float16", "bfloat16")


def reference(logits, targets):
    counted = targets >= 0
    picked = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    losses = torch.logsumexp(logits, dim=-1) - picked
    return torch.where(counted, losses, torch.zeros_like(losses))


def make_inputs(case, generator, device):
    logits = 2.0 * torch.randn(case.rows, case.vocab, generator=generator, device=generator.device)
    targets = torch.randint(0, case.vocab, (case.rows,), generator=generator, device=generator.device)
    # About every eighth row does not count, as padding does in training.
    padding = torch.rand(case.rows, generator=generator, device=generator.device) < 0.125
    targets = torch.where(padding, torch.full_like(targets, -100), targets)
    return logits.to(device, getattr(torch, case.dtype)), targets.to(device)


def traffic(case):
    elements = case.rows * case.vocab
    itemsize = getattr(torch, case.dtype).itemsize
    # Per element: compare for the maximum, subtract, exponential, add. Each row reads a target (8 bytes), writes a loss.
    return elements * itemsize + case.rows * (8 + itemsize), 4 * elements
