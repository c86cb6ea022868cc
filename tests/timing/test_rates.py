"""Rates of devices: datasheet figures times the profile's shares, joined by hand."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from strategies import block, on_by_default, workload
from strategies import rates as made_up

from simcore.base.errors import SimcoreError
from simcore.hardware.calibrations import MeasuredDevice, TimedUpdate
from simcore.hardware.cluster import link_named, parse_cluster
from simcore.hardware.estimates import depthwise_share, indexed_s, only_batched_fp32_tile
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS, GpuSpec, PeakName
from simcore.physics.fill import attention_fill, tiled_attention_fill
from simcore.physics.kernel import WARPWISE_FRAC, narrow_load_slowdown
from simcore.step.kernels import (
    ACROSS,
    BATCHED,
    BATCHED_LOADS,
    CAST,
    DEPTH_LOADS,
    DEPTHWISE_LAST,
    KINDS,
    NARROW_LOADS,
    PLANES,
    UNALIGNED,
    VECTOR_CONV,
    WIDE,
)
from simcore.step.transients import COMPUTE_KINDS
from simcore.strategy.precision import PRECISIONS
from simcore.timing.peaks import conv_peak_for, peak_for
from simcore.timing.rates import (
    ClassRates,
    attention_width,
    class_rates,
    clock_hz,
    compute_share_of,
    knob_spread_of,
    memory_share_of,
)
from simcore.workload.graph import CUDNN_NORM, DENSE_CONVS, NATIVE_NORM, KernelKind

PROFILE = load_profile()
AMPERE, HOPPER, VOLTA, PASCAL, AMD = (
    "A100-SXM-40GB", "H100-SXM5-80GB", "V100-SXM-16GB", "P100-SXM-16GB", "MI300X",
)  # fmt: skip


@lru_cache
def rates(gpu: str, precision: str = "bf16", nodes: str = "1x8x") -> ClassRates:
    return class_rates(parse_cluster(nodes + gpu).groups[0], PRECISIONS[precision], PROFILE)


def of(gpu: str, kind: str, precision: str = "bf16") -> Any:
    return rates(gpu, precision).kernels.of(kind)


def peak(gpu: str, name: PeakName) -> float:
    found = GPUS[gpu].peak(name)
    assert found is not None
    return found


def share(gpu: str, kind: str, name: PeakName) -> float:
    return PROFILE.compute_efficiency(kind, name, GPUS[gpu]).value


# -- kinds of kernels ------------------------------------------------------------------------------


@pytest.mark.parametrize("gpu", [AMPERE, HOPPER, VOLTA, AMD])
@pytest.mark.parametrize("precision", ["fp32-ieee", "amp-fp16"])
def test_products_reach_their_share_of_the_peak(gpu: str, precision: str) -> None:
    name: PeakName = "fp32" if precision == "fp32-ieee" else "fp16"
    found = of(gpu, "gemm", precision)
    assert found["flop_per_s"] == pytest.approx(peak(gpu, name) * share(gpu, "gemm", name))
    shape = PROFILE.kernel_shape("gemm", name, GPUS[gpu])
    assert (found["wave_frac"], found["half_depth"]) == shape
    batched = of(gpu, BATCHED, precision)
    assert batched["flop_per_s"] == pytest.approx(peak(gpu, name) * share(gpu, "bmm", name))
    shape = PROFILE.kernel_shape("bmm", name, GPUS[gpu])
    assert (batched["wave_frac"], batched["half_depth"]) == shape


def test_kernels_that_compute_nothing_take_no_time_to_compute() -> None:
    kinds = rates(AMPERE).kernels.kinds
    computes = np.isfinite(kinds["flop_per_s"])
    special = (WIDE, BATCHED, UNALIGNED, ACROSS, PLANES, VECTOR_CONV, DEPTHWISE_LAST,
               *NARROW_LOADS.values(), *DEPTH_LOADS.values(), *BATCHED_LOADS.values())  # fmt: skip
    assert {k for k, c in zip(KINDS, computes, strict=True) if c} == {*COMPUTE_KINDS, *special}
    assert (kinds["bytes_per_s"] > 0).all()


@pytest.mark.parametrize("kind", ["elementwise", "norm", "softmax", "copy", "gemm", "conv"])
def test_traffic_reaches_its_share_of_the_bandwidth(kind: KernelKind) -> None:
    gpu = GPUS[AMPERE]
    by_hand = gpu.memory_bw.value * PROFILE.memory_efficiency(kind, gpu).value
    assert of(AMPERE, kind)["bytes_per_s"] == pytest.approx(by_hand)
    assert rates(AMPERE).elementwise_bytes_per_s == of(AMPERE, "elementwise")["bytes_per_s"]
    update = gpu.memory_bw.value * PROFILE.memory_efficiency("update", gpu).value
    assert rates(AMPERE).update_bytes_per_s == pytest.approx(update)


def test_torch_takes_cudnn_on_hopper_and_before_2_10_flash_attention_2() -> None:
    """2.04 over FlashAttention-2, as cudnn-frontend's H200 figures are over its rate here."""
    now, before, second = (
        of(HOPPER, kind)["flop_per_s"]
        for kind in ("attention", "attention_flash_first", "attention_v2")
    )
    assert before == second and now == pytest.approx(2.04 * second)
    # 660 TFLOP/s at 2,048 keys and heads of 128, timed in a burst; these rates are sustained ones
    kernels = rates("H200-SXM").kernels
    fill = attention_fill(2048, 128, 2048, 128, 132, 0.0, kernels.of("attention")["half_depth"],
                          kernels.half_width)  # fmt: skip
    burst = PROFILE.clock_ratio("attention", "sustained", GPUS["H200-SXM"]).value
    assert kernels.of("attention")["flop_per_s"] * fill * burst == pytest.approx(660e12, rel=0.1)
    assert of("B200-SXM", "attention") == of("B200-SXM", "attention_flash_first")
    assert of(AMPERE, "attention") == of(AMPERE, "attention_v2")


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp32-ieee"])
def test_attention_in_fp32_takes_three_tf32_products(precision: str) -> None:
    """H200 in simcore calibrate: 137 GFLOP of 2,048 keys in 3.04 ms, 17.2 of 1,024 in 0.526.

    And as a step's profile has it, heads of 72 over 256 keys: 9.66 GFLOP in 11.05 / 28 ms.
    """
    kernels = rates("H200-SXM", precision).kernels
    rate = kernels.of("attention")["flop_per_s"]
    assert kernels.attention_fill is tiled_attention_fill
    assert rate == pytest.approx(989e12 / 2 / 3 * WARPWISE_FRAC * 0.637, rel=1e-2)
    for seq, dim, heads, measured in (
        (2048, 128, 64, 137.4e9 / 3.04e-3), (1024, 64, 64, 17.2e9 / 0.526e-3),
        (256, 72, 512, 9.66e9 * 28 / 11.05e-3),
    ):  # fmt: skip
        depth = kernels.of("attention")["half_depth"]
        fill = tiled_attention_fill(seq, dim, seq, heads, 132, 0.0, depth, kernels.half_width)
        assert rate * fill == pytest.approx(measured, rel=0.04)
    assert of(AMPERE, "attention", precision)["flop_per_s"] < peak(AMPERE, "tf32") / 3
    assert of(VOLTA, "attention", precision)["flop_per_s"] < peak(VOLTA, "fp32")


