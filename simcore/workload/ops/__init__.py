"""Operators: each function returns an Op with its kernels and what it saves for backward.

DRAM traffic is that of unfused eager kernels: every input read once, every output written once.
``high=True`` puts an op's elements in the class that autocast keeps in fp32.
"""

from simcore.workload.ops.attention import sdpa
from simcore.workload.ops.gemm import bmm, conv2d, linear
from simcore.workload.ops.lookup import cross_entropy, embedding
from simcore.workload.ops.norm import batch_norm, group_norm, layer_norm, softmax
from simcore.workload.ops.pointwise import activation, binary, copy, dropout, pool2d, reduction

__all__ = [
    "activation",
    "batch_norm",
    "binary",
    "bmm",
    "conv2d",
    "copy",
    "cross_entropy",
    "dropout",
    "embedding",
    "group_norm",
    "layer_norm",
    "linear",
    "pool2d",
    "reduction",
    "sdpa",
    "softmax",
]
