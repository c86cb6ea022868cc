"""Kernels of fused attention: what each reaches of a device, and what a job gains by it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from strategies import workload

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.physics.fill import attention_fill
from simcore.step.kernels import kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import attention_width, class_rates, compute_share_of
from simcore.workload.archs.lm_attention import ATTENTIONS, FLASH, MASKED
from simcore.workload.graph import FLASH_KINDS, Block, KernelKind
from simcore.workload.ops.products import sdpa

#: Forward TFLOP/s of H100 SXM5 without a mask, 16k keys, head dimension 128: Shah et al. 2024,
#: arXiv:2407.08608, figure 5. torch's own is cuDNN's of 9.15 and later: cuDNN 9.27 on H200 with 8k
#: keys (NVIDIA/cudnn-frontend, benchmark/attention_training/results/llama3.1/h200), and so is
#: FlashAttention-4's with 16k. cuDNN's before 9.4 is that paper's; today's is cuDNN 9.19 on H200.
PUBLISHED = {
    "attention": 701e12, "attention_v2": 370e12, "attention_flash_first": 370e12,
    "attention_cudnn": 702e12, "attention_cudnn_first": 595e12, "attention_v3": 648e12,
    "attention_newest": 648e12, "attention_v4": 686e12,
}  # fmt: skip


def flop_per_s(gpu: str, kind: KernelKind) -> float:
    """Burst rate of a long sequence's attention forward."""
    spec, profile = GPUS[gpu], load_profile()
    burst = profile.compute_efficiency("attention", "bf16", spec, sustained=False)
    share = profile.attention_share(kind, spec)
    wave, depth = profile.kernel_shape("attention", "bf16", spec)
    fill = attention_fill(
        16384.0, 128.0, 16384.0, 16.0, sm_count=spec.sm_count.value, wave_frac=wave,
        half_depth=depth, half_width=attention_width(spec),
    )  # fmt: skip
    return float((spec.peak("bf16") or 0.0) * burst.value * share.value * fill)


@pytest.mark.parametrize("kind", PUBLISHED)
def test_kernels_on_hopper_reach_what_was_published(kind: KernelKind) -> None:
    assert flop_per_s("H100-SXM-80GB", kind) == pytest.approx(PUBLISHED[kind], rel=0.12)


@pytest.mark.parametrize(
    ("gpu", "forward_ms", "backward_ms"), [("GB200", 0.210, 0.465), ("GB300", 0.202, 0.442)]
)
def test_short_windows_take_what_was_published(
    gpu: str, forward_ms: float, backward_ms: float
) -> None:
    """gpt-oss's heads of 64 over 128 keys, two sequences of 4,096, cuDNN 9.22 in bf16.

    NVIDIA/cudnn-frontend 3929da24, benchmark/sdpa_benchmark_training/results/gpt_oss.
    """
    core = sdpa("core", 2, 128, 128, 4096, 4096, 64, causal=True, window=128,
                kind="attention_cudnn")  # fmt: skip
    rates = class_rates(parse_cluster(f"1x1x{gpu}").groups[0], PRECISIONS["bf16"], load_profile())
    block = Block(name="b", ops=(core,))
    table = kernel_table(workload([block]), PRECISIONS["bf16"])
    one = np.ones(1)
    found = 1e3 * phase_seconds(table, rates.kernels, one, one, one)[:2, 0]
    assert found == pytest.approx([forward_ms, backward_ms], rel=0.15)


def test_every_kernel_of_a_model_has_a_kind() -> None:
    named = {*FLASH.values(), *MASKED.values()}
    assert named == set(FLASH_KINDS) <= set(get_args(KernelKind))


def test_before_hopper_the_later_kernels_are_no_faster() -> None:
    rates = class_rates(parse_cluster("1x1xA100-SXM-80GB").groups[0], PRECISIONS["bf16"],
                        load_profile())  # fmt: skip
    second, third, cudnn, first = (
        rates.kernels.of(k)["flop_per_s"]
        for k in ("attention", "attention_v3", "attention_cudnn", "attention_v1")
    )
    assert second == third == cudnn
    assert first == pytest.approx(0.46 * second)


