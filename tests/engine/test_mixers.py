"""Models with recurrent layers placed on a cluster: what ranks sum up, and what is refused."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.workload.sharding import tensor_sums

HYBRID = {"model": "nemotron-h-8b", "gpus": "8xH100", "global_batch": 8, "seq_len": 2048}


def test_context_ranks_are_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidConfig, match="context ranks share layers of Mamba-2 is not desc"):
        api.predict(**HYBRID, cp=2)
    with pytest.raises(InvalidConfig, match="layers of gated DeltaNet is not described"):
        api.predict(model="qwen3.5-9b", gpus="8xH100", cp=2, global_batch=8)


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
