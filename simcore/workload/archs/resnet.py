"""ResNet (He et al. 2015) as torchvision builds it: stride in the 3x3 of the bottleneck ("v1.5").

In-place ReLU overwrites BatchNorm's output. This one storage is saved for ReLU, and it is also the
input of the next convolution and of the pooling: it is counted at the ReLU alone.
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.convnets import check_layout, resnext
from simcore.workload.graph import Block, Op, Param, Workload
from simcore.workload.saved import Saved

#: Blocks per stage, and whether they are bottlenecks, by depth (He et al. 2015, table 1).
_DEPTHS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
_STEM = 64
_EXPANSION = 4


def _out(hw: int, kernel: int, stride: int) -> int:
    return (hw + 2 * (kernel // 2) - kernel) // stride + 1


def _conv_norm(
    name: str,
    hw: int,
    cin: int,
    cout: int,
    kernel: int,
    stride: int,
    *,
    relu: bool,
    image: bool = False,
    channels_last: bool,
) -> tuple[int, list[Op], list[Param]]:
    """Convolution, BatchNorm and perhaps ReLU: height of the result, ops, parameters."""
    out = _out(hw, kernel, stride)
    elems = cout * out * out
    body = [
        ops.conv2d(
            f"{name}.conv", (hw, hw), (out, out), cin, cout, kernel,
            save_input=image, input_grad=not image, channels_last=channels_last,
        ),
        ops.batch_norm(
            f"{name}.bn", elems, cout, counter=True, channels_first=not channels_last
        ),
    ]  # fmt: skip
    if relu:
        body.append(ops.activation(f"{name}.relu", elems, saves="output"))
    params = [
        Param(f"{name}.conv.weight", cin * cout * kernel * kernel),
        Param(f"{name}.bn.weight", cout),
        Param(f"{name}.bn.bias", cout),
    ]
    return out, body, params


def _unit(
    name: str, hw: int, cin: int, width: int, stride: int, bottleneck: bool, last: bool
) -> tuple[int, int, Block]:
    """One residual unit: height and channels of its result, and its block."""
    cout = width * (_EXPANSION if bottleneck else 1)
    if bottleneck:
        shapes = [(cin, width, 1, 1), (width, width, 3, stride), (width, cout, 1, 1)]
    else:
        shapes = [(cin, width, 3, stride), (width, width, 3, 1)]
    body: list[Op] = []
    params: list[Param] = []
    out = hw
    for i, (c0, c1, kernel, step) in enumerate(shapes, 1):
        relu = i < len(shapes)
        out, part, own = _conv_norm(
            f"{name}.{i}", out, c0, c1, kernel, step, relu=relu, channels_last=last
        )
        body, params = body + part, params + own
    if stride != 1 or cin != cout:
        _, part, own = _conv_norm(
            f"{name}.downsample", hw, cin, cout, 1, stride, relu=False, channels_last=last
        )
        body, params = body + part, params + own
    elems_in, elems = cin * hw * hw, cout * out * out
    body += [
        ops.binary(f"{name}.residual", elems, grads=0),
        ops.activation(f"{name}.relu", elems, saves="output"),
        ops.accumulate(f"{name}.fork", elems_in),
    ]
    block = Block(
        name=name, ops=tuple(body), params=tuple(params), boundary=Saved(low=elems_in),
        recomputable=True,
    )  # fmt: skip
    return out, cout, block


@ARCHS.register("resnet")
def build(
    *, name: str, sample_unit: str = "image", depth: int, image: int = 224, classes: int = 1000,
    layout: str = "nchw", fused_norm: bool = False, xla: bool = False,
) -> Workload:  # fmt: skip
    """ResNet of ``depth`` 18, 34, 50, 101 or 152 on square RGB images of ``image`` pixels.

    ``layout``, ``fused_norm`` and ``xla``: as in ``convnets``, which builds the network with the
    latter two; these need bottlenecks, that is, depth 50 or more.
    """
    if fused_norm or xla:
        return resnext(
            name=name, sample_unit=sample_unit, depth=depth, image=image, classes=classes,
            layout=layout, fused_norm=fused_norm, xla=xla,
        )  # fmt: skip
    if depth not in _DEPTHS:
        raise ValueError(f"depth {depth} is none of {', '.join(map(str, _DEPTHS))}")
    layers, bottleneck = _DEPTHS[depth]
    last = not check_layout(layout)
    hw, body, params = _conv_norm(
        "stem", image, 3, _STEM, 7, 2, relu=True, image=True, channels_last=last
    )
    pooled = _out(hw, 3, 2)
    pool_elems = _STEM * pooled * pooled
    body += [
        ops.max_pool2d("max_pool", _STEM * hw * hw, pool_elems, channels_last=last),
        # The pooled map is the input that the first unit's convolutions save; no ReLU counts it.
        ops.keep("max_pool.out", pool_elems),
    ]
    blocks, order = [Block(name="stem", ops=tuple(body), params=tuple(params))], [0]
    hw, channels = pooled, _STEM
    for stage, count in enumerate(layers):
        for i in range(min(count, 2)):  # every unit after a stage's first is the same
            stride = 2 if stage and not i else 1
            unit_name = f"layer{stage + 1}.{'rest' if i else '0'}"
            hw, channels, block = _unit(
                unit_name, hw, channels, _STEM << stage, stride, bottleneck, last
            )
            blocks.append(block)
            order += [len(blocks) - 1] * (count - 1 if i else 1)
    head = (
        ops.reduction("avg_pool", channels * hw * hw, out=channels, high=False),
        ops.linear("fc", 1, channels, classes, bias=True),
        ops.cross_entropy("loss", 1, classes),
        ops.loss_seed(),
    )
    fc = (Param("fc.weight", channels * classes), Param("fc.bias", classes))
    blocks.append(Block(name="head", ops=head, params=fc))
    order.append(len(blocks) - 1)
    norms = [p.numel for i in order for p in blocks[i].params if p.name.endswith("bn.weight")]
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks),
        order=tuple(order),
        # running mean, running variance, count of batches
        buffers_numel=sum(2 * n + 1 for n in norms),
        n_buffers=3 * len(norms),
        input_bytes=FP32_BYTES * 3 * image * image + 8,
    )
