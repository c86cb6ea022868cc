"""Number formats of a training run: what each tensor weighs and which units compute.

16a in ZeRO's count: half weights 2 + half gradients 2 + fp32 master, momentum, variance 12.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from simcore.base.errors import UnknownName
from simcore.base.registry import Registry
from simcore.hardware.spec import PeakName


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of one element of each kind, and the peak that matrix products run at.

    ``low_bytes``/``high_bytes`` are the two activation classes of ``workload.graph``.
    ``master_bytes`` is an fp32 copy of the weights kept with the optimizer state;
    ``cast_bytes`` the 16-bit copy that autocast makes of each matrix weight and keeps.
    ``main_grads``: gradients accumulate in buffers that stay from the first micro-step on and are
    what is reduced, without buckets beside them (Megatron-LM's ``param.main_grad``).
    ``fused_grad_sum``: the weight gradient's product adds to what earlier micro-steps left
    (Megatron-LM's gradient accumulation fusion) instead of a kernel of its own.
    """

    name: str
    param_bytes: int
    grad_bytes: int
    master_bytes: int
    low_bytes: int
    high_bytes: int
    cast_bytes: int
    peak: PeakName
    fallbacks: tuple[PeakName, ...]
    meaning: str
    main_grads: bool = False
    fused_grad_sum: bool = False


PRECISIONS: Registry[Precision] = Registry("precision")

_ALL = (
    Precision("fp32", 4, 4, 0, 4, 4, 0, "fp32", (),
              "fp32 everywhere, TF32 off (PyTorch's default for matmul since 1.12)"),
    Precision("tf32", 4, 4, 0, 4, 4, 0, "tf32", ("fp32",),
              "fp32 tensors, matrix products in TF32"),
    Precision("amp-fp16", 4, 4, 0, 2, 4, 2, "fp16", ("fp32",),
              "fp32 weights, autocast to fp16"),
    Precision("amp-bf16", 4, 4, 0, 2, 4, 2, "bf16", ("fp32",),
              "fp32 weights, autocast to bf16"),
    Precision("fp16", 2, 2, 4, 2, 2, 0, "fp16", ("fp32",),
              "fp16 weights and gradients, fp32 master copy in the optimizer (16 B a parameter)"),
    Precision("bf16", 2, 2, 4, 2, 2, 0, "bf16", ("fp32",),
              "bf16 weights and gradients, fp32 master copy in the optimizer (16 B a parameter)"),
    Precision("fp8", 2, 2, 4, 2, 2, 0, "fp8", ("bf16", "fp16"),
              "as bf16, matrix products in fp8 with their inputs quantised on the fly"),
    Precision("nvfp4", 2, 2, 4, 2, 2, 0, "fp4", ("fp8", "bf16"),
              "as bf16, matrix products in NVFP4 with their inputs quantised on the fly"),
)  # fmt: skip
for _precision in _ALL:
    PRECISIONS.register(_precision.name)(_precision)

MainGrads = Literal["weights", "fused", "fp32"]
MAIN_GRADS: tuple[MainGrads, ...] = ("weights", "fused", "fp32")


def with_main_grads(precision: Precision, main_grads: str) -> Precision:
    """The precision with gradients of the weights' width, or accumulated and reduced in fp32.

    Gradients that are fp32 anyway stay what they are. Raises UnknownName.
    """
    if main_grads not in MAIN_GRADS:
        raise UnknownName("main-grads", main_grads, MAIN_GRADS)
    if main_grads == "weights" or precision.grad_bytes == 4:
        return precision
    if main_grads == "fused":
        return replace(precision, fused_grad_sum=True)
    return replace(precision, grad_bytes=4, main_grads=True, fused_grad_sum=True)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """State and work of an update rule, per parameter.

    ``traffic_elems`` are fp32 elements read and written by a fused or foreach step besides the
    gradient; ``temporary_elems`` what foreach materialises; ``kernels`` launches a step for
    foreach (multi-tensor chunks folded), ``kernels_per_tensor`` for a Python loop.
    """

    name: str
    state_bytes: int
    traffic_elems: float
    temporary_elems: float
    kernels: int
    kernels_per_tensor: int
    meaning: str


OPTIMIZERS: Registry[Optimizer] = Registry("optimizer")

_ADAM = "momentum and variance in fp32 (Kingma & Ba 2015)"
for _optimizer in (
    # foreach Adam: lerp m (r m,g w m), addcmul v (r v,g w v), sqrt/div/add temporaries, addcdiv
    Optimizer("adamw", 8, 16.0, 1.0, 14, 14, f"AdamW: {_ADAM}, decoupled decay"),
    Optimizer("adam", 8, 15.0, 1.0, 13, 13, f"Adam: {_ADAM}"),
    Optimizer("sgd", 4, 6.0, 0.0, 3, 3, "SGD with momentum: one fp32 buffer"),
    Optimizer("sgd-plain", 0, 2.0, 0.0, 1, 1, "SGD without momentum: no state"),
):
    OPTIMIZERS.register(_optimizer.name)(_optimizer)

OffloadTarget = Literal["none", "cpu", "cpu-far", "nvme"]