def test_gradients_of_weights_in_tf32_take_warpwise_products_on_hopper() -> None:
    """wgmma takes TF32 operands along the depth alone; 4,096 cubed: 260 of 377 TFLOP/s on H200."""
    for gpu, precision, slower in (
        (HOPPER, "tf32", WARPWISE_FRAC), (HOPPER, "fp32", 1.0), (AMPERE, "tf32", 1.0),
        ("B200-SXM", "tf32", 1.0),
    ):  # fmt: skip
        along = of(gpu, "gemm", precision)["flop_per_s"]
        assert of(gpu, ACROSS, precision)["flop_per_s"] == pytest.approx(slower * along)
    assert pytest.approx(260 / 377, rel=0.1) == WARPWISE_FRAC


def test_named_attention_is_over_the_fastest_that_was_timed() -> None:
    gpu = GPUS[HOPPER]
    over = PROFILE.attention_share("attention_v2", gpu).value
    found, base = (of(HOPPER, kind) for kind in ("attention_v2", "attention_v3"))
    assert 0.5 < over < 1.0
    table = share(HOPPER, "attention", "bf16") * peak(HOPPER, "bf16")
    assert found["flop_per_s"] == pytest.approx(table * over)
    moved = PROFILE.memory_efficiency("attention", gpu).value * gpu.memory_bw.value
    assert found["bytes_per_s"] == pytest.approx(moved * over)
    assert (found["wave_frac"], found["half_depth"]) == (base["wave_frac"], base["half_depth"])
    estimate = compute_share_of(PROFILE, "attention_v2", "bf16", gpu)
    parts = (PROFILE.compute_efficiency("attention", "bf16", gpu),
             PROFILE.attention_share("attention_v2", gpu))  # fmt: skip
    assert estimate.sd_log == pytest.approx(np.hypot(parts[0].sd_log, parts[1].sd_log))
    assert memory_share_of(PROFILE, "norm", gpu) == PROFILE.memory_efficiency("norm", gpu)


