"""Models with recurrent layers placed on a cluster: what ranks sum up, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.timing.exchanges import exchange_bytes
from simcore.workload.sharding import tensor_sums

HYBRID = {"model": "nemotron-h-8b", "gpus": "8xH100", "global_batch": 8, "seq_len": 2048}


def test_context_ranks_are_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidConfig, match="exchanging tokens for heads: use cp-comm ulysses"):
        api.predict(**HYBRID, cp=2)
    with pytest.raises(InvalidConfig, match="share Mamba-1 layers is not modelled"):
        api.predict(model="jamba-1.5-mini", gpus="8xH100", cp=2, global_batch=8)
    with pytest.raises(InvalidConfig, match="cp=16 does not divide ssm_heads / tp = 24"):
        api.predict(model="falcon-h1-0.5b", gpus="2x8xH100", cp=16, cp_comm="ulysses")
    with pytest.raises(InvalidConfig, match="share gated DeltaNet layers only by exchanging"):
        api.predict(model="qwen3.5-9b", gpus="8xH100", cp=2, global_batch=8)
    with pytest.raises(InvalidConfig, match="cp=3 does not divide delta_key_heads / tp = 16"):
        api.predict(model="qwen3.5-9b", gpus="1x6xH100", cp=3, cp_comm="ulysses")
    with pytest.raises(InvalidConfig, match="share Kimi Delta Attention layers is not modelled"):
        api.predict(model="kimi-linear-48b-a3b", gpus="8xH100", cp=2, global_batch=8)


def test_a_layer_of_one_part_sums_up_once() -> None:
    """Megatron's mixer and MLP each end in one product cut by rows."""
    usual = {"expert_pattern": "", "mixer_pattern": "a", "layers": 4}
    assert tensor_sums("transformer", usual) == 2.0
    hybrid = {"expert_pattern": "nd", "mixer_pattern": "mn", "layers": 4}
    assert tensor_sums("transformer", hybrid) == 1.0
    mixed = {"expert_pattern": "dn", "mixer_pattern": "a", "layers": 4}
    assert tensor_sums("transformer", mixed) == 1.5
    beside = {"expert_pattern": "d", "mixer_pattern": "h", "layers": 4}
    assert tensor_sums("transformer", beside) == 3.0
    assert tensor_sums("wan", {"layers": 4}) == 4.5


def test_a_hybrid_is_predicted_under_all_that_cuts_it() -> None:
    plain = api.predict(**HYBRID, recompute="full")
    cut = api.predict(**HYBRID, tp=2, pp=2)
    experts = api.predict(
        model="nemotron-3-nano-30b-a3b", gpus="8xH100", global_batch=8, ep=8, seq_len=2048
    )
    for p in (plain, cut, experts):
        assert p.step_time_s.value > 0
    # of 8.1 B parameters two stages of two tensor ranks hold a quarter each, in 16 bit
    assert cut.memory.terms["parameters"] == pytest.approx(8.1e9 * 2 / 4, rel=0.2)


@pytest.mark.parametrize(("tp", "cp"), [(1, 2), (2, 4), (1, 16)])
def test_context_ranks_turn_the_tokens_of_mamba_into_heads(tp: int, cp: int) -> None:
    """Megatron-Core, mamba_context_parallel.py: z, x, B, C and dt go, the result comes back; where
    ranks share a group's heads, B and C go to each. Nemotron-H 8B: 128 heads of 64 in 8 groups of
    128 states in 24 of 52 layers, 32 query and 8 key heads of 128 in 4."""
    words = {"strategy": "zero1", "tp": tp, "cp": cp, "cp_comm": "ulysses", "seq_len": 8192}
    placed = make_request("nemotron-h-8b", "4x8xH100", **words).placed
    assert placed is not None
    each = exchange_bytes(placed, np.ones(1))["context parallel"][0]
    groups = max(8 // tp, cp)
    mamba = (3 * 128 * 64 + 128) // tp + 2 * groups * 128
    attention = (2 * 32 // tp + 2 * max(8 // tp, cp)) * 128
    assert placed.context.passes == (4.0, 4.0)
    assert 4 * each == pytest.approx(8192 / cp * 2 * (24 * mamba + 4 * attention) / 52)


def test_context_ranks_make_long_sequences_fit() -> None:
    job = {"model": "nemotron-h-8b", "gpus": "8xH100", "global_batch": 8, "seq_len": 32768}
    whole = api.predict(**job, tp=2)
    shared = api.predict(**job, tp=2, cp=4, cp_comm="ulysses")
    ratio = shared.memory.terms["activations"] / whole.memory.terms["activations"]
    assert ratio == pytest.approx(1 / 4, rel=0.05)


def test_an_explanation_says_what_an_sm_does_of_a_scan() -> None:
    told = dict(api.explain("nemotron-h-8b", "8xH100", "time.forward", seq_len=2048).inputs)
    assert told["an SM's FLOP a clock"] == "chunk products 487, causal conv 3.32"
    assert "an SM's FLOP a clock" not in dict(api.explain("gpt2", "8xH100", "forward").inputs)
