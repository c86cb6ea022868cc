"""Batch norms and max pooling beside published timings, by layout.

ScalingIntelligence/KernelBench, results/timing: BatchNorm2d in training, forward alone.
xwang233/code-snippet, syncbn-channels-last: PyTorch's own kernels of a batch norm alone, fp32, V100
and A100. An H200 on 2026-11-26, PyTorch 2.11: batch norms in bf16, forward, and by `simcore
calibrate` backward.
apuaaChen/EVT_AE, benchmark/resnet/torch_result.md and torch_cl_result.md: PyTorch's profiles of a
ResNet-50 in fp16 at 128 images on A100, channels first and last. mholmeslinder/semi-supervised-cv:
a TensorFlow profile of a ResNet-50 V2 in fp32 on V100, kernels over one that adds two tensors.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from simcore.base.arrays import NDArray
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.step.kernels import KINDS, KernelTable, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import ClassRates, class_rates
from simcore.workload import ops
from simcore.workload.archs.layers import LayerList
from simcore.workload.graph import CUDNN_NORM, NATIVE_NORM, Block, Kernel, Op, Workload

#: Elements of a window of 3 x 3.
WINDOW = 9


def rates_of(gpu: str, precision: str) -> ClassRates:
    return class_rates(parse_cluster(f"1x1x{gpu}").groups[0], PRECISIONS[precision], load_profile())


def passes_ms(
    op: Op, gpu: str, precision: str = "fp32", images: float = 1.0
) -> tuple[float, float]:
    """Device time of forward and backward [ms]."""
    workload = Workload(
        name="one", sample_unit="image", blocks=(Block(name="b", ops=(op,)),), order=(0,)
    )
    one = np.ones(1)
    table = kernel_table(workload, PRECISIONS[precision])
    seconds = phase_seconds(table, rates_of(gpu, precision).kernels, images * one, one, one)
    return 1e3 * float(seconds[0, 0]), 1e3 * float(seconds[1, 0])


def norm(channels: int, plane: float, *, channels_first: bool = True) -> Op:
    return ops.batch_norm("norm", channels * plane, channels, channels_first=channels_first)


@pytest.mark.parametrize(
    ("gpu", "images", "plane", "measured"),
    [
        ("H100-SXM-80GB", 64, 512**2, 8.80),
        ("L40S", 16, 256**2, 1.28),
        ("RTX3090Ti", 16, 256**2, 0.906),
    ],
)
def test_64_channels_in_fp32(gpu: str, images: float, plane: int, measured: float) -> None:
    """H100 takes twice what its bandwidth would, the others what theirs does."""
    forward, _ = passes_ms(norm(64, plane), gpu, images=images)
    assert forward == pytest.approx(measured, rel=0.1)
    last, _ = passes_ms(norm(64, plane, channels_first=False), gpu, images=images)
    assert (forward / last > 1.6) == (gpu == "H100-SXM-80GB")


@pytest.mark.parametrize(
    ("channels", "plane", "measured"),
    [  # 0.925, 3.345 and 1.664 ms; a pass of each tensor: 0.1634, 0.6536 and 0.3268
        (64, 56**2, 5.66), (256, 56**2, 5.12), (512, 28**2, 5.09),
    ],
)  # fmt: skip
def test_backward_in_fp32_over_a_pass_of_a_stream(
    channels: int, plane: int, measured: float
) -> None:
    images, elems = 160.0, float(channels * plane)  # 0.79 of the bandwidth then
    _, backward = passes_ms(norm(channels, plane), "V100-SXM-16GB", images=images)
    added, _ = passes_ms(
        Op(name="add", fwd=(Kernel(kind="elementwise", low=3 * elems),)),
        "V100-SXM-16GB", images=images,
    )  # fmt: skip
    assert 3 * backward / added == pytest.approx(measured, rel=0.05)


#: us of the kernels alone, in fp32: statistics and result; for channels last sums and gradient.
#: By (layout, device, images, channels, pixels a side).
NATIVE = {
    ("nchw", "A100-SXM-40GB", 128, 64, 112): (2060.3, 642.6),
    ("nchw", "A100-SXM-40GB", 128, 64, 56): (582.4, 155.5),
    ("nchw", "A100-SXM-40GB", 128, 256, 56): (680.6, 634.7),
    ("nchw", "A100-SXM-40GB", 32, 1024, 32): (171.9, 196.8),
    ("nchw", "V100-SXM-16GB", 128, 64, 56): (464.8, 264.3),
    ("nchw", "V100-SXM-16GB", 128, 256, 56): (703.8, 1059.1),
    ("nhwc", "A100-SXM-40GB", 128, 64, 112): (499.4, 614.1, 619.3, 930.7),
    ("nhwc", "A100-SXM-40GB", 128, 64, 56): (139.9, 142.7, 166.4, 222.1),
    ("nhwc", "A100-SXM-40GB", 128, 256, 56): (394.4, 616.7, 622.0, 913.4),
    ("nhwc", "A100-SXM-40GB", 32, 1024, 32): (199.9, 189.7, 225.4, 287.3),
    ("nhwc", "V100-SXM-16GB", 128, 64, 112): (579.2, 1101.4, 1174.4, 1564.1),
    ("nhwc", "V100-SXM-16GB", 128, 64, 56): (157.1, 261.8, 297.0, 381.3),
}


def native_us(op: Op, gpu: str, images: float, width: int) -> list[float]:
    """Device time of each of PyTorch's own kernels, at ``width`` bytes an element [us]."""
    found = []
    for kernels in (op.fwd, op.bwd):
        for kernel in kernels:
            if kernel.kind == NATIVE_NORM:
                alone = replace(kernel, low=kernel.low * width / 2, launches=1.0)
                one = passes_ms(Op(name="k", fwd=(alone,)), gpu, "bf16", images)
                found.append(1e3 * one[0])
    return found


