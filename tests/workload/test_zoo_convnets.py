"""Image classifiers beyond the plain ResNet against published figures and torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from reference import concat_nets as cat
from reference import convnets as ref
from reference import measure
from torch import nn
from torch.nn import functional as F

from simcore.step.kernels import DEPTHWISE_LAST, KINDS, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs.layers import LayerList
from simcore.workload.graph import CONV_KINDS, NATIVE_NORM, NONE, Block, Kernel, Workload
from simcore.workload.models import MODELS

resnext = LayerList("resnet")
inverted_residual, vgg, alexnet = map(LayerList, ("inverted_residual", "vgg", "alexnet"))
densenet, inception_v3 = map(LayerList, ("densenet", "inception_v3"))
_R50, _R101 = (3, 4, 6, 3), (3, 4, 23, 3)
_VGG16 = ((64, 64), (128, 128), (256,) * 3, (512,) * 3, (512,) * 3)
_VGG19 = ((64, 64), (128, 128), (256,) * 4, (512,) * 4, (512,) * 4)
_VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))


def _efficient(width: float, depth: float, se: str) -> Callable[[], nn.Module]:
    return lambda: ref.InvertedNet(ref.EFFICIENT, width, depth, nn.SiLU, se)


def _efficient_v2(classes: int = 1000) -> nn.Module:
    return ref.InvertedNet(ref.EFFICIENT_V2, 1, 1, nn.SiLU, "narrow", classes, stem=24, fused=3)


#: builder's figures at its native size: torch module, published parameters, image
_NETS: dict[str, tuple[Callable[..., Workload], Callable[[], nn.Module], int, int]] = {
    # torchvision's num_params
    "resnext50_32x4d": (
        lambda **k: resnext(name="x", depth=50, groups=32, width_per_group=4, **k),
        lambda: ref.ResNeXt(_R50, 32, 4), 25_028_904, 224,
    ),
    "resnext101_32x8d": (
        lambda **k: resnext(name="x", depth=101, groups=32, width_per_group=8, **k),
        lambda: ref.ResNeXt(_R101, 32, 8), 88_791_336, 224,
    ),
    "wide_resnet50_2": (
        lambda **k: resnext(name="x", depth=50, width_per_group=128, **k),
        lambda: ref.ResNeXt(_R50, 1, 128), 68_883_240, 224,
    ),
    "efficientnet_b0": (
        lambda **k: inverted_residual(name="x", **k), _efficient(1, 1, "narrow"), 5_288_548, 224,
    ),
    "efficientnet_b4": (
        lambda **k: inverted_residual(name="x", width=1.4, depth=1.8, **k),
        _efficient(1.4, 1.8, "narrow"), 19_341_616, 380,
    ),
    "efficientnet_v2_s": (
        lambda **k: inverted_residual(name="x", family="efficientnet_v2", **k), _efficient_v2,
        21_458_488, 384,
    ),
    "mobilenet_v2": (
        lambda **k: inverted_residual(name="x", family="mobilenet_v2", se="none", **k),
        lambda: ref.InvertedNet(ref.MOBILE, 1, 1, ref.InplaceReLU, "none"), 3_504_872, 224,
    ),
    "vgg16": (
        lambda **k: vgg(name="x", depth=16, **k), lambda: ref.VGG(_VGG16, 224), 138_357_544, 224,
    ),
    "vgg11": (
        lambda **k: vgg(name="x", depth=11, **k), lambda: ref.VGG(_VGG11, 224), 132_863_336, 224,
    ),
    "alexnet": (lambda **k: alexnet(name="x", **k), ref.AlexNet, 61_100_840, 224),
    "vgg19_bn": (
        lambda **k: vgg(name="x", depth=19, batch_norm=True, **k),
        lambda: ref.VGG(_VGG19, 224, batch_norm=True), 143_678_248, 224,
    ),
    "densenet121": (
        lambda **k: densenet(name="x", depth=121, **k),
        lambda: cat.DenseNet((6, 12, 24, 16)), 7_978_856, 224,
    ),
    "densenet161": (
        lambda **k: densenet(name="x", depth=161, **k),
        lambda: cat.DenseNet((6, 12, 36, 24), 48, 96), 28_681_000, 224,
    ),
    # torchvision's 27,161,264 less the auxiliary head's 3,326,696
    "inception_v3": (
        lambda **k: inception_v3(name="x", **k), cat.InceptionV3, 23_834_568, 299,
    ),
    # millions printed by NVIDIA's ConvNets code
    "resnext101_32x4d": (
        lambda **k: resnext(name="x", depth=101, groups=32, width_per_group=4, **k),
        lambda: ref.ResNeXt(_R101, 32, 4), 44_177_704, 224,
    ),
    "se_resnext101_32x4d_16": (
        lambda **k: resnext(
            name="x", depth=101, groups=32, width_per_group=4, se=True, se_width=16, **k
        ),
        lambda: ref.ResNeXt(_R101, 32, 4, True, 16), 45_251_128, 224,
    ),
    "efficientnet_widese_b0": (
        lambda **k: inverted_residual(name="x", se="wide", **k), _efficient(1, 1, "wide"),
        8_423_848, 224,
    ),
}  # fmt: skip


@pytest.mark.parametrize("net", _NETS)
def test_parameters_and_flop(net: str) -> None:
    make, module, published, image = _NETS[net]
    workload = make(image=image)
    assert workload.trainable_numel == published
    assert measure.built_param_sizes(workload) == measure.param_sizes(module)
    x = torch.empty(1, 3, image, image, device="meta")
    assert workload.forward_flop == pytest.approx(measure.forward_flop(module, x), rel=1e-9)


_SMALL: dict[str, tuple[Callable[[], Workload], Callable[[], nn.Module], int]] = {
    "resnext": (
        lambda: resnext(name="x", depth=50, groups=32, width_per_group=4, image=64, classes=10),
        lambda: ref.ResNeXt(_R50, 32, 4, classes=10), 64,
    ),
    "se-resnet": (
        lambda: resnext(name="x", depth=50, se=True, image=64, classes=10),
        lambda: ref.ResNeXt(_R50, 1, 64, True, classes=10), 64,
    ),
    "efficientnet": (
        lambda: inverted_residual(name="x", image=64, classes=10),
        lambda: ref.InvertedNet(ref.EFFICIENT, 1, 1, nn.SiLU, "narrow", 10), 64,
    ),
    "efficientnet_v2": (
        lambda: inverted_residual(name="x", family="efficientnet_v2", image=64, classes=10),
        lambda: _efficient_v2(10), 64,
    ),
    "mobilenet": (
        lambda: inverted_residual(
            name="x", family="mobilenet_v2", se="none", image=64, classes=10
        ),
        lambda: ref.InvertedNet(ref.MOBILE, 1, 1, ref.InplaceReLU, "none", 10), 64,
    ),
    "vgg": (
        lambda: vgg(name="x", depth=11, image=64, classes=10), lambda: ref.VGG(_VGG11, 64, 10), 64,
    ),
    "vgg-bn": (
        lambda: vgg(name="x", depth=11, image=64, classes=10, batch_norm=True),
        lambda: ref.VGG(_VGG11, 64, 10, batch_norm=True), 64,
    ),
    "densenet": (
        lambda: densenet(name="x", depth=121, image=64, classes=10),
        lambda: cat.DenseNet((6, 12, 24, 16), classes=10), 64,
    ),
    "inception": (
        lambda: inception_v3(name="x", image=107, classes=10), lambda: cat.InceptionV3(10), 107,
    ),
    "alexnet": (
        lambda: alexnet(name="x", image=99, classes=10), lambda: ref.AlexNet(99, 10), 99,
    ),
}  # fmt: skip


@pytest.mark.parametrize("net", _SMALL)
def test_saved_storages_and_launches(net: str) -> None:
    make, module, image = _SMALL[net]
    workload, model = make(), module()
    x, labels = torch.randn(2, 3, image, image), torch.tensor([1, 2])

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), labels)

    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    statistics = sum(2 * 4 * n.num_features for n in norms)  # a batch, whatever its size
    truth = measure.saved_bytes(model, step) - statistics
    assert measure.built_saved_bytes(workload) * 2 == pytest.approx(truth, rel=2e-3)
    forward, backward = measure.dispatched(model, step)
    ours = measure.built_launches(workload)
    assert ours[0] == pytest.approx(forward.total(), rel=0.02)
    assert ours[1] == pytest.approx(backward.total(), rel=0.05)


def test_names_of_tables_that_have_no_such_row_are_refused() -> None:
    with pytest.raises(ValueError, match="depth 13 is none of 11, 16, 19"):
        vgg(name="x", depth=13)
    with pytest.raises(ValueError, match="layout 'nchw16' is none of nhwc, nchw"):
        vgg(name="x", layout="nchw16")
    with pytest.raises(ValueError, match="need bottlenecks"):
        resnext(name="x", depth=18, groups=32)


def test_an_image_of_which_nothing_is_left_is_refused_as_torch_refuses_it() -> None:
    assert vgg(name="x", image=32).forward_flop > 0
    with pytest.raises(ValueError, match="reads 1 x 1 points"):
        vgg(name="x", image=16)
    with pytest.raises(RuntimeError):
        ref.VGG(_VGG16, 32)(torch.empty(1, 3, 16, 16))


def _kernels(workload: Workload) -> list[Kernel]:
    return [k for b in workload.instances() for o in b.ops for k in (*o.fwd, *o.bwd)]


def test_channels_first_is_told_by_what_convolutions_are_given() -> None:
    """Forward the input, both gradients the input and the output, each of its size."""
    last, first = (resnext(name="x", depth=50, layout=at) for at in ("nhwc", "nchw"))
    assert not any(k.relaid for k in _kernels(last))
    bare, there = (
        [
            replace(k, relaid=0.0, planes=(), blocks=NONE, indexed=0.0)
            for k in _kernels(x)
            if k.kind != NATIVE_NORM
        ]
        for x in (first, last)
    )  # a pool's threads are counted by layout, and norms of the two have other kernels
    assert bare == there
    # torch's own 53 convolutions: elements of input and output a sample
    net = ref.ResNeXt(_R50, 1, 64).to("meta")
    seen: list[tuple[int, int]] = []
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, x, y: seen.append((x[0].numel(), y.numel())))
    net(torch.empty(1, 3, 224, 224, device="meta"))
    assert len(seen) == 53
    x, y = (sum(s) for s in zip(*seen, strict=True))
    image = seen[0]  # has no gradient
    expected = 3 * x + 2 * y - sum(image)
    assert sum(k.relaid for k in _kernels(first)) == pytest.approx(expected)
    assert first.saved == last.saved


@pytest.mark.parametrize(
    ("width", "planes", "pointwise_tf32"),
    [(2, {56.0**2: 8, 28.0**2: 8}, "planes"), (2, {56.0**2: 8, 28.0**2: 8}, "transposed"),
     (4, {56.0**2: 8, 28.0**2: 8, 14.0**2: 12}, "planes"), (4, {}, "transposed")],
)  # fmt: skip
def test_products_of_planes_are_those_of_aligned_ones(
    width: int, planes: dict[float, int], pointwise_tf32: str
) -> None:
    """Of ResNet-50's 33 at stride 1 all but those of 7 x 7 pixels, in 16 bit not of 14 x 14."""
    first, last = (
        resnext(name="x", depth=50, layout=at, pointwise_tf32=pointwise_tf32)
        for at in ("nchw", "nhwc")
    )
    passes = [k for k in _kernels(first) if width in k.planes]
    assert {k.kind for k in passes} <= {"conv_pointwise"}
    rows = Counter(k.m.per_sample for k in passes if k.m.per_sample)
    assert rows == {pixels: 2 * n for pixels, n in planes.items()}
    assert len(passes) == 3 * sum(planes.values())
    assert not any(k.planes for k in _kernels(last))