def test_attention_in_8_bit_needs_operands_of_8_bit() -> None:
    for precision, gain in (("bf16", 1.0), ("fp8", 1.189)):
        narrow, wide = (
            of("B200", k, precision) for k in ("attention_cudnn_fp8", "attention_cudnn")
        )
        assert narrow["flop_per_s"] / wide["flop_per_s"] == pytest.approx(gain, rel=1e-3)


def test_recipes_of_8_bit_keep_wide_products_and_attention_in_16() -> None:
    for kind in (WIDE, "attention", *NARROW_LOADS.values(), *BATCHED_LOADS.values()):
        assert of(HOPPER, kind, "fp8")["flop_per_s"] == pytest.approx(
            of(HOPPER, kind, "bf16")["flop_per_s"]
        )
    eight = peak(HOPPER, "fp8") * share(HOPPER, "gemm", "fp8")
    assert of(HOPPER, "gemm", "fp8")["flop_per_s"] == pytest.approx(eight)


def test_unaligned_products_run_on_nvidias_vector_units() -> None:
    vector = peak(AMPERE, "fp32") * share(AMPERE, "bmm", "fp32")
    assert of(AMPERE, UNALIGNED)["flop_per_s"] == pytest.approx(vector)
    conv = peak(AMPERE, "fp32") * share(AMPERE, "conv", "fp32")
    assert of(AMPERE, VECTOR_CONV)["flop_per_s"] == pytest.approx(conv)
    assert of(AMD, UNALIGNED)["flop_per_s"] == of(AMD, BATCHED)["flop_per_s"]


@pytest.mark.parametrize(
    ("gpu", "precision", "fma", "copies", "asynchronous"),
    [(AMPERE, "bf16", 1024, True, False), (AMPERE, "tf32", 512, True, False),
     (VOLTA, "fp16", 512, False, False), (HOPPER, "bf16", 2048, True, True),
     (HOPPER, "fp8", 2048, True, True)],
)  # fmt: skip
def test_narrow_loads_slow_matrix_units(
    gpu: str, precision: str, fma: float, copies: bool, asynchronous: bool
) -> None:
    """Products of weights and of activations, by how many elements they load at a time."""
    width = PRECISIONS[precision].low_bytes
    whole = of(gpu, "gemm", "bf16" if precision == "fp8" else precision)["flop_per_s"]
    batched = of(gpu, BATCHED, "bf16" if precision == "fp8" else precision)["flop_per_s"]
    for elems in (1, 2, 4):
        slow = narrow_load_slowdown(fma, elems, width, copies=copies, asynchronous=asynchronous)
        for kinds, fast in ((NARROW_LOADS, whole), (BATCHED_LOADS, batched)):
            assert of(gpu, kinds[elems], precision)["flop_per_s"] == pytest.approx(fast / slow)
        deep = [of(gpu, DEPTH_LOADS[elems, n], precision)["flop_per_s"] for n in (1, 2)]
        straight = elems * width >= 4 or not copies
        assert (deep[0] == deep[1]) == straight
        assert max(deep) <= whole / slow * (1 + 1e-9)