@pytest.mark.parametrize("case", NATIVE)
def test_pytorchs_own_norms(case: tuple[str, str, int, int, int]) -> None:
    layout, gpu, images, channels, side = case
    op = norm(channels, side**2, channels_first=layout == "nchw")
    found = native_us(op, gpu, images, 4)[: len(NATIVE[case])]
    assert found == pytest.approx(NATIVE[case], rel=0.4)
    assert sum(found) == pytest.approx(sum(NATIVE[case]), rel=0.17)


@pytest.mark.parametrize(
    ("channels", "side", "measured"),
    [  # us in bf16 at 128 images: channels first, last
        (64, 112, (1523.7, 593.6)), (64, 56, (444.0, 166.5)), (256, 56, (620.5, 439.2)),
    ],
)  # fmt: skip
def test_pytorchs_own_norms_in_bf16_on_another_device(
    channels: int, side: int, measured: tuple[float, float]
) -> None:
    """The constants are those of V100 and A100 in fp32."""
    for first, expected in zip((True, False), measured, strict=True):
        op = norm(channels, side**2, channels_first=first)
        forward = 1e3 * passes_ms(op, "H200-SXM", "bf16", 128.0)[0]
        assert forward == pytest.approx(expected, rel=0.27)


def test_backward_of_pytorchs_own_norm_of_channels_first() -> None:
    _, backward = passes_ms(norm(256, 16.0**2), "H200-SXM", "bf16", 1024.0)
    assert backward == pytest.approx(0.607, rel=0.1)


@pytest.mark.parametrize("precision", ["amp-bf16", "bf16", "fp16-true"])
def test_cudnn_is_given_neither_bf16_nor_fp16_with_fp16_weights(precision: str) -> None:
    """_select_batch_norm_backend of ATen native/Normalization.cpp."""
    workload = LayerList("resnet")(name="x", depth=50)
    own, other = (KINDS.index(kind) for kind in (NATIVE_NORM, CUDNN_NORM))
    kinds = set(kernel_table(workload, PRECISIONS[precision])["kind"])
    assert own in kinds and other not in kinds
    for with_cudnn in ("fp32", "tf32", "amp-fp16", "fp16"):
        kinds = set(kernel_table(workload, PRECISIONS[with_cudnn])["kind"])
        assert other in kinds and own not in kinds


#: ms an iteration by the profiles: forward, backward.
RESNET_NORMS = {"nchw": (13.51, 19.90), "nhwc": (6.77, 9.32)}


def seconds_of(table: KernelTable, rates: ClassRates, counts: NDArray[np.float64]) -> float:
    one = np.ones(1)
    return float(counts @ phase_seconds(table, rates.kernels, 128 * one, one, one)[:, 0])


@pytest.mark.parametrize("layout", RESNET_NORMS)
def test_norms_of_a_resnet_in_fp16(layout: str) -> None:
    workload = LayerList("resnet")(name="x", depth=50, layout=layout)
    table = kernel_table(workload, PRECISIONS["amp-fp16"])
    rates = rates_of("A100-SXM-40GB", "amp-fp16")
    norms = table["kind"] == KINDS.index("batch_norm")
    table = table.with_counts(table["count"] * norms)
    n = len(workload.blocks)
    runs = np.array([workload.count(i) for i in range(n)] * 2, dtype=float)
    forward = runs * (np.arange(2 * n) < n)
    found = [1e3 * seconds_of(table, rates, c) for c in (forward, runs - forward)]
    assert found == pytest.approx(RESNET_NORMS[layout], rel=0.15)


def test_what_channels_first_turns_of_a_resnet_in_fp16() -> None:
    """1,580 kernels to channels last and 680 back: 10.66 ms an iteration."""
    workload = LayerList("resnet")(name="x", depth=50)
    table = kernel_table(workload, PRECISIONS["amp-fp16"])
    rates = rates_of("A100-SXM-40GB", "amp-fp16")
    runs = np.array([workload.count(i) for i in range(len(workload.blocks))] * 2, dtype=float)
    whole = seconds_of(table, rates, runs)
    kernels = table.kernels.copy()
    kernels["turned_bytes"] = 0.0
    bare = replace(table, kernels=kernels)
    assert 1e3 * (whole - seconds_of(bare, rates, runs)) == pytest.approx(10.66, rel=0.15)