def test_a_batch_norm_of_channels_first_has_a_block_a_channel() -> None:
    net = ref.ResNeXt(_R50, 1, 64)
    norms = [m.num_features for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    made = _kernels(resnext(name="x", depth=50))
    blocks = [k.blocks.fixed for k in made if k.kind == "batch_norm"]
    assert sorted(blocks) == sorted(2 * norms)
    for options in ({"layout": "nhwc"}, {"xla": True}, {"fused_norm": True}):
        made = _kernels(resnext(name="x", depth=50, **options))
        assert not any(k.blocks.fixed for k in made if k.kind == "batch_norm")


def test_fused_norms_are_channels_last() -> None:
    assert not any(k.relaid for k in _kernels(resnext(name="x", depth=50, fused_norm=True)))


@pytest.mark.parametrize(
    ("model", "flop"),
    [
        # Sandler et al. 2018, table 2: each block's 3x3, 2 x 9 FLOP an output
        ("mobilenet-v2", 18.0 * (
            112**2 * 32 + 56**2 * (96 + 144) + 28**2 * (144 + 192 * 2) + 14**2 * (
                192 + 384 * 4 + 576 * 2) + 7**2 * (576 + 960 * 3)
        )),
        ("resnext-50-32x4d", 0.0),  # 4 channels a group
    ],
)  # fmt: skip
def test_one_channel_a_group_is_a_kind_of_its_own(model: str, flop: float) -> None:
    forward = [k for b in MODELS[model].build().instances() for o in b.ops for k in o.fwd]
    assert sum(k.flop for k in forward if k.kind == "conv_depthwise") == pytest.approx(flop)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: resnext(name="x", depth=42), "depth 42"),
        (lambda: resnext(name="x", depth=50, layout="chwn"), "layout 'chwn'"),
        (lambda: inverted_residual(name="x", family="nasnet"), "family 'nasnet'"),
        (lambda: inverted_residual(name="x", se="broad"), "se 'broad'"),
        (lambda: vgg(name="x", depth=3), "depth 3"),
    ],
)
def test_bad_settings_are_refused(make: Callable[[], Workload], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        ("vgg-16", 0.99, 1.0),  # 3x3 at stride 1 throughout
        # the middle of 13 of 16 bottlenecks, each 2 x 56^2 x 64^2 x 9 FLOP, of 8.174 GFLOP
        ("resnet-50", 0.367, 0.368),
        ("resnext-50-32x4d", 0.0, 0.0),  # 3x3 in groups, 1x1
        ("mobilenet-v2", 0.0, 0.0),  # 1x1, depthwise, and 3x3 at stride 2
        ("densenet-161", 0.30, 0.60),
    ],
)
def test_convolutions_that_winograd_may_compute(model: str, least: float, most: float) -> None:
    workload = MODELS[model].build()
    flop = {
        kind: sum(
            k.flop for b in workload.instances() for op in b.ops for k in op.fwd if k.kind == kind
        )
        for kind in CONV_KINDS
    }
    assert least <= flop["conv_winograd"] / sum(flop.values()) <= most
    assert workload.conv_frac > 0.85


