"""Which peak of a datasheet counts, and what is said where it is another than was asked for."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import block, workload

from simcore.base.errors import InvalidConfig
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS, GpuSpec, PeakName
from simcore.physics.fill import conv_fill
from simcore.strategy.precision import PRECISIONS
from simcore.timing.peaks import (
    conv_notes,
    conv_peak_for,
    conv_unit,
    peak_for,
    product_peak_for,
)
from simcore.workload.graph import Block, Kernel, Op, Workload

PROFILE = load_profile()


def without_peaks(gpu: str, *names: str) -> GpuSpec:
    spec = GPUS[gpu]
    kept = {n: f for n, f in spec.peak_flop_per_s.items() if n not in names}
    return spec.model_copy(update={"peak_flop_per_s": kept})


@pytest.mark.parametrize(
    ("gpu", "precision", "name", "flop_per_s"),
    [
        ("A100-SXM-40GB", "bf16", "bf16", 312e12),
        ("A100-SXM-40GB", "fp32", "fp32", 19.5e12),
        ("A100-SXM-40GB", "tf32", "tf32", 156e12),
        ("V100-SXM-16GB", "tf32", "fp32", 15.7e12),
        ("H100-SXM5-80GB", "fp8", "fp8", 1978.9e12),
    ],
)
def test_a_peak_by_precision(gpu: str, precision: str, name: str, flop_per_s: float) -> None:
    found, value, note = peak_for(GPUS[gpu], PRECISIONS[precision])
    assert (found, value) == (name, pytest.approx(flop_per_s))
    assert bool(note) == (name != PRECISIONS[precision].peak)
    if note:
        assert note.startswith(
            f"{GPUS[gpu].name} has no {PRECISIONS[precision].peak} unit: predicted with {name} peak"
        )
        assert ("amp-fp16 is faster" in note) == (
            name == "fp32" and "fp16" in GPUS[gpu].peak_flop_per_s
        )


def test_mxfp8_says_where_transformer_engine_has_none() -> None:
    """pytorch/quantization.py, _compute_mxfp8_support: compute capability 10.0 to below 12.0."""
    for gpu, lacking in (
        ("B200-SXM", False), ("GB300", False), ("VR200", False), ("MI355X", False),
        ("H100-SXM-80GB", True), ("RTX-PRO-6000", True), ("RTX5090", True), ("L40S", True),
    ):  # fmt: skip
        name, _, note = peak_for(GPUS[gpu], PRECISIONS["mxfp8"])
        assert name == "fp8"
        assert bool(note) == lacking
        assert not peak_for(GPUS[gpu], PRECISIONS["fp8"])[2]
    assert (
        "Transformer Engine has no mxfp8 on RTX5090"
        in peak_for(GPUS["RTX5090"], PRECISIONS["mxfp8"])[2]
    )


def test_a_device_that_cannot_run_a_precision_says_what_it_can() -> None:
    with pytest.raises(InvalidConfig, match="cannot run nvfp4: it has peaks for fp64, fp32, fp16"):
        peak_for(GPUS["P100-SXM-16GB"], PRECISIONS["nvfp4"])
    with pytest.raises(InvalidConfig, match=r"cannot run fp32: it has peaks for .*amp-bf16"):
        peak_for(without_peaks("A100-SXM-40GB", "fp32"), PRECISIONS["fp32"])


def test_fp32_products_of_cdna_run_on_matrix_units() -> None:
    gpu = GPUS["MI250X"]
    matrix = gpu.peak("fp32_matrix")
    assert matrix is not None
    assert product_peak_for(gpu, PRECISIONS["fp32"]) == ("fp32_matrix", matrix)
    assert product_peak_for(gpu, PRECISIONS["bf16"]) == peak_for(gpu, PRECISIONS["bf16"])[:2]
    assert product_peak_for(GPUS["A100"], PRECISIONS["fp32"])[0] == "fp32"


def test_convolutions_take_tf32_where_cudnn_does() -> None:
    fp32, strict = PRECISIONS["fp32"], PRECISIONS["fp32-ieee"]
    assert conv_peak_for(GPUS["A100-SXM-40GB"], fp32) == ("tf32", 156e12)
    assert conv_peak_for(GPUS["A100-SXM-40GB"], strict) == ("fp32", 19.5e12)
    assert conv_peak_for(GPUS["V100-SXM-16GB"], fp32) == ("fp32", 15.7e12)
    assert conv_peak_for(GPUS["MI300X"], fp32)[0] == "fp32"


def unit(gpu: GpuSpec | str, kind: Any = "conv", name: PeakName = "tf32") -> str:
    spec = GPUS[gpu] if isinstance(gpu, str) else gpu
    return conv_unit(PROFILE, kind, spec, name, 1e12)[0]


def test_tf32_is_used_where_it_is_faster() -> None:
    """On GeForce tensor cores reach no more in TF32 than vector units do in fp32."""
    assert conv_unit(PROFILE, "conv", GPUS["A100"], "tf32", 156e12) == ("tf32", 156e12)
    assert unit("A100") == "fp32"  # where its peak were 1 TFLOP/s
    assert conv_unit(PROFILE, "conv", GPUS["A100"], "tf32", 1e12)[1] == GPUS["A100"].peak("fp32")
    assert unit("A100", name="bf16") == "bf16"
    assert unit("MI300X") == "tf32"  # no cuDNN
    assert unit("A100", kind="conv_depthwise") == "tf32"
    assert unit(without_peaks("A100", "fp32")) == "tf32"


def test_winograd_counts_for_fp32_in_a_middle_layer() -> None:
    """28 x 28 pixels, 32 images, 128 channels: at the break-even peak both are equally fast."""
    gpu, kind = GPUS["A100-SXM-40GB"], "conv_winograd"
    vector = (gpu.peak("fp32") or 0.0) * PROFILE.compute_efficiency(kind, "fp32", gpu).value
    moved = gpu.memory_bw.value * PROFILE.memory_efficiency(kind, gpu).value
    shape = PROFILE.kernel_shape(kind, "fp32", gpu)
    gain = float(conv_fill(28.0**2, 32.0, 128.0, 128.0, 108.0, *shape, vector / moved))
    assert PROFILE.by_winograd(kind, "fp32", gpu)
    assert gain > 1.2
    even = vector * gain / PROFILE.compute_efficiency(kind, "tf32", gpu).value
    assert conv_unit(PROFILE, kind, gpu, "tf32", 1.001 * even)[0] == "tf32"
    assert conv_unit(PROFILE, kind, gpu, "tf32", 0.999 * even)[0] == "fp32"
    unknown = gpu.model_copy(update={"sm_count": None})
    assert conv_unit(PROFILE, kind, unknown, "tf32", 0.999 * even)[0] == "tf32"
    plain = vector / PROFILE.compute_efficiency(kind, "tf32", gpu).value
    assert conv_unit(PROFILE, kind, unknown, "tf32", 0.999 * plain)[0] == "fp32"


def net(convolutions: float, relaid: float = 0.0) -> Workload:
    ops = (
        Op(name="c", fwd=(Kernel(kind="conv", flop=convolutions, relaid=relaid),)),
        Op(name="p", fwd=(Kernel(kind="gemm", flop=1.0 - convolutions),)),
    )
    return workload([Block(name="b", ops=ops, params=block("b", [1]).params)])


def test_models_with_convolutions_say_in_what_and_how_they_compute() -> None:
    ampere, volta = GPUS["A100-SXM-40GB"], GPUS["V100-SXM-16GB"]
    fp32, half = PRECISIONS["fp32"], PRECISIONS["amp-fp16"]
    precision, layout = conv_notes([volta, ampere], fp32, net(0.5, relaid=1.0))
    assert "TF32" in precision and "channels-first" in layout
    assert conv_notes([ampere], fp32, net(0.5)) == (precision,)
    assert conv_notes([ampere], half, net(0.5, relaid=1.0)) == (layout,)
    assert conv_notes([volta], fp32, net(0.5, relaid=1.0)) == ()
    assert conv_notes([ampere], fp32, net(0.009, relaid=1.0)) == ()
    assert len(conv_notes([ampere], fp32, net(0.01, relaid=1.0))) == 2
