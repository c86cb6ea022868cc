"""Tiles of expert kernels, against the programs' own tables and functions."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.calibrate.experts.tiles import tile_of


def layer(tokens: float, experts: float, inner: float) -> np.ndarray:
    return np.array([[tokens, 4096.0, inner, 8.0, experts, 1.0, 1.0]])


def tile(gpu: str, kernel: str, dtype: str, tokens: float, experts: float, inner: float) -> object:
    sizes = layer(tokens, experts, inner)
    found = tile_of(gpu, kernel, dtype, sizes, sizes[:, 0])
    if found.chosen is None:
        return found.rows, found.columns
    return found.chosen[0], np.asarray(found.columns)[0]


@pytest.mark.parametrize(
    ("tokens", "rows"), [(512, 64), (513, 128), (16384, 128), (96, 32), (32, 16)]
)
def test_vllm_without_a_file_takes_rows_by_tokens(tokens: int, rows: int) -> None:
    """fused_moe.py, get_default_config: BLOCK_SIZE_M for M <= 32, 96, 512 and more."""
    columns = 64 if tokens <= 64 else 128
    assert tile("H200-SXM", "triton_vllm", "fp8", tokens, 100, 1000) == (rows, columns)


def test_sglang_without_a_file_takes_small_tiles_for_fewer_tokens_than_experts() -> None:
    """fused_moe_triton_config.py: "if M <= E", with E the experts of the rank."""
    assert tile("H200-SXM", "triton_sglang", "bfloat16", 300, 300, 1000) == (16, 32)
    assert tile("H200-SXM", "triton_sglang", "bfloat16", 301, 300, 1000) == (64, 64)
    sizes = layer(301.0, 600.0, 1000.0)
    sizes[0, 6] = 2.0  # 300 of 600 experts on each of two ranks
    assert tile_of("H200-SXM", "triton_sglang", "bfloat16", sizes, sizes[:, 0]).chosen == [64.0]


def test_a_tuned_file_has_the_tile_of_the_nearest_number_of_tokens() -> None:
    """E=128,N=1024,device_name=NVIDIA_H200.json: 512: 16 x 64, 1024: 16 x 128, 1536: 32 x 128."""
    by_tokens = {512: (16, 64), 768: (16, 64), 769: (16, 128), 1280: (16, 128), 1281: (32, 128),
                 2048: (32, 128), 3072: (64, 128)}  # fmt: skip
    for tokens, expected in by_tokens.items():
        assert tile("H200-SXM", "triton_vllm", "bfloat16", tokens, 128, 1024) == expected


def test_kernels_without_their_tuner_have_one_tile_and_others_choose() -> None:
    every = (16, 32, 64, 128, 256)
    assert tile("H200-SXM", "cutlass_vllm", "fp8", 512, 128, 1024) == ((128,), 16)
    assert tile("H200-SXM", "cutlass_trtllm", "fp8", 512, 128, 1024) == (
        (16, 32, 64, 128, 256),
        128,
    )
    assert tile("B200-SXM", "trtllm_sglang", "bfloat16", 512, 128, 1024) == ((16, 32, 64), 128)
    assert tile("B200-SXM", "trtllm_trtllm", "nvfp4", 512, 128, 1024) == (every, 128)
    # a kernel and a type of which no table is known
    assert tile("B200-SXM", "triton_vllm", "nvfp4", 512, 128, 1024) == (every, 128)


def test_sms_of_a_cluster_load_for_each_other() -> None:
    """cutlass_heuristic.cpp: 2 x 2 on sm90, 4 x 2 on sm100 in pairs, 1 x 1 on sm120 and first."""
    sizes = layer(512.0, 128.0, 1024.0)

    def sharing(gpu: str, kernel: str) -> float:
        return tile_of(gpu, kernel, "bfloat16", sizes, sizes[:, 0]).sharing

    gpus = ("H200-SXM", "B200-SXM", "RTX-PRO-6000")
    assert [sharing(g, "cutlass_trtllm") for g in gpus] == [2.0, 4.0, 1.0]
    assert [sharing(g, "cutlass_vllm") for g in gpus] == [1.0, 2.0, 1.0]
    assert [sharing(g, "triton_vllm") for g in gpus] == [1.0, 1.0, 1.0]