def _moved(block: Block, side: str, kinds: tuple[str, ...]) -> float:
    kernels = (k for op in block.ops for k in getattr(op, side))
    return sum(k.low for k in kernels if k.kind in kinds)


def test_xla_leaves_sums_and_one_pass_between_convolutions() -> None:
    """The second block of B0's second stage, by hand: 24 channels, 144 inside, 56 x 56.

    Forward: each norm sums over its input and is applied with all that follows it, 3 passes; the
    squeezed mean reads once more, the residual once. Backward: each norm's 5 passes hold the
    activations' and the gate's; the gate's own gradient is one sum over two tensors. Kept: the
    inputs of convolutions and of norms alone.
    """
    workload = inverted_residual(name="x", xla=True)
    block = [b for b in workload.instances() if b.name == "stage2"][1]
    inner, outer = 144 * 56**2, 24 * 56**2
    small = 2 * 144 + 6  # squeezed mean, what is expanded, the gate
    assert block.saved.low == 4 * inner + 2 * outer + small
    assert block.saved.raw_bytes == block.saved.high == 0
    passes = ("batch_norm", "elementwise", "reduction")
    forward = _moved(block, "fwd", passes)
    bias = 2 * (6 + 144)  # of the squeezed layers
    assert forward == 2 * 3 * inner + 3 * outer + (inner + 144) + outer + bias
    backward = _moved(block, "bwd", passes)
    fork = inner + outer  # a second gradient of what the gate and the residual read twice
    assert backward == 2 * 5 * inner + 5 * outer + (2 * inner + 144) + fork + bias / 2