def test_torch_takes_cudnn_first_on_data_centre_blackwell_and_since_2_10_on_hopper() -> None:
    profile = load_profile()
    for name in ("B200-SXM", "GB300"):
        gpu = GPUS[name]
        of_torch = profile.attention_share("attention", gpu)
        assert of_torch == profile.attention_share("attention_cudnn", gpu)
        second = profile.attention_share("attention_v2", gpu)
        assert second.value == pytest.approx(of_torch.value / 2.86)
        assert of_torch.value == profile.attention_share("attention_flash_first", gpu).value
    for name in ("H100-SXM-80GB", "A100-SXM-80GB", "RTX5090"):
        gpu = GPUS[name]
        second = profile.attention_share("attention_v2", gpu)
        assert profile.attention_share("attention_flash_first", gpu).value == second.value
        newer = 2.04 if name.startswith("H100") else 1.0
        assert profile.attention_share("attention", gpu).value / second.value == pytest.approx(
            newer
        )


def test_under_a_mask_torch_takes_cudnn_where_it_prefers_it_and_else_cutlass_s_kernel() -> None:
    """sdp_utils.cpp: check_prefer_cudnn_attention, can_use_cudnn_attention; sdp_utils_cpp.h:
    check_for_attn_mask."""
    profile = load_profile()
    for name, kind in (
        ("H200-SXM", "attention"), ("B200-SXM", "attention_cudnn"),
        ("A100-SXM-80GB", "attention_v1"), ("RTX-PRO-6000", "attention_v1"),
    ):  # fmt: skip
        masked, same = (
            profile.attention_share(k, GPUS[name]).value for k in ("attention_masked", kind)
        )
        assert masked == same


def test_the_newest_flash_attention_is_3_on_hopper_4_on_data_centre_blackwell_else_2() -> None:
    """torchtitan, tools/utils.py; prime-rl, trainer/model.py, resolve_auto_attn."""
    profile = load_profile()
    for name, kind in (
        ("A100-SXM-80GB", "attention_v2"), ("H200-SXM", "attention_v3"),
        ("B200-SXM", "attention_v4"), ("RTX-PRO-6000", "attention_v2"),
    ):  # fmt: skip
        newest, same = (
            profile.attention_share(k, GPUS[name]).value for k in ("attention_newest", kind)
        )
        assert newest == same


def test_flash_attention_4_and_cudnn_are_equal_on_data_centre_blackwell_alone() -> None:
    """GB200, 8,192 causal keys, both passes: 5.69 and 5.65 ms; RTX PRO 6000: 26.5 and 27.8."""
    profile = load_profile()
    for name, measured in (("GB200", 5.649 / 5.691), ("RTX-PRO-6000", 27.767 / 26.462)):
        fourth, cudnn = (
            profile.attention_share(k, GPUS[name]).value
            for k in ("attention_v4", "attention_cudnn")
        )
        assert fourth / cudnn == pytest.approx(measured, rel=0.03)


#: cuDNN 9.22 in bf16, two causal sequences, 64 query heads: keys, and forward and backward in ms
#: (NVIDIA/cudnn-frontend 3929da24, sdpa_benchmark_training/results/llama3.1, April 2026).
CUDNN_9_22 = {
    "GB200": {4096: (0.391, 1.198), 8192: (1.397, 4.127), 16384: (5.150, 16.554)},
    "GB300": {4096: (0.323, 1.101), 8192: (1.185, 3.832), 16384: (4.593, 14.593)},
}


@pytest.mark.parametrize("gpu", CUDNN_9_22)
def test_cudnn_on_data_centre_blackwell_reaches_what_nvidia_measured(gpu: str) -> None:
    spec, profile = GPUS[gpu], load_profile()
    burst = profile.compute_efficiency("attention", "bf16", spec, sustained=False).value
    rate = (
        (spec.peak("bf16") or 0.0) * burst * profile.attention_share("attention_cudnn", spec).value
    )
    wave, depth = profile.kernel_shape("attention", "bf16", spec)
    backward_frac = profile.attention_backward_frac(spec).value
    for keys, (forward_ms, backward_ms) in CUDNN_9_22[gpu].items():
        op = sdpa("x", 2, 64, 8, keys, keys, 128, causal=True, kind="attention_cudnn")
        fill = attention_fill(
            keys, 128.0, keys / 2, 128.0, spec.sm_count.value, wave, depth, attention_width(spec)
        )
        found_s = (op.fwd[0].flop + op.bwd[0].flop / backward_frac) / (rate * fill)
        assert found_s == pytest.approx((forward_ms + backward_ms) * 1e-3, rel=0.1)


