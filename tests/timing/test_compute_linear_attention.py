"""Kernels of linear attention in a step: by hand, and against published times of fla's kernels."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, hypot

import numpy as np
import pytest

from simcore.hardware.cluster import parse_cluster
from simcore.hardware.linear_attention import work_per_clock
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.step.kernels import kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import class_rates
from simcore.workload import ops
from simcore.workload.graph import Block, Op, Workload

BF16 = PRECISIONS["bf16"]


def passes_s(op: Op, gpu: str, batch: float = 1.0, *, compute: float = 1.0) -> tuple[float, float]:
    """Seconds of an op's forward and of its backward in a burst, as benchmarks time them."""
    block = Block(name="one", ops=(op,))
    workload = Workload(name="one", sample_unit="call", blocks=(block,), order=(0,))
    profile = replace(load_profile(), in_bursts=True, _seen={})
    rates = class_rates(parse_cluster(f"1x1x{gpu}").groups[0], BF16, profile).kernels
    one = np.ones(1)
    forward, backward = phase_seconds(
        kernel_table(workload, BF16), rates, batch * one, compute * one, one
    )
    return float(forward[0]), float(backward[0])


def delta(seq: int, heads: int, *, by_channel: bool) -> Op:
    shape = ops.DeltaShape(
        seq=seq, key_heads=heads, value_heads=heads, key_dim=128, value_dim=128, conv=4,
        by_channel=by_channel,
    )  # fmt: skip
    return ops.delta_rule("rule", shape)


def test_a_convolution_takes_the_clocks_of_its_blocks_beside_its_traffic() -> None:
    gpu, seq, channels = GPUS["B200-SXM"], 8192, 6144
    blocks = seq // 64 * (channels // 64)
    waves = ceil(blocks / 148)
    clocks = waves * 64 * 64 / work_per_clock("causal_conv", gpu).value
    assert gpu.boost_clock is not None
    busy_s = clocks / gpu.boost_clock.value
    share = load_profile().memory_efficiency("elementwise", gpu).value
    moved_s = (2.0 * 2 * seq * channels + 2.0 * 5 * channels) / (8e12 * share)
    start_s = load_profile().kernel_start_s(gpu).value
    forward, _ = passes_s(ops.causal_conv("conv", seq, channels, 4), "B200-SXM")
    assert forward == pytest.approx(start_s + hypot(busy_s, moved_s), rel=1e-6)


def test_a_device_of_twice_the_compute_halves_the_clocks() -> None:
    """A slow or fast device, and the spread of its speed, reach these kernels like products."""
    gpu, op = "H100-SXM-80GB", Op(name="x", fwd=(delta(8192, 264, by_channel=False).fwd[5],))
    op = replace(op, fwd=(replace(op.fwd[0], low=0.0, raw_bytes=0.0),))
    once, twice = (passes_s(op, gpu, compute=c)[0] for c in (1.0, 2.0))
    start_s = load_profile().kernel_start_s(GPUS[gpu]).value
    assert once - start_s == pytest.approx(2 * (twice - start_s))


def test_chains_of_chunks_run_one_a_head() -> None:
    """64 heads leave half of 132 SMs idle and take, but for traffic, as long as 128; 264 twice."""
    chains = [
        replace(delta(16384, heads, by_channel=False).fwd[5], low=0.0, raw_bytes=0.0)
        for heads in (64, 128, 264)
    ]
    assert {k.kind for k in chains} == {"chunk_states"}
    few, many, twice = (passes_s(Op(name="x", fwd=(k,)), "H100-SXM-80GB")[0] for k in chains)
    start_s = load_profile().kernel_start_s(GPUS["H100-SXM-80GB"]).value
    assert few == pytest.approx(many)
    assert twice - start_s == pytest.approx(2 * (many - start_s))


@pytest.mark.parametrize(
    ("gpu", "by_channel", "seq", "heads", "batch", "forward_ms"),
    [
        # FlashKDA, BENCHMARK_TRAIN_RTX5090.md: fla_chunk_kda fwd
        ("RTX5090", True, 8192, 96, 1, 5.4185), ("RTX5090", True, 8192, 64, 1, 3.5908),
        # PaddlePaddle/flash-attention pull request 133, NVIDIA H800: chunk_gdn, chunk_kda
        ("H800-SXM", False, 8192, 96, 1, 2.033), ("H800-SXM", True, 8192, 96, 1, 3.268),
        ("H800-SXM", False, 16384, 16, 2, 1.342), ("H800-SXM", True, 16384, 16, 2, 2.299),
        # cuLA, kda_h64_8k_15seq_fla_baseline.md: FLA on GB200
        ("GB200", True, 8192, 64, 1, 1.516),
    ],
)  # fmt: skip
def test_forward_of_the_delta_rule_as_others_timed_it(
    gpu: str, by_channel: bool, seq: int, heads: int, batch: int, forward_ms: float
) -> None:
    forward, _ = passes_s(delta(seq, heads, by_channel=by_channel), gpu, batch)
    assert forward * 1e3 == pytest.approx(forward_ms, rel=0.25)


@pytest.mark.parametrize(
    ("gpu", "ratio"),
    [
        ("GB200", 3.471 / 1.516),  # cuLA, as above
        # FlashKDA's stages on RTX 5090: those of backward and of what it repeats, over forward's
        ("RTX5090", (0.428 + 1.127 + 2.707 + 1.604 + 0.369 + 0.759 + 0.910 + 0.739)
         / (0.305 + 1.549 + 0.910 + 0.739 + 0.712)),
    ],
)  # fmt: skip
def test_backward_of_kimi_delta_over_its_forward_as_others_timed_it(gpu: str, ratio: float) -> None:
    forward, backward = passes_s(delta(8192, 64, by_channel=True), gpu)
    assert backward / forward == pytest.approx(ratio, rel=0.15)


def test_backward_of_a_convolution_as_its_author_timed_it() -> None:
    """causal-conv1d pull request 88, RTX PRO 6000: 4 x 16384 x 4128 in 1.085 ms."""
    _, backward = passes_s(ops.causal_conv("conv", 16384, 4128, 4), "RTX-PRO-6000", 4)
    assert backward * 1e3 == pytest.approx(1.085, rel=0.25)