@pytest.mark.parametrize(("gpu", "precision"), [(AMPERE, "fp32"), (AMD, "bf16"), (PASCAL, "fp16")])
def test_vector_units_load_anything_alike(gpu: str, precision: str) -> None:
    whole, narrow = (of(gpu, k, precision)["flop_per_s"] for k in ("gemm", NARROW_LOADS[1]))
    assert narrow == whole


def test_casts_move_what_the_device_needs() -> None:
    """Blackwell's products take either layout: a read and one copy in place of two."""
    either = of("B200", CAST, "fp8")["bytes_per_s"] / rates("B200", "fp8").elementwise_bytes_per_s
    p = PRECISIONS["fp8"]
    assert either == pytest.approx(
        p.cast_traffic_bytes() / p.cast_traffic_bytes(either_layout=True)
    )
    assert of(HOPPER, CAST, "fp8")["bytes_per_s"] == rates(HOPPER, "fp8").elementwise_bytes_per_s
    assert of("B200", CAST, "bf16")["bytes_per_s"] == rates("B200").elementwise_bytes_per_s
    own = of("B200", CAST, "mxfp8")["bytes_per_s"] / GPUS["B200"].memory_bw.value
    assert own < either  # blocks are limited by their arithmetic, as timed


# -- convolutions ----------------------------------------------------------------------------------


def test_depthwise_kernels_are_limited_by_integers() -> None:
    gpu = GPUS[AMPERE]
    for kind, last in (("conv_depthwise", False), (DEPTHWISE_LAST, True)):
        by_hand = depthwise_share(PROFILE.runtime, "bf16", gpu, channels_last=last).value
        found = of(AMPERE, kind)["flop_per_s"] / peak(AMPERE, "bf16")
        assert found == pytest.approx(by_hand)


def test_channels_first_has_two_ways_on_nvidias_matrix_units() -> None:
    kernels = rates(AMPERE).kernels
    copy = 1.0 / kernels.of("copy")["bytes_per_s"]
    assert kernels.turns_layouts
    for kind in DENSE_CONVS:
        i = KINDS.index(kind)
        assert kernels.of(kind)["turned_s_per_byte"] == pytest.approx(copy)
        # 33 operations on 64 lanes of 108 SMs, for the 4 bytes of an element read and written
        least = kernels.of(kind)["least_turned_s_per_byte"]
        assert least == pytest.approx(33 / (64 * 108 * 1.41e9) / 4)
        direct = peak(AMPERE, "fp32") * share(AMPERE, kind, "fp32")
        assert kernels.direct["flop_per_s"][i] == pytest.approx(direct)
        shape = PROFILE.kernel_shape(kind, "fp32", GPUS[AMPERE])
        assert (kernels.direct["wave_frac"][i], kernels.direct["half_depth"][i]) == shape
        assert kernels.direct["bytes_per_s"][i] == kernels.of(kind)["bytes_per_s"]
    assert kernels.of("gemm")["turned_s_per_byte"] == 0.0


def test_planes_are_turned_where_tf32_is_read_along_the_depth_alone() -> None:
    """mma.sync and tcgen05 take either layout, Hopper's wgmma none but along the depth in TF32."""
    for gpu in (AMPERE, HOPPER, "B200-SXM"):
        turned, planes = (of(gpu, kind, "tf32") for kind in ("conv_pointwise", PLANES))
        along = turned["turned_s_per_byte"] if gpu == HOPPER else 0.0
        assert planes["turned_s_per_byte"] == along < 1.0
        assert turned["turned_s_per_byte"] > 0.0
        assert planes["flop_per_s"] == turned["flop_per_s"]
        direct = rates(gpu, "tf32").kernels.direct["flop_per_s"]
        assert direct[KINDS.index(PLANES)] == direct[KINDS.index("conv_pointwise")]


