"""Operators: each function returns an Op with its kernels and what it saves for backward.

DRAM traffic is that of unfused eager kernels: every input read once, every output written once.
``high=True`` puts an op's elements in the class that autocast keeps in fp32. Sizes of tensors are
elements per sample.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from simcore.workload.ops.lookup import (
    add_positions,
    cross_entropy,
    dice_loss,
    embedding,
    in_chunks,
    lm_loss,
    logit_metrics,
    loss_chunked,
    loss_compiled,
    loss_flash,
    loss_in_place,
    loss_parallel,
    loss_seed,
    loss_smoothed,
    loss_vocab_parallel,
)
from simcore.workload.ops.norm import (
    autocast_cast,
    batch_norm,
    cast,
    group_norm,
    instance_norm,
    layer_norm,
    layer_norm_eager,
    rms_norm_again,
    rms_norm_eager,
    softmax,
    widened,
)
from simcore.workload.ops.pointwise import (
    accumulate,
    activation,
    binary,
    brought_to_fp32,
    compiled,
    copy,
    dropout,
    dropout_add,
    grad_only,
    in_fp32,
    keep,
    max_pool2d,
    pool2d,
    pool_elements,
    reduction,
    residual,
    scale,
    without_mask,
)
from simcore.workload.ops.products import (
    added_bias,
    attention_eager,
    attention_fused_softmax,
    bmm,
    conv,
    linear,
    row_elems,
    sdpa,
)

if TYPE_CHECKING:
    from simcore.workload.ops.adaln import gate, modulate
    from simcore.workload.ops.delta import (
        DeltaShape,
        delta_gates,
        delta_rule,
        delta_split,
    )
    from simcore.workload.ops.lightning import lightning_attention
    from simcore.workload.ops.moe import combine, dispatch, grouped_linear, regroup, route
    from simcore.workload.ops.quantised import dequantised, unpacked
    from simcore.workload.ops.recurrent import lstm
    from simcore.workload.ops.selective import SelectiveShape, selective_scan
    from simcore.workload.ops.ssd import SsdShape, causal_conv, gated_norm, ssd_scan

#: Operators that few networks have, by module: it is imported when one of them is used.
_APART = {
    "delta": ("DeltaShape", "delta_gates", "delta_rule", "delta_split"),
    "lightning": ("lightning_attention",),
    "recurrent": ("lstm",),
    "adaln": ("gate", "modulate"),
    "moe": ("combine", "dispatch", "grouped_linear", "regroup", "route"),
    "quantised": ("dequantised", "unpacked"),
    "selective": ("SelectiveShape", "selective_scan"),
    "ssd": ("SsdShape", "causal_conv", "gated_norm", "ssd_scan"),
}


#: Modules of the operators that records of networks name, by what stands before the dot:
#: ``ops.linear``, ``tf.bias`` (TensorFlow's graphs), ``xla.added`` (those that XLA compiles).
_FAMILIES = {"ops": "", "tf": ".tensorflow", "xla": ".xla"}


def operator_names() -> list[str]:
    """Names of all operators as records of networks have them: ``ops.linear``, ``tf.bias``."""
    return [f"{family}.{name}" for family in _FAMILIES for name in _family(family).__all__]


def operator(kind: str) -> Callable[..., Any]:
    """The operator of one of ``operator_names``. Raises KeyError for another name."""
    family, _, name = kind.partition(".")
    if family not in _FAMILIES or name not in _family(family).__all__:
        raise KeyError(f"{kind!r} is no kind of layer")
    found: Callable[..., Any] = getattr(_family(family), name)
    return found


def _family(family: str) -> Any:
    return import_module(f"{__name__}{_FAMILIES[family]}")


def __getattr__(name: str) -> Any:
    for module, names in _APART.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "DeltaShape",
    "SelectiveShape",
    "SsdShape",
    "accumulate",
    "activation",
    "add_positions",
    "added_bias",
    "attention_eager",
    "attention_fused_softmax",
    "autocast_cast",
    "batch_norm",
    "binary",
    "bmm",
    "brought_to_fp32",
    "cast",
    "causal_conv",
    "combine",
    "compiled",
    "conv",
    "copy",
    "cross_entropy",
    "delta_gates",
    "delta_rule",
    "delta_split",
    "dequantised",
    "dice_loss",
    "dispatch",
    "dropout",
    "dropout_add",
    "embedding",
    "gate",
    "gated_norm",
    "grad_only",
    "group_norm",
    "grouped_linear",
    "in_chunks",
    "in_fp32",
    "instance_norm",
    "keep",
    "layer_norm",
    "layer_norm_eager",
    "lightning_attention",
    "linear",
    "lm_loss",
    "logit_metrics",
    "loss_chunked",
    "loss_compiled",
    "loss_flash",
    "loss_in_place",
    "loss_parallel",
    "loss_seed",
    "loss_smoothed",
    "loss_vocab_parallel",
    "lstm",
    "max_pool2d",
    "modulate",
    "pool2d",
    "pool_elements",
    "reduction",
    "regroup",
    "residual",
    "rms_norm_again",
    "rms_norm_eager",
    "route",
    "row_elems",
    "scale",
    "sdpa",
    "selective_scan",
    "softmax",
    "ssd_scan",
    "unpacked",
    "widened",
    "without_mask",
]
