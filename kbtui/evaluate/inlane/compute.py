"""Names of what torch computes and kernels are there to compute. Standard library only: the run process reads it too."""

from __future__ import annotations

_NAMES = """
matmul mm bmm addmm baddbmm einsum dot mv addmv addbmm inner outer ger tensordot linear bilinear conv1d conv2d conv3d
_int_mm _scaled_mm
softmax log_softmax logsumexp cross_entropy nll_loss layer_norm rms_norm group_norm batch_norm instance_norm
scaled_dot_product_attention gelu relu silu sigmoid tanh softplus elu leaky_relu mish hardswish glu
exp exp2 expm1 log log2 log1p sqrt rsqrt pow sin cos erf square reciprocal add sub rsub mul div true_divide addcmul
addcdiv lerp
sum mean prod var var_mean std norm linalg_vector_norm amax amin cumsum cumprod sort topk argmax argmin scatter_add
index_add embedding
"""
COMPUTE = frozenset(_NAMES.split())
"""Functions and methods of torch that compute what kernels compute. Allocation, views, copies and casts are not among them."""
_DISPATCHED = {
    "native_layer_norm": "layer_norm",
    "fused_rms_norm": "rms_norm",
    "native_group_norm": "group_norm",
    "native_batch_norm": "batch_norm",
    "nll_loss_forward": "nll_loss",
    "convolution": "conv2d",
    "safe_softmax": "softmax",
    "int_mm": "_int_mm",
    "scaled_mm": "_scaled_mm",
}
"""Names below torch's Python functions, where they are others."""


def computed(operator: str) -> str:
    """The name in `COMPUTE` of an operator such as `aten::_softmax` or `aten::add_`; "" for one that computes nothing."""
    name = operator.rpartition("::")[2].strip("_")
    if "dot_product" in name:
        return "scaled_dot_product_attention"
    name = _DISPATCHED.get(name, name)
    return name if name in COMPUTE else ""
