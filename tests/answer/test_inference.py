"""Weights and keys and values by hand; rates below what memory and matrix units can give."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.cli.main import run
from simcore.hardware.spec import GPUS


def test_memory_of_grouped_heads_by_hand() -> None:
    found = api.inference("llama3-8b", "1xH100", micro_batch=4, seq_len=2048)
    assert found.weight_bytes == 2 * 8030261248
    assert found.kv_bytes_per_token == 32 * 2 * 8 * 128 * 2  # layers, k and v, heads, width, bytes
    assert found.kv_bytes == found.kv_bytes_per_token * 4 * 2048
    room = found.capacity_bytes - found.weight_bytes - found.context_bytes
    assert found.most_tokens == int(room / 131072) and found.fits
    halves = api.inference("llama3-8b", "2xH100", micro_batch=4, seq_len=2048)
    assert halves.weight_bytes == found.weight_bytes / 2
    assert halves.kv_bytes_per_token == found.kv_bytes_per_token / 2


def test_a_latent_is_on_every_rank_and_experts_decode_unknown() -> None:
    found = api.inference("deepseek-v3", "8xH200", precision="fp8")
    assert found.kv_bytes_per_token == 61 * (512 + 64) * 2
    assert found.weight_bytes == 671026404352 / 8
    assert found.decode_s is None and "routed experts" in str(found.notes)


def test_rates_are_below_what_the_hardware_can() -> None:
    gpu = GPUS["H100"]
    one = api.inference("llama3-8b", "1xH100", seq_len=2048)
    many = api.inference("llama3-8b", "1xH100", micro_batch=64, seq_len=2048)
    for found in (one, many):
        read = found.weight_bytes + found.kv_bytes
        assert found.decode_s is not None
        assert 1.0 < found.decode_s / (read / gpu.memory_bw.value) < 2.0
        flop = 2 * 8e9 * 2048
        peak = gpu.peak("bf16")
        assert peak is not None and found.prefill_s > flop / peak
    assert many.sequences / many.decode_s > 20 / one.decode_s  # type: ignore[operator]
    quarter = api.inference("llama3-8b", "1xH100", seq_len=2048, quantised_base="nf4")
    assert quarter.weight_bytes == pytest.approx(one.weight_bytes * 4.127 / 16)
    assert quarter.decode_s < 0.4 * one.decode_s  # type: ignore[operator]


def test_the_command_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--inference", "--model"]
    assert run([*words, "llama3-8b", "--gpus", "RTX4090", "--micro-batch", "16"]) == 1
    assert "\nNO          16.1 GB of weights + 17.2 GB of keys and" in capsys.readouterr().out
    for model, gpus, why in (
        ("resnet-50", "1xH100", "predict the next token"),
        ("llama3-8b", "2x8xH100", "one node"),
    ):
        assert run([*words, model, "--gpus", gpus]) == 2
        assert why in capsys.readouterr().err
    with pytest.raises(InvalidConfig, match="keeps no keys and values"):
        api.inference("mamba-1.4b", "1xH100")


def test_numbers_typed_as_text_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["predict", "--inference", "--model", "gpt2", "--gpus", "H100"]
    for more, why in (
        ("--nnodes=3", "one node of equal GPUs"),
        ("--nnodes=x", "not a whole number"),
        ("--micro-batch=x", "neither a whole number nor"),
    ):
        assert run([*asked, more]) == 2
        assert why in capsys.readouterr().err
    one, two = (api.inference("gpt2", "H100", micro_batch=n) for n in (8, "8"))
    assert one.kv_bytes == two.kv_bytes