@pytest.mark.parametrize(
    ("gpu", "precision"), [(AMPERE, "fp32-ieee"), (VOLTA, "tf32"), (AMD, "bf16")]
)
def test_elsewhere_no_layout_is_turned(gpu: str, precision: str) -> None:
    assert not rates(gpu, precision).kernels.turns_layouts


def test_winograd_is_for_3x3_in_fp32() -> None:
    in_fp32, in_16_bit = rates(VOLTA, "fp32").kernels, rates(VOLTA, "fp16").kernels
    assert in_fp32.of("conv_winograd")["winograd"]
    assert not in_16_bit.of("conv_winograd")["winograd"]
    assert in_16_bit.direct["winograd"][KINDS.index("conv_winograd")]
    for kind in ("conv", "conv_pointwise", "gemm"):
        assert not in_fp32.of(kind)["winograd"]
        assert not in_16_bit.direct["winograd"][KINDS.index(kind)]


# -- the device ------------------------------------------------------------------------------------


def test_one_tile_of_batched_products_in_fp32_alone() -> None:
    assert tuple(of(AMPERE, BATCHED, "fp32-ieee")["tile"]) == only_batched_fp32_tile(GPUS[AMPERE])
    assert tuple(of(AMPERE, "gemm", "fp32-ieee")["tile"]) == (1.0, 1.0)
    assert tuple(of(AMPERE, BATCHED, "tf32")["tile"]) == (1.0, 1.0)
    assert tuple(of(HOPPER, BATCHED, "fp32-ieee")["tile"]) == (1.0, 1.0)


def test_limits_of_traffic() -> None:
    """A100: 108 SMs of 1.41 GHz, 16 rows and 3 or 4 blocks of norms each, 40 MiB of L2."""
    kernels = rates(AMPERE).kernels
    limits = kernels.limits
    assert limits.rows_per_l2_byte == pytest.approx(16 * 108 / (40 * 2**20))
    clocks = PROFILE.class_figures("norm", GPUS[AMPERE]).row_clocks
    assert limits.row_s == pytest.approx(clocks / (108 * 1.41e9))
    assert limits.indexed_s == indexed_s(PROFILE.runtime, GPUS[AMPERE]) > 0
    for kind, blocks in ((CUDNN_NORM, 3), (NATIVE_NORM, 4)):
        assert kernels.of(kind)["block_slots"] == blocks * 108
        assert kernels.of(kind)["clock_s"] == pytest.approx(1 / 1.41e9)
    assert kernels.sm_count == 108.0
    assert kernels.start_s == PROFILE.kernel_start_s(GPUS[AMPERE]).value
    assert kernels.attention_bwd_frac == PROFILE.attention_backward_frac(GPUS[AMPERE]).value
    assert rates(AMD).kernels.of(CUDNN_NORM)["block_slots"] == 0.0
    for kind in set(KINDS) - {CUDNN_NORM, NATIVE_NORM}:
        assert of(AMPERE, kind)["block_slots"] == of(AMPERE, kind)["clock_s"] == 0.0, kind


def without(gpu: GpuSpec, **changes: Any) -> GpuSpec:
    return gpu.model_copy(update=changes)


def test_width_at_which_exponentials_take_as_long() -> None:
    """A100: half of 312 TFLOP/s over 4 · 108 · 1.41 GHz · 16."""
    by_hand = 0.5 * 312e12 / (4 * 108 * 1.41e9 * 16)
    assert attention_width(GPUS[AMPERE]) == pytest.approx(by_hand)
    assert rates(AMPERE).kernels.half_width == pytest.approx(by_hand)
    assert rates("V100-SXM-32GB", "fp32").kernels.half_width == 0.0
    # Without a boost clock it is that of the fp32 peak with 128 lanes an SM.
    clock = 19.5e12 / (2 * 128 * 108)
    unstated = without(GPUS[AMPERE], boost_clock=None)
    assert attention_width(unstated) == pytest.approx(by_hand * 1.41e9 / clock)
    assert attention_width(without(GPUS[AMPERE], sm_count=None)) == 0.0
    only_fp16 = GPUS[VOLTA]
    assert attention_width(only_fp16) == pytest.approx(0.5 * 125e12 / (4 * 80 * 1.53e9 * 16))
    ultra = GPUS["B300"]
    assert ultra.exp_per_sm_clock is not None
    assert attention_width(ultra) == pytest.approx(
        0.5 * peak("B300", "bf16")
        / (4 * ultra.sm_count.value * ultra.boost_clock.value * ultra.exp_per_sm_clock.value)  # type: ignore[union-attr]
    )  # fmt: skip