def test_attention_loses_a_part_of_the_time_that_products_lose_in_long_runs() -> None:
    """wan22 on GB200: 1.15 where products lose 1.19, on GB300 1.11 where they lose 1.16."""
    profile = load_profile()
    for name, measured in (("GB200", 1.15), ("GB300", 1.11)):
        found = profile.clock_ratio("attention", "sustained", GPUS[name]).value
        assert found == pytest.approx(measured, rel=0.015)
        assert found < profile.clock_ratio("gemm_tensor16", "sustained", GPUS[name]).value
        assert profile.clock_ratio("attention", "burst", GPUS[name]).value == 1.0


@pytest.mark.parametrize(
    ("keys", "measured"),
    [(4096, (0.977 + 3.383) / (0.391 + 1.198)), (8192, (3.470 + 11.984) / (1.397 + 4.127))],
)
def test_heads_of_192_and_128_take_longer_backward(keys: int, measured: float) -> None:
    """GB200, 128 such heads of DeepSeek-V3 over 64 of 128, both passes of two causal sequences."""

    def work(width: int, heads: int, **more: int) -> float:
        op = sdpa("x", 2, heads, 8, keys, keys, width, causal=True, kind="attention_cudnn", **more)
        return op.fwd[0].flop + op.bwd[0].flop

    wide, even = work(192, 128, value_dim=128), work(128, 64)
    assert wide == pytest.approx(even * 2 * (320 + 5 * 192) / (256 + 5 * 128))
    width = attention_width(GPUS["GB200"])  # elements by which exponentials lengthen a head
    by_width = (128 + width) / 128 / ((192 + width) / 192)
    assert wide / even / by_width == pytest.approx(measured, rel=0.12)
    narrow = sdpa("x", 1, 2, 2, 8, 8, 192, value_dim=128, kind="attention_cudnn_fp8")
    assert narrow.bwd[0].flop == 2.5 * narrow.fwd[0].flop


def test_a_share_of_a_kernel_says_what_it_is_over() -> None:
    profile, gpu = load_profile(), GPUS["H100-SXM-80GB"]
    table = profile.compute_efficiency("attention", "bf16", gpu)
    second = compute_share_of(profile, "attention_v2", "bf16", gpu)
    assert second.value == pytest.approx(table.value / 1.75)
    assert "attention_v3 1.75 of FlashAttention-2" in second.source
    assert second.sd_log > table.sd_log
    assert compute_share_of(profile, "gemm", "bf16", gpu) == profile.compute_efficiency(
        "gemm", "bf16", gpu
    )


def test_a_job_can_name_its_kernel() -> None:
    def step_s(attention: str | None) -> float:
        request = make_request(
            "llama3-8b", "1x8xH100", strategy="zero3", seq_len=8192, micro_batch=1,
            attention=attention,
        )  # fmt: skip
        return predict(request).step_time_s.value

    names = ("flash4", "flash", "cudnn", "flash3", "cudnn_first", "flash2", "flash1", "math")
    times = {name: step_s(name) for name in names}
    assert step_s("flash_first") == times["flash2"]
    assert step_s("masked_first") > times["flash1"]
    assert times["flash"] < step_s("masked") < step_s("masked_first")
    assert list(times.values()) == sorted(times.values())
    assert len(set(times.values())) == len(times)
    assert step_s(None) == times["flash"]


#: Forward and backward in ms, bf16 over fp8: runtime.yaml, cudnn-fp8.
TIMED_IN_8_BITS = {
    "B200-SXM": (1.589 + 5.526) / (1.464 + 4.382), "GB300": (1.281 + 4.778) / (1.060 + 3.632),
    "GB200": (0.688 + 2.097) / (0.553 + 1.860),
}  # fmt: skip


@pytest.mark.parametrize("gpu", TIMED_IN_8_BITS)
def test_attention_in_8_bits_is_faster_on_blackwell_where_products_are(gpu: str) -> None:
    def gain(precision: str) -> float:
        rates = class_rates(
            parse_cluster(f"1x1x{gpu}").groups[0], PRECISIONS[precision], load_profile()
        )
        narrow, wide = (
            rates.kernels.of(k)["flop_per_s"] for k in ("attention_cudnn_fp8", "attention_cudnn")
        )
        return float(narrow / wide)

    assert gain("fp8") == pytest.approx(TIMED_IN_8_BITS[gpu], rel=0.05)
    assert gain("bf16-true") == 1.0


def test_an_unknown_kernel_is_refused_with_the_names() -> None:
    with pytest.raises(InvalidConfig, match="flash3"):
        make_request("llama3-8b", "1x8xH100", attention="flash9")
    with pytest.raises(InvalidConfig, match="attention"):
        make_request("resnet50", "1x8xH100", attention="flash")
    assert "cudnn" in ATTENTIONS
