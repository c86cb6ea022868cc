"""The convolutional net of the PyTorch MNIST example: two convolutions, two linear layers."""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.graph import Block, Op, Param, Workload

_IMAGE = 28
_WIDTHS = (32, 64)
_HIDDEN = 128
_CLASSES = 10


def _relu(name: str, elems: float) -> Op:
    return ops.activation(name, elems, saves="output")


@ARCHS.register("mnist_cnn")
def build(*, name: str, sample_unit: str = "image") -> Workload:
    """conv 3x3 (1 to 32), conv 3x3 (32 to 64), max pool, two dropouts, linear 9216-128-10.

    Source: github.com/pytorch/examples, mnist/main.py; 1,199,882 parameters. ReLU is not in place
    there: a layer's own output is freed, and ReLU's output is saved once for both neighbours.
    """
    first, second = _WIDTHS
    hw1, hw2, hw3 = _IMAGE - 2, _IMAGE - 4, (_IMAGE - 4) // 2
    flat = second * hw3 * hw3
    body = (
        ops.conv2d("conv1", (_IMAGE, _IMAGE), (hw1, hw1), 1, first, 3, input_grad=False, bias=True),
        _relu("relu1", first * hw1 * hw1),
        ops.conv2d("conv2", (hw1, hw1), (hw2, hw2), first, second, 3, save_input=False, bias=True),
        _relu("relu2", second * hw2 * hw2),
        ops.max_pool2d("max_pool", second * hw2 * hw2, flat),
        ops.dropout("dropout1", flat),
        ops.linear("fc1", 1, flat, _HIDDEN, bias=True),
        _relu("relu3", _HIDDEN),
        ops.dropout("dropout2", _HIDDEN),
        ops.linear("fc2", 1, _HIDDEN, _CLASSES, bias=True),
        ops.cross_entropy("loss", 1, _CLASSES),
        ops.loss_seed(),
    )
    params = (
        Param("conv1.weight", first * 9),
        Param("conv1.bias", first),
        Param("conv2.weight", first * second * 9),
        Param("conv2.bias", second),
        Param("fc1.weight", flat * _HIDDEN),
        Param("fc1.bias", _HIDDEN),
        Param("fc2.weight", _HIDDEN * _CLASSES),
        Param("fc2.bias", _CLASSES),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(Block(name="net", ops=body, params=params),),
        order=(0,),
        input_bytes=FP32_BYTES * _IMAGE * _IMAGE + 8,
    )