# -- the node --------------------------------------------------------------------------------------


def test_copies_share_ports_and_sockets() -> None:
    """DGX A100: two GPUs a PCIe root, two sockets of 64 cores."""
    found = rates(AMPERE)
    port = link_named("pcie4-x16")
    alone = port.bw.value * port.payload_frac.value
    assert found.h2d_bytes_per_s == pytest.approx(alone / 2)
    assert rates(AMPERE, nodes="1x1x").h2d_bytes_per_s == pytest.approx(alone)
    assert (found.cores, found.ranks_per_socket, found.gpus_per_node) == (128, 4.0, 8)
    assert rates(AMPERE, nodes="1x1x").ranks_per_socket == 1.0
    assert found.dram_bytes_per_s == 204.8e9
    assert found.far_bytes_per_s == pytest.approx(0.8 * link_named("xgmi-rome").bw.value)
    assert (found.nvme_read_bytes_per_s, found.nvme_write_bytes_per_s) == (25e9, 12e9)


def test_issuing_by_program_and_width() -> None:
    found, narrow = rates(HOPPER), rates(HOPPER, "fp8")
    torch, megatron = found.issue_over_torch["torch"], narrow.issue_over_torch["megatron"]
    assert found.issue_s("torch") == pytest.approx(found.host_issue_s * torch)
    assert narrow.issue_s("megatron") == pytest.approx(narrow.host_issue_s * megatron)
    assert megatron > found.issue_over_torch["megatron"]  # casts of Transformer Engine
    assert made_up(host_issue_s=2.0).issue_s("torch") == 2.0


def test_peaks_and_what_is_said_of_them() -> None:
    found = rates(AMPERE)
    assert (found.peak_flop_per_s, found.conv_peak_flop_per_s) == (312e12, 0.0)
    assert found.half_product_flop_per_s == pytest.approx(312e12 * share(AMPERE, "gemm", "bf16"))
    volta = rates(VOLTA, "fp32")
    assert volta.half_product_flop_per_s == pytest.approx(125e12 * share(VOLTA, "gemm", "fp16"))
    tf32 = rates(AMPERE, "fp32")
    assert (tf32.peak_flop_per_s, tf32.conv_peak_flop_per_s) == (19.5e12, 156e12)
    assert found.assumptions == ()
    (note,) = rates(VOLTA, "tf32").assumptions
    assert "V100" in note and "fp32" in note


def test_the_peak_of_a_model_is_by_its_share_of_convolutions() -> None:
    """Half of the work at 100 and half at 25 FLOP/s: 40 on average."""
    both = made_up(peak_flop_per_s=100.0, conv_peak_flop_per_s=25.0)
    assert both.peak_of(0.5) == pytest.approx(40.0)
    assert (both.peak_of(0.0), both.peak_of(1.0)) == (100.0, 25.0)
    assert both.peak_of(0.2) == pytest.approx(1 / (0.8 / 100 + 0.2 / 25))
    assert made_up(peak_flop_per_s=100.0).peak_of(0.5) == 100.0


