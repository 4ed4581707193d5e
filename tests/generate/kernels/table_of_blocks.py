# ruff: noqa: N803, N806, E731  (the habits of the field, which the moves must read)
# Blocks come from a table, by dtype; the least of a product of literals and the row.
import torch
import triton
import triton.language as tl


@triton.jit
def triple_kernel(x, y, rows, cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R)
    for start in range(0, cols, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        at = r[:, None] * cols + c[None, :]
        mask = (r[:, None] < rows) & (c[None, :] < cols)
        tl.store(y + at, tl.load(x + at, mask=mask) * 3, mask=mask)


def triple(x):
    rows, cols = x.shape
    table = {torch.float16: {"BLOCK_R": 8}, torch.float32: {"BLOCK_R": 4}}
    BLOCK_C = min(triton.next_power_of_2(cols), 2 * 1024)
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_R"]),)
    triple_kernel[grid](x, y, rows, cols, BLOCK_R=table[x.dtype]["BLOCK_R"], BLOCK_C=BLOCK_C)
    return y
