"""Attention in one pass over the keys: one program computes one block of queries of one head.

The softmax is rescaled as the keys go by, so that no row of scores is ever stored: Dao et al., "FlashAttention" (2022).
"""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    scale,
    heads,
    q_len,
    k_len,
    dim,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_vd,
    stride_ob,
    stride_oh,
    stride_os,
    stride_od,
    CAUSAL: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    first_query = tl.program_id(0) * BLOCK_Q
    # 64-bit, so that tensors of more than 2**31 elements are addressed right.
    batch = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)

    offs_q = first_query + tl.arange(0, BLOCK_Q)
    offs_k = tl.arange(0, BLOCK_K)
    offs_d = tl.arange(0, BLOCK_D)
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head * stride_kh
    v_head = v_ptr + batch * stride_vb + head * stride_vh
    out_head = out_ptr + batch * stride_ob + head * stride_oh

    q_mask = (offs_q[:, None] < q_len) & (offs_d[None, :] < dim)
    q = tl.load(q_head + offs_q[:, None] * stride_qs + offs_d[None, :] * stride_qd, mask=q_mask, other=0.0)

    row_max = tl.full((BLOCK_Q,), -float("inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), dtype=tl.float32)

    end = k_len
    if CAUSAL:
        # Keys after the block's last query are hidden from all of its queries.
        end = tl.minimum(k_len, first_query + BLOCK_Q)
    for start in range(0, end, BLOCK_K):
        keys = start + offs_k
        # Transposed as it is loaded: (dim, keys).
        k_mask = (offs_d[:, None] < dim) & (keys[None, :] < k_len)
        k = tl.load(k_head + keys[None, :] * stride_ks + offs_d[:, None] * stride_kd, mask=k_mask, other=0.0)
        scores = tl.dot(q, k) * scale
        visible = keys[None, :] < k_len
        if CAUSAL:
            visible = visible & (offs_q[:, None] >= keys[None, :])
        scores = tl.where(visible, scores, -float("inf"))

        # The first block of keys holds key 0, which every query sees: the maximum is finite from then on.
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        rescale = tl.exp(row_max - new_max)
        weights = tl.exp(scores - new_max[:, None])
        row_sum = row_sum * rescale + tl.sum(weights, axis=1)
        acc = acc * rescale[:, None]
        v_mask = (keys[:, None] < k_len) & (offs_d[None, :] < dim)
        v = tl.load(v_head + keys[:, None] * stride_vs + offs_d[None, :] * stride_vd, mask=v_mask, other=0.0)
        acc = tl.dot(weights.to(v.dtype), v, acc)
        row_max = new_max

    out = acc / row_sum[:, None]
    out_ptrs = out_head + offs_q[:, None] * stride_os + offs_d[None, :] * stride_od
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=q_mask)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    batch, heads, q_len, dim = q.shape
    k_len = k.shape[2]
    assert k.shape == v.shape == (batch, heads, k_len, dim), "k and v must have q's batch, heads and dim"
    out = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    BLOCK_Q = 64
    BLOCK_K = 64
    # A matrix instruction needs at least 16 in each dimension.
    BLOCK_D = max(16, triton.next_power_of_2(dim))
    grid = (triton.cdiv(q_len, BLOCK_Q), batch * heads)
    attention_kernel[grid](
        q,
        k,
        v,
        out,
        dim**-0.5,
        heads,
        q_len,
        k_len,
        dim,
        q.stride(0),
        q.stride(1),
        q.stride(2),
        q.stride(3),
        k.stride(0),
        k.stride(1),
        k.stride(2),
        k.stride(3),
        v.stride(0),
        v.stride(1),
        v.stride(2),
        v.stride(3),
        out.stride(0),
        out.stride(1),
        out.stride(2),
        out.stride(3),
        CAUSAL=causal,
        BLOCK_Q=BLOCK_Q,
        BLOCK_K=BLOCK_K,
        BLOCK_D=BLOCK_D,
        num_warps=4,
        num_stages=2,
    )
    return out