def test_what_one_sm_reads_is_its_part_of_the_l2() -> None:
    """Of a device that was calibrated itself the fit includes it; without SMs there is no limit."""
    limits = rates(AMPERE).kernels.limits
    assert limits.sm_bytes_per_s == pytest.approx(limits.l2_bytes_per_s / 108) != 0.0
    assert rates("TPU-v5e").kernels.limits.sm_bytes_per_s == 0.0
    own = replace(PROFILE, measured=MeasuredDevice(gpu=GPUS[AMPERE].name))
    group = parse_cluster(f"1x8x{AMPERE}").groups[0]
    found = class_rates(group, PRECISIONS["bf16"], own).kernels.limits
    assert (found.sm_bytes_per_s == 0.0) == (own.own(GPUS[AMPERE]) is not None)


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "fp8"])
def test_no_device_has_a_rate_limit_or_latency_below_nothing(precision: str) -> None:
    """Of one device of each architecture, whatever its record leaves out."""
    of_each = {GPUS[name].architecture: name for name in GPUS.names()}
    for name in of_each.values():
        try:
            found = rates(name, precision, "1x1x")
        except SimcoreError:  # has no such products
            continue
        for kinds in (found.kernels.kinds, found.kernels.direct):
            for column in kinds.dtype.names or ():
                assert (kinds[column] >= 0.0).all(), (name, column)
        limits = found.kernels.limits
        assert min(getattr(limits, f.name) for f in fields(limits)) >= 0.0, name
        assert min(found.kernels.sm_count, found.kernels.half_width, found.kernels.start_s) >= 0.0


def test_updates_that_were_timed_are_those_of_their_device() -> None:
    timed = (TimedUpdate(optimizer="adamw foreach", numel=1e8, over_figures=1.1),)
    own = replace(PROFILE, measured=MeasuredDevice(gpu=GPUS[AMPERE].name, updates=timed))
    for gpu, updates in ((AMPERE, timed), (HOPPER, ())):
        group = parse_cluster(f"1x8x{gpu}").groups[0]
        assert class_rates(group, PRECISIONS["bf16"], own).updates == updates


def test_launches_take_cudas_time_of_the_programs_kind() -> None:
    assert made_up(host_launch_s=3.0).launch_s == 3.0
    assert made_up(host_launch_s=3.0, issue_over_torch={"torch": 2.0}).launch_s == 6.0
    assert made_up(host_issue_s=3.0, issue_over_torch={"graph": 0.5}).issue_s("graph") == 1.5


def test_a_clock_that_is_not_stated_is_that_of_the_fp32_peak() -> None:
    """H100 SXM: 132 SMs of 128 lanes, two FLOP a lane and clock; nothing of a TPU without one."""
    known = GPUS["H100-SXM5-80GB"]
    assert known.boost_clock is not None and known.sm_count is not None
    assert clock_hz(known) == known.boost_clock.value
    bare = known.model_copy(update={"boost_clock": None})
    assert clock_hz(bare) == pytest.approx((known.peak("fp32") or 0.0) / (132 * 128 * 2))
    assert clock_hz(bare.model_copy(update={"sm_count": None})) == 0.0
    assert clock_hz(GPUS["TPU-v6e"]) == 0.0


def test_each_group_is_asked_for_the_spread_of_its_own_peaks() -> None:
    """With autocast a V100 multiplies in fp16, an A100 in bf16: the slowest one's spread counts."""

    class Asked:
        def knob_spread(self, *given: object) -> object:
            return given

    cluster = parse_cluster("1x8xV100-SXM-16GB+1x8xA100-SXM-40GB")
    model = workload([block("b", [1])])
    precision = PRECISIONS["amp-fp16"]
    given = knob_spread_of(Asked(), cluster, precision, model)  # type: ignore[arg-type]
    assert given[0] is cluster and given[2:] == ("tiny", model.conv_frac)  # type: ignore[index]
    assert given[1] == tuple(  # type: ignore[index]
        (peak_for(GPUS[name], precision)[0], conv_peak_for(GPUS[name], precision)[0])
        for name in ("V100-SXM-16GB", "A100-SXM-40GB")
    )
    one = knob_spread_of(PROFILE, parse_cluster(f"1x8x{AMPERE}"), precision, model)
    assert one["memory"] == PROFILE.memory_efficiency("elementwise", GPUS[AMPERE]).sd_log


def test_a_device_has_no_spread_and_convolves_as_it_multiplies_by_default() -> None:
    assert on_by_default(ClassRates) == {"half_product_flop_per_s": np.inf}