@pytest.mark.parametrize("gpu", ["V100-SXM-16GB", "A100-SXM-80GB", "H100-SXM-80GB"])
def test_few_channels_leave_a_device_idle(gpu: str) -> None:
    """As many elements in twice the channels take less; in channels last as long."""
    first = [passes_ms(norm(c, 2.0**22 / c), gpu, "fp16", 32.0) for c in (16, 32, 64, 128)]
    assert all(a > 1.2 * b for n, m in pairwise(first) for a, b in zip(n, m, strict=True))
    last = [
        passes_ms(norm(c, 2.0**22 / c, channels_first=False), gpu, "fp16", 32.0) for c in (16, 128)
    ]
    assert last[0] == pytest.approx(last[1], rel=1e-3)
    assert all(a > b for a, b in zip(first[-1], last[-1], strict=True))


def test_kernels_of_others_have_no_such_blocks() -> None:
    assert passes_ms(norm(16, 2.0**20), "MI210") == passes_ms(
        norm(16, 2.0**20, channels_first=False), "MI210"
    )


@pytest.mark.parametrize(
    ("gpu", "precision", "images", "channels", "sides", "layout", "measured"),
    [
        # apuaaChen/EVT_AE
        ("A100-SXM-40GB", "fp16", 128, 64, (112, 56), "nchw", (0.652, 2.280)),
        ("A100-SXM-40GB", "fp16", 128, 64, (112, 56), "nhwc", (0.770, 1.455)),
        # KempnerInstitute/kempner-computing-handbook: AlexNet under Nsight Systems
        ("A100-SXM-40GB", "fp32", 256, 192, (31, 15), "nchw", (0.300, 1.125)),
        # Nsight Systems on PyTorch's mnist example, windows of 2x2
        ("A6000", "fp32", 512, 64, (24, 12), "nchw", (0.196, 0.364)),
    ],
)
def test_kernels_of_max_pooling(
    gpu: str, precision: str, images: float, channels: int, sides: tuple[int, int], layout: str,
    measured: tuple[float, float],
) -> None:  # fmt: skip
    """Whole numbers hold them up: backward would take a fifth of that if memory did."""
    before, after = (float(channels * side**2) for side in sides)
    op = ops.max_pool2d("pool", before, after, WINDOW, channels_last=layout == "nhwc")
    assert passes_ms(op, gpu, precision, images) == pytest.approx(measured, rel=0.18)


@pytest.mark.parametrize(
    ("images", "sides", "window", "measured"),
    [
        (128, [(112, 56)], 9, (0.415, 0.909)),
        (8, [(512, 256), (256, 128), (128, 64), (64, 32)], 4, (0.664, 1.116)),
    ],
)
def test_pools_of_channels_last_pass_over_their_windows(
    images: float, sides: list[tuple[int, int]], window: int, measured: tuple[float, float]
) -> None:
    """Profiles of a ResNet-50 and a U-Net on H200 (validate/cards/h200-2026-11-27).

    As windows of 3 x 3, those of the U-Net would take 1.7 and 1.9 times as long as they do.
    """
    found = np.zeros(2)
    for channels, (before, after) in zip((64, 128, 256, 512), sides, strict=False):
        op = ops.max_pool2d(
            "pool", channels * before**2, channels * after**2, window, channels_last=True
        )
        found += passes_ms(op, "H200-SXM", "bf16", images)
    assert found == pytest.approx(measured, rel=0.18)


@pytest.mark.parametrize(
    ("precision", "measured"), [("fp16", (0.545, 3.98)), ("fp32", (0.909, 4.97))]
)
def test_max_pooling_on_volta(precision: str, measured: tuple[float, float]) -> None:
    """xwang233/code-snippet, max-pool2d-nchw-perf: backward adds to the gradient that is there."""
    before, after = 256.0 * 112**2, 256.0 * 37**2
    op = ops.max_pool2d("pool", before, after, WINDOW)
    forward, backward = passes_ms(op, "TITAN-V", precision, 32)
    add = Op(name="add", fwd=(Kernel(kind="elementwise", low=3 * before),))
    summed, _ = passes_ms(add, "TITAN-V", precision, 32)
    assert (forward, backward + summed) == pytest.approx(measured, rel=0.05)


def test_a_compiler_knows_the_windows() -> None:
    """Memory alone holds a pool up that no ready-made kernel computes."""
    slow, quick = (
        passes_ms(
            ops.max_pool2d("pool", 64.0 * 112**2, 64.0 * 56**2, WINDOW, eager=eager),
            "V100-SXM-32GB",
        )
        for eager in (True, False)
    )
    assert slow[0] >= quick[0]
    assert slow[1] > 2 * quick[1]
