"""Small shapes of every architecture of models_db, each beside a reference module of that shape.

What is given to ``ARCHS[arch]`` and what torch runs: the inputs at a batch and the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from reference import concat_nets as cat
from reference import convnets as conv
from reference.bert import Bert
from reference.detection import SSD300, MaskRCNN, RetinaNet
from reference.efficientdet import EfficientDetD0
from reference.efficientdet import loss as detection_loss
from reference.mnist import MnistNet
from reference.resnet import ResNet
from reference.sequence import GNMT, TransformerXL, WaveGlow
from reference.small import NeuMF, UNet
from reference.transformer import Gpt2, Llama
from reference.vit import ViT
from torch import Tensor, nn
from torch.nn import functional as F

Inputs = Callable[[int], tuple[Any, ...]]


@dataclass(frozen=True)
class Pair:
    """A builder's settings and the module that they describe; ``loss`` of the module's output.

    ``aside_bytes``: kept a sample by the builder's training step, not by the module's forward and
    this loss (memory that goes on to the next step), less what the module alone keeps.
    ``deep``: of so many layers that one trace must do, at one batch.
    ``drops_output``: what the module returns goes into losses of its own, which are no part of it.
    """

    arch: str
    config: dict[str, Any]
    make: Callable[[], nn.Module]
    inputs: Inputs
    loss: Callable[[Any], Tensor] | None
    aside_bytes: float = 0.0
    drops_output: bool = False
    deep: bool = False


def classify(output: Tensor) -> Tensor:
    return F.cross_entropy(output, torch.zeros(output.shape[0], dtype=torch.long))


def language(output: Tensor) -> Tensor:
    # the copy stands for the shift by one position, which keeps every row here
    rows = output.clone().view(-1, output.shape[-1])
    return F.cross_entropy(rows, torch.zeros(rows.shape[0], dtype=torch.long))


def every_token(output: Tensor) -> Tensor:
    rows = output.flatten(0, -2)
    return F.cross_entropy(rows, torch.zeros(rows.shape[0], dtype=torch.long))


def _all(outputs: Any) -> Tensor:
    return torch.stack([y.sum() for y in outputs]).sum()


def _boxes(outputs: tuple[Tensor, Tensor]) -> Tensor:
    boxes, scores = outputs
    labels = torch.zeros(scores.shape[0], scores.shape[2], dtype=torch.int64)
    return F.cross_entropy(scores, labels) + boxes.sum()


def _segments(output: Tensor) -> Tensor:
    return F.cross_entropy(output, torch.zeros(output[:, 0].shape, dtype=torch.int64))


def _clicks(output: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output, torch.ones_like(output))


def ids(length: int) -> Inputs:
    return lambda b: (torch.zeros(b, length, dtype=torch.long),)


def images(size: int, channels: int = 3) -> Inputs:
    return lambda b: (torch.zeros(b, channels, size, size),)


def _bert(b: int) -> tuple[Tensor, ...]:
    tokens = torch.zeros(b, 32, dtype=torch.long)
    return tokens, tokens, tokens


def _regions(b: int) -> tuple[Tensor, ...]:
    return (
        torch.zeros(b, 3, 128, 160), torch.zeros(16 * b, 256, 7, 7), torch.zeros(4 * b, 256, 14, 14)
    )  # fmt: skip


_GPT: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32}
_LLAMA: dict[str, Any] = {
    **_GPT, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm", "bias": False,
    "fused_qkv": False, "tied": False, "kv_heads": 2, "ffn": 160,
}  # fmt: skip
_BERT: dict[str, Any] = {
    "layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32, "max_positions": 64,
}  # fmt: skip
_R50 = (3, 4, 6, 3)
_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
_SMALL = {"image": 64, "classes": 10}

#: Compared in all: parameters, work and traffic of both ways, saved storages.
BUILDERS: dict[str, Pair] = {
    "mnist": Pair("mnist_cnn", {}, MnistNet, images(28, 1),
                  lambda o: F.nll_loss(o, torch.zeros(o.shape[0], dtype=torch.long))),
    "resnet-18": Pair("resnet", {"depth": 18, **_SMALL},
                      lambda: ResNet((2, 2, 2, 2), False, 10), images(64), classify),
    "resnet-50": Pair("resnet", {"depth": 50, **_SMALL}, lambda: ResNet(_R50, True, 10),
                      images(64), classify),
    "vit": Pair("vit", {"layers": 2, "hidden": 64, "heads": 4, "image": 32, "patch": 8,
                        "classes": 10},
                lambda: ViT(2, 64, 4, 256, image=32, patch=8, classes=10), images(32), classify),
    "bert": Pair("bert", {**_BERT, "attention": "eager"},
                 lambda: Bert(2, 64, 4, 256, vocab=100, positions=64), _bert, classify),
    "bert-sdpa": Pair("bert", {**_BERT, "attention": "sdpa"},
                      lambda: Bert(2, 64, 4, 256, vocab=100, positions=64, sdpa=True), _bert,
                      classify),
    "gpt2": Pair("transformer", {**_GPT, "dropout": 0.1}, lambda: Gpt2(2, 64, 4, 100, 32),
                 ids(32), language),
    "gpt2-math": Pair("transformer", {**_GPT, "dropout": 0.1, "attention": "math"},
                      lambda: Gpt2(2, 64, 4, 100, 32, flash=False), ids(32), language),
}  # fmt: skip

#: Compared in parameters, forward work and saved storages.
ZOO: dict[str, Pair] = {
    "llama": Pair("transformer", _LLAMA, lambda: Llama(2, 64, 4, 2, 160, 100), ids(32), language),
    "resnext": Pair("resnext", {"depth": 50, "groups": 32, "width_per_group": 4, **_SMALL},
                    lambda: conv.ResNeXt(_R50, 32, 4, classes=10), images(64), classify),
    "wide-resnet": Pair("resnext", {"depth": 50, "width_per_group": 128, **_SMALL},
                        lambda: conv.ResNeXt(_R50, 1, 128, classes=10), images(64), classify),
    "efficientnet-v2": Pair(
        "inverted_residual", {"family": "efficientnet_v2", **_SMALL},
        lambda: conv.InvertedNet(conv.EFFICIENT_V2, 1, 1, nn.SiLU, "narrow", 10, stem=24, fused=3),
        images(64), classify, deep=True,
    ),
    "vgg": Pair("vgg", {"depth": 11, **_SMALL}, lambda: conv.VGG(_VGG11, 64, 10), images(64),
                classify),
    "alexnet": Pair("alexnet", {"image": 99, "classes": 10}, lambda: conv.AlexNet(99, 10),
                    images(99), classify),
    "densenet": Pair("densenet", {"depth": 121, **_SMALL},
                     lambda: cat.DenseNet((6, 12, 24, 16), classes=10), images(64), classify,
                     deep=True),
    "inception": Pair("inception_v3", {"image": 107, "classes": 10}, lambda: cat.InceptionV3(10),
                      images(107), classify, deep=True),
    "ssd300": Pair("ssd300", {}, SSD300, images(300), _boxes, deep=True),
    "mask-rcnn": Pair("rcnn", {"height": 128, "width": 160, "regions": 16, "positives": 4},
                      lambda: MaskRCNN(81), _regions, _all, drops_output=True),
    "retinanet": Pair("retinanet", {"height": 128, "width": 160}, lambda: RetinaNet(80),
                      lambda b: (torch.zeros(b, 3, 128, 160),), _all,
                      drops_output=True,
                      aside_bytes=8 * 4.0 * 80 * 9 * 428),  # of the focal loss, on 428 points
    "efficientdet": Pair("efficientdet", {"image": 128}, EfficientDetD0, images(128),
                         lambda out: detection_loss(*out), drops_output=True),
    "waveglow": Pair("waveglow", {"segment": 1024, "layers": 3, "channels": 64, "flows": 5},
                     lambda: WaveGlow(flows=5, layers=3, channels=64),
                     lambda b: (torch.zeros(b, 80, 5), torch.zeros(b, 1024)), lambda o: o),
    "gnmt": Pair(
        "gnmt", {"hidden": 64, "vocab": 300, "seq_len": 48}, lambda: GNMT(300, 64, 4, 0.2),
        lambda b: ids(48)(b) * 2, every_token,
        # nine layers' tanh of the cell, which the CPU's fused LSTM makes again, less a copy of the
        # attended layer's output that cuDNN has no need of
        aside_bytes=(9 - 1) * 4.0 * 48 * 64,
    ),
    "transformer-xl": Pair(
        "transformer_xl",
        {"layers": 3, "hidden": 64, "heads": 4, "head_dim": 16, "ffn": 128, "vocab": 500,
         "adaptive": False, "seq_len": 24, "memory": 24, "dropout": 0.1},
        lambda: TransformerXL(3, 64, 4, 16, 128, 500, 0.1),
        lambda b: (*ids(24)(b), torch.zeros(b, 3, 24, 64)), every_token,
        aside_bytes=4.0 * 24 * 64 * 4,  # the new memory is kept outside autograd
    ),
    "unet": Pair("unet", {"image": 92, "width": 8, "depth": 2}, lambda: UNet(8, 2), images(92, 1),
                 _segments),
    "neumf": Pair("neumf", {"users": 50, "items": 40}, lambda: NeuMF(50, 40),
                  lambda b: (torch.zeros(b, dtype=torch.int64),) * 2, _clicks,
                  aside_bytes=2 * 8.0),  # the four look-ups share two index tensors
}  # fmt: skip
