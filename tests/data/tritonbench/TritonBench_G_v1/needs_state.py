import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr):
    tl.store(x_ptr, 1.0)


class Layer(torch.nn.Module):
    def forward(self, x):
        kernel[(1,)](x)
        return x


##################################################################################################################################################

layer = Layer()
layer(torch.zeros(4, device="cuda"))
