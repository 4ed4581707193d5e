"""Cross-entropy by row: one program walks over one row of logits twice, for its maximum and for the sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(
    logits_ptr,
    targets_ptr,
    losses_ptr,
    row_stride,
    col_stride,
    target_stride,
    vocab,
    BLOCK: tl.constexpr,
):
    # 64-bit, so that logits of more than 2**31 elements are addressed right.
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * row_stride
    offsets = tl.arange(0, BLOCK)

    # The maximum first: with it every exponential is at most 1, whatever the logits.
    block_max = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, vocab, BLOCK):
        mask = start + offsets < vocab
        logits = tl.load(row_ptr + (start + offsets) * col_stride, mask=mask, other=-float("inf")).to(tl.float32)
        block_max = tl.maximum(block_max, logits)
    row_max = tl.max(block_max, axis=0)

    block_sum = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, vocab, BLOCK):
        mask = start + offsets < vocab
        logits = tl.load(row_ptr + (start + offsets) * col_stride, mask=mask, other=-float("inf")).to(tl.float32)
        block_sum += tl.exp(logits - row_max)
    log_sum = row_max + tl.log(tl.sum(block_sum, axis=0))

    # A negative target marks a row that does not count. Its load is masked: it would lie before the row.
    target = tl.load(targets_ptr + row * target_stride)
    picked = tl.load(row_ptr + target * col_stride, mask=target >= 0, other=0.0).to(tl.float32)
    loss = tl.where(target >= 0, log_sum - picked, 0.0)
    tl.store(losses_ptr + row, loss.to(losses_ptr.dtype.element_ty))


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    rows, vocab = logits.shape
    assert targets.shape == (rows,), "there must be one target for each row of logits"
    losses = torch.empty((rows,), device=logits.device, dtype=logits.dtype)
    BLOCK = 4096
    cross_entropy_kernel[(rows,)](
        logits,
        targets,
        losses,
        logits.stride(0),
        logits.stride(1),
        targets.stride(0),
        vocab,
        BLOCK=BLOCK,
        num_warps=8,
    )
    return losses
