import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=w) for w in (2, 4)], key=["cols"])
@triton.jit
def squared_rows_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + offsets, mask=offsets < cols, other=0.0)
    tl.store(out_ptr + row, tl.sum(x * x, axis=0))


class SquaredRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out=None):
        assert x.is_cuda
        rows, cols = x.shape
        if out is None:
            out = torch.empty(rows, device=x.device, dtype=x.dtype)
        squared_rows_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
        return out


##################################################################################################################################################

def test_squared_rows():
    x = torch.randn(5, 40, device="cuda", requires_grad=True)
    y = SquaredRows.apply(x)
    return {"shape": y.shape}


result_gold = test_squared_rows()