def test_a_compiled_residual_is_one_more_read() -> None:
    """The second block of ResNet-50's first stage, by hand: 64 inside and 256 out, 56 x 56.

    Three norms of 3 passes and the residual's read; kept: inputs of three convolutions and norms.
    """
    block = [b for b in resnext(name="x", depth=50, xla=True).instances() if b.name == "layer1"][1]
    inner, outer = 64 * 56**2, 256 * 56**2
    passes = ("batch_norm", "elementwise", "reduction")
    assert _moved(block, "fwd", passes) == 6 * inner + 4 * outer
    assert block.saved.low == outer + 4 * inner + outer


def test_xla_moves_and_keeps_less_but_computes_the_same() -> None:
    plain, compiled = (inverted_residual(name="x", xla=x) for x in (False, True))
    assert plain.forward_flop == compiled.forward_flop
    assert plain.trainable_numel == compiled.trainable_numel
    assert compiled.saved.low < 0.65 * plain.saved.low


def test_kernels_of_xla_look_up_no_offsets() -> None:
    """Gates, squeezed biases and gradients of means do in eager PyTorch; a compiler knows them."""
    plain, compiled = (inverted_residual(name="x", xla=x) for x in (False, True))
    assert sum(k.indexed for k in _kernels(plain)) > 0
    assert not any(k.indexed for k in _kernels(compiled))


def test_older_programs_run_depthwise_kernels_of_either_layout() -> None:
    """The kernels that cuDNN has for channels last are a kind of their own in the kernel table."""

    def last(**config: object) -> int:
        workload = inverted_residual(name="e", layout="nhwc", **config)  # type: ignore[arg-type]
        table = kernel_table(workload, PRECISIONS["amp-fp16"])
        return int((table["kind"] == KINDS.index(DEPTHWISE_LAST)).sum())

    assert last() > 0 and last(depthwise_kernels="native") == 0
    # and nothing is told of turning tensors, which no matrix unit asks for
    config = {"layout": "nhwc", "depthwise_kernels": "native"}
    assert not inverted_residual(name="e", **config).channels_first  # type: ignore[arg-type]
