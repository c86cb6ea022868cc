"""What the PyTorch of a row's time makes of a model, beyond what its entry says.

NVIDIA's examples, which most rows ran, print no version in their tables: these are older than all
that is told here. Whose logs tell a version is asked by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simcore.workload.models import Scalar

Version = tuple[int, int]

#: cuBLAS 11, which takes unaligned rows to matrix units too (NVIDIA, Matrix Multiplication
#: Background, Tensor Core Requirements): NGC's containers have CUDA 11 since 20.06, PyTorch 1.6.
CUBLAS_11: Version = (1, 6)
#: cuDNN 8, which comes with it: before, no algorithm had dilation and matrix units at once
#: (NVIDIA's A. Naruse in chainer pull request 4064; 7.6.5 still took some dilations to vector
#: units, NVIDIA/TensorRT issue 522).
CUDNN_8: Version = CUBLAS_11
#: What a TorchScript function keeps is released once its backward ran (pytorch/pytorch pull request
#: 42994 of August 2020); before it lived as long as the graph, which a training loop holds by its
#: last loss until the next forward is through.
SCRIPT_RELEASED: Version = (1, 7)
#: ``clip_grad_norm_`` asks the device nothing (pytorch/pytorch pull request 61042, July 2021): in
#: 1.10, but not in NGC's 21.07 and before, which say 1.10 too.
CLIPS_ASIDE: Version = (1, 11)
#: cuDNN's kernels compute all convolutions of one channel a group that they can (pytorch/pytorch
#: pull request 58749, merged in October 2021; "improvement of depthwise convolution speed in cudnn
#: between 7.6 and 8.2").
CUDNN_DEPTHWISE: Version = (1, 11)
#: One-dimensional convolutions make their input contiguous below autograd, which keeps the input
#: itself (ATen ``Convolution.cpp``).
CONTIGUOUS_BELOW: Version = (1, 11)
#: A linear layer's bias is added by cuBLASLt's epilogue (pytorch/pytorch pull request 72148), of
#: three dimensions too (72728).
BIAS_FUSED: Version = (1, 12)
#: Lambda's benchmark of September 2022 and later (containers from 22.09 on) runs a fork of NVIDIA's
#: examples of that time, whose BERT trains with ``bias_gelu_training``: a bias added, then torch's
#: GELU (pytorch/README.md there; BERT/modeling.py, ``run_squad.py``).
BERT_UNSCRIPTED: Version = (1, 13)


@dataclass(frozen=True, slots=True)
class Era:
    """A setting that builders of ``archs`` take where PyTorch is older than ``until``.

    ``told``: only where the row tells its version. ``since``: where it is not older.
    """

    archs: tuple[str, ...]
    setting: tuple[str, Scalar]
    until: Version | None = None
    since: Version | None = None
    told: bool = False

    def holds(self, version: Version | None) -> bool:
        """Whether a row of this version (None: none is told) is of the era."""
        if version is None and (self.told or self.since):
            return False
        at = version or (1, 0)
        return (self.until is None or at < self.until) and (self.since is None or at >= self.since)


ERAS = (
    Era(
        ("inverted_residual", "efficientdet"),
        ("depthwise_kernels", "native"),
        until=CUDNN_DEPTHWISE,
    ),
    Era(("bert", "gnmt", "transformer_xl"), ("bias_add", "separate"), until=BIAS_FUSED),
    # a head over a vocabulary that is not padded
    Era(("transformer_xl",), ("unaligned_products", "vector_units"), until=CUBLAS_11, told=True),
    Era(("waveglow",), ("dilated_convolutions", "vector_units"), until=CUDNN_8, told=True),
    Era(("bert", "waveglow"), ("scripted_activations", "held"), until=SCRIPT_RELEASED, told=True),
    Era(("bert",), ("gelu", "separate_bias"), since=BERT_UNSCRIPTED),
    Era(("waveglow",), ("conditioning_copies", False), since=CONTIGUOUS_BELOW),
)
#: Settings that change an entry's own and leave others' alone.
_IN_PLACE_OF: Mapping[str, Scalar] = {"gelu": "scripted", "conditioning_copies": True}


def era_settings(
    arch: str, config: Mapping[str, Scalar], version: Version | None
) -> dict[str, Scalar]:
    """Settings of an entry of this architecture, as a row of NVIDIA's examples has them."""
    found = dict(e.setting for e in ERAS if arch in e.archs and e.holds(version))
    return {
        key: value
        for key, value in found.items()
        if key not in _IN_PLACE_OF or config.get(key) == _IN_PLACE_OF[key]
    }


def era_optimizer(optimizer: str, version: Version | None) -> str:
    """The optimizer that a loop of this name was, with the row's PyTorch."""
    if optimizer == "bert-adam" and version is not None and version < CLIPS_ASIDE:
        return "bert-adam-asking"
    return optimizer
