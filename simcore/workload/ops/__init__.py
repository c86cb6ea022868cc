"""Operators: each function returns an Op with its kernels and what it saves for backward.

DRAM traffic is that of unfused eager kernels: every input read once, every output written once.
``high=True`` puts an op's elements in the class that autocast keeps in fp32.
"""

from simcore.workload.ops.attention import attention_eager, attention_fused_softmax, sdpa
from simcore.workload.ops.gemm import bmm, conv2d, linear, row_elems
from simcore.workload.ops.lookup import (
    add_positions,
    cross_entropy,
    embedding,
    lm_loss,
    loss_chunked,
    loss_compiled,
    loss_in_place,
    loss_parallel,
    loss_seed,
    loss_vocab_parallel,
)
from simcore.workload.ops.moe import combine, dispatch, grouped_linear, regroup, route
from simcore.workload.ops.norm import (
    autocast_cast,
    batch_norm,
    cast,
    group_norm,
    layer_norm,
    rms_norm_eager,
    softmax,
)
from simcore.workload.ops.pointwise import (
    accumulate,
    activation,
    binary,
    compiled,
    copy,
    dropout,
    dropout_add,
    grad_only,
    keep,
    pool2d,
    reduction,
    residual,
    scale,
)

__all__ = [
    "accumulate",
    "activation",
    "add_positions",
    "attention_eager",
    "attention_fused_softmax",
    "autocast_cast",
    "batch_norm",
    "binary",
    "bmm",
    "cast",
    "combine",
    "compiled",
    "conv2d",
    "copy",
    "cross_entropy",
    "dispatch",
    "dropout",
    "dropout_add",
    "embedding",
    "grad_only",
    "group_norm",
    "grouped_linear",
    "keep",
    "layer_norm",
    "linear",
    "lm_loss",
    "loss_chunked",
    "loss_compiled",
    "loss_in_place",
    "loss_parallel",
    "loss_seed",
    "loss_vocab_parallel",
    "pool2d",
    "reduction",
    "regroup",
    "residual",
    "rms_norm_eager",
    "route",
    "row_elems",
    "scale",
    "sdpa",
    "softmax",
]
