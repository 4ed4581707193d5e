"""Matrix product of int8 with scales by row and column: one program computes one tile of the output."""

import torch
import triton
import triton.language as tl


@triton.jit
def int8_matmul_kernel(
    a_ptr,
    b_ptr,
    scale_a_ptr,
    scale_b_ptr,
    out_ptr,
    m,
    n,
    k,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_sa,
    stride_sb,
    stride_om,
    stride_on,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < m) & (offs_k[None, :] < k - start), other=0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < k - start) & (offs_n[None, :] < n), other=0)
        acc = tl.dot(a, b, acc, out_dtype=tl.int32)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk

    scale_a = tl.load(scale_a_ptr + offs_m * stride_sa, mask=offs_m < m, other=0.0).to(tl.float32)
    scale_b = tl.load(scale_b_ptr + offs_n * stride_sb, mask=offs_n < n, other=0.0).to(tl.float32)
    out = acc.to(tl.float32) * scale_a[:, None] * scale_b[None, :]

    out_ptrs = out_ptr + offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    out_mask = (offs_m[:, None] < m) & (offs_n[None, :] < n)
    tl.store(out_ptrs, out.to(out_ptr.dtype.element_ty), mask=out_mask)


def int8_matmul(a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor) -> torch.Tensor:
    m, k = a.shape
    _, n = b.shape
    assert b.shape[0] == k, "a's columns and b's rows must agree"
    assert scale_a.shape == (m,), "there must be one scale for each row of a"
    assert scale_b.shape == (n,), "there must be one scale for each column of b"
    out = torch.empty((m, n), device=a.device, dtype=scale_a.dtype)
    BLOCK_M = 128
    BLOCK_N = 128
    BLOCK_K = 64
    grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))
    int8_matmul_kernel[grid](
        a,
        b,
        scale_a,
        scale_b,
        out,
        m,
        n,
        k,
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        scale_a.stride(0),
        scale_b.stride(0),
        out.stride(0),
        out.stride(1),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        BLOCK_K=BLOCK_K,
        num_warps=8,
        num_stages=3,
    )
    return out
