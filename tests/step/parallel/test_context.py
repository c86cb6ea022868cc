"""What context ranks exchange, against counts by hand and the papers' volumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import on_by_default

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.memory.job import memory_result
from simcore.request.placed import Placed
from simcore.step.parallel import context
from simcore.step.parallel.context import ContextRanks, Heads, mixers_of
from simcore.strategy.layout import Layout
from simcore.timing.exchanges import exchange_bytes, exchanges_of
from simcore.timing.points import Points
from simcore.timing.steps import values_of
from simcore.workload.archs.lm_layer import RECURRENT
from simcore.workload.resolve import resolve_model

BASE: dict[str, Any] = {
    "precision": "bf16", "strategy": "zero1", "recompute": "none", "micro_batch": 1,
    "seq_len": 8192,
}  # fmt: skip


def placed(model: str, gpus: str, **words: Any) -> Placed:
    found = make_request(model, gpus, **{**BASE, **words}).placed
    assert found is not None
    return found


def sent(model: str, gpus: str, **words: Any) -> tuple[float, float]:
    """Bytes of a rank's vectors in a layer's forward, and in its backward."""
    how = placed(model, gpus, **words)
    name = "context parallel"
    each = float(exchange_bytes(how, np.ones(1))[name][0])
    forward, backward = how.context.passes
    return forward * each, backward * each


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_ulysses_turns_four_tensors_of_local_tokens(cp: int) -> None:
    """Jacobs et al. 2023, 3.2: 3 N h / P before attention and N h / P behind it, 2 bytes each;
    their gradients go the other way."""
    forward, backward = sent("llama2-7b", "1x8xH100", cp=cp, cp_comm="ulysses")
    assert forward == backward == 4 * 8192 * 4096 * 2 / cp


def test_its_volume_stays_where_tokens_and_ranks_grow_together() -> None:
    few, many = (
        sent("llama2-7b", "4x8xH100", cp=cp, seq_len=4096 * cp, cp_comm="ulysses") for cp in (4, 32)
    )
    assert few == many
    few, many = (sent("llama2-7b", "4x8xH100", cp=cp, seq_len=4096 * cp) for cp in (4, 32))
    assert many[0] == 8 * few[0]  # a ring passes all keys and values by each rank


@pytest.mark.parametrize(
    ("tp", "cp", "kv_heads_sent"),
    [(1, 8, 8), (1, 4, 8), (2, 4, 4), (1, 16, 16), (4, 8, 8), (8, 4, 4)],
)
def test_fewer_key_heads_than_ranks_are_copied(tp: int, cp: int, kv_heads_sent: int) -> None:
    """Llama 3 8B: 32 query and 8 key heads of 128; of k and v a rank sends one head to each rank
    at least (DeepSpeed, runtime/sequence_parallel/ulysses_sp.py)."""
    forward, _ = sent("llama3-8b", "4x8xH100", tp=tp, cp=cp, cp_comm="ulysses")
    heads = 2 * 32 // tp + 2 * kv_heads_sent
    assert forward == heads * 128 * 8192 / cp * 2


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("gpt2-xl", {"cp": 4}, "cp=4 does not divide heads=25"),
        ("llama2-7b", {"tp": 8, "cp": 8}, "cp=8 does not divide heads / tp = 4"),
        ("phi-3-medium", {"cp": 4}, "4 and 10 key heads"),
    ],
)
def test_heads_must_be_shared_evenly(model: str, words: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        make_request(model, "8x8xH100", cp_comm="ulysses", **words)  # type: ignore[arg-type]
    make_request(model, "8x8xH100", **words)  # type: ignore[arg-type]  # a ring takes them


def test_what_is_exchanged_runs_again_with_what_needs_it() -> None:
    """Full recompute, or that of attention alone, runs its exchanges of forward a second time."""
    for way, (forward, backward) in {"ring": (1, 2), "all-gather": (1, 2),
                                     "ulysses": (4, 4)}.items():  # fmt: skip

        def passes(**words: Any) -> tuple[float, float]:
            how = placed("llama2-7b", "1x8xH100", cp=4, cp_comm=way, **words)  # noqa: B023
            return how.context.passes

        assert passes() == (forward, backward)
        assert passes(recompute="full") == (forward, backward + forward)
        some = {"recompute": "selective", "recompute_modules": "core_attn"}
        assert passes(**some) == (forward, backward + forward)
        assert passes(recompute="selective", recompute_modules="mlp") == (forward, backward)


def test_a_ring_hides_half_and_others_nothing() -> None:
    seen = {}
    for way in ("ring", "all-gather", "ulysses"):
        request = make_request("llama2-7b", "1x8xH100", cp=4, cp_comm=way, **BASE)
        assert request.placed is not None
        made = exchanges_of(Points.of(values_of(request), 1), request.placed)
        ((_, op),) = made.once_s
        whole = sum(made.collectives_s(1).values())
        seen[way, op] = float((made.of_stage(1)["context parallel"] / whole)[0])
    assert seen == {("ring", "send_recv"): 0.5, ("all-gather", "all_gather"): 1.0,
                    ("ulysses", "all_to_all"): 1.0}  # fmt: skip


def test_attentions_output_is_kept_twice() -> None:
    """Before it is turned, by attention; behind, by the output's product: N h / P more a layer."""
    words = {**BASE, "seq_len": 65536}
    ring, turned = (
        api.predict("llama2-7b", "1x8xH100", cp=8, cp_comm=way, **words).memory.terms["activations"]
        for way in ("ring", "ulysses")
    )
    assert turned - ring == pytest.approx(32 * 65536 / 8 * 4096 * 2)


def test_what_is_turned_is_kept_of_the_layers_that_do_not_run_again() -> None:
    """N h / P more of each of them; of those that do while they run."""

    def more(terms: tuple[str, ...], **words: Any) -> float:
        ring, turned = (
            sum(memory_result(r).terms.get(t, 0.0) for t in terms)
            for r in (
                make_request("llama2-7b", "1x8xH100", cp=2, cp_comm=way, seq_len=65536,
                             strategy="zero3", precision="bf16", **words)
                for way in ("ring", "ulysses")
            )
        )  # fmt: skip
        return turned - ring

    one = 65536 / 2 * 4096 * 2
    assert more(("activations",)) == pytest.approx(32 * one)
    for first in (1, 16, 30):
        found = more(("activations",), recompute="full", recompute_layers=first)
        assert found == pytest.approx((32 - first) * one)
    # the fullest moment is in a layer that runs again: at most its own
    assert 0.0 <= more(("activations", "working_set"), recompute="full") <= 1.01 * one
    assert 0.0 <= more(("activations", "working_set"), recompute="selective") <= 1.01 * one


def test_the_layout_says_so() -> None:
    assert api.predict("llama2-7b", "1x8xH100", cp=8, cp_comm="ulysses", **BASE).layout == (
        "cp8 ulysses"
    )
    assert api.predict("llama2-7b", "1x8xH100", cp=8, **BASE).layout == "cp8"


def test_a_way_that_nobody_takes_is_told() -> None:
    told = api.predict("llama2-7b", "1x8xH100", cp_comm="ulysses", **BASE)
    plain = api.predict("llama2-7b", "1x8xH100", **BASE)
    assert "cp-comm ulysses changes nothing: cp is 1" in told.assumptions
    assert told.step_time_s == plain.step_time_s
    assert not any("cp-comm" in a for a in plain.assumptions)


def _ranks(model: str, words: dict[str, Any]) -> ContextRanks:
    base: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "recompute": "none"}
    base |= {"micro_batch": 1, "seq_len": 1024}
    placed = make_request(model, "2x8xH100", **{**base, **words}).placed
    assert placed is not None
    return placed.context


def test_context_ranks_by_hand() -> None:
    """8 key heads of 128 of 1024 tokens: k and v gathered once, and again with their gradients."""
    ring = _ranks("llama3-8b", {"cp": 4})
    assert ring.sample_bytes == 1024 * 2 * 8 * 128 * 2
    assert ring.passes == (1.0, 2.0) and ring.seen_frac == 0.5
    assert dict(ring.layer_times) == {"send_recv": 3.0}
    assert dict(ring.collectives) == {"all_gather": 1.0}  # whose formula prices it
    turned = _ranks("llama3-8b", {"cp": 4, "cp_comm": "ulysses"})
    # 32 heads of q and of the output, 8 each of k and v: a quarter of each in one of four exchanges
    assert turned.sample_bytes == 1024 / 4 * (2 * 32 + 2 * 8) * 128 * 2 / 4
    assert dict(turned.layer_times) == {"all_to_all": 8.0}
    assert dict(turned.collectives) == {"all_to_all": 1.0}


def test_fewer_groups_than_ranks_are_copied_where_they_divide_them() -> None:
    """Mamba-2's one group of B and C is copied to both ranks; 3 does not divide 8."""
    record = resolve_model("mamba2-2.7b")
    assert ContextRanks.refused(record, Layout(cp=2, cp_comm="ulysses"), {}) == []
    eight = {"ssm_groups": 8, "ssm_heads": 96}
    (told,) = ContextRanks.refused(record, Layout(cp=3, cp_comm="ulysses"), eight)
    assert "cp=3 and 8 groups a tensor rank" in told


def test_gated_deltanet_exchanges_tokens_for_heads_by_hand() -> None:
    """Qwen3-Next, 16 heads of keys and 32 of values, 128 wide: q, k, v, gate, beta, alpha go, the
    result comes back (Megatron-LM pull request 2642); attention's 16 heads of 256 and 2 of k and v.
    """
    layout, record = Layout(cp=4, cp_comm="ulysses"), resolve_model("qwen3-next-80b-a3b")
    mixers = mixers_of(record.settings({}), layout)
    assert mixers is not None
    assert mixers.taken == (2 * 16 + 2 * 32) * 128 + 2 * 32
    assert (mixers.output, mixers.copied, mixers.layers_frac) == (32 * 128, 0, 0.75)
    assert ContextRanks.refused(record, layout, {}) == []
    turned = _ranks("qwen3-next-80b-a3b", {"cp": 4, "cp_comm": "ulysses"})
    attention = (2 * 16 + 2 * 2 * 2) * 256  # q, output; k and v of 2 heads, twice for 4 ranks
    each = 0.25 * attention + 0.75 * (mixers.taken + mixers.output)
    assert turned.sample_bytes == 1024 / 4 * each / 4 * 2


def test_every_layer_with_a_state_has_a_name_to_be_refused_by() -> None:
    assert context._NAMES.keys() == RECURRENT
    with pytest.raises(InvalidConfig, match="share convolution layers is not modelled"):
        make_request("lfm2-1.2b", "1x8xH100", cp=2)


def test_keys_are_sent_once_by_default() -> None:
    assert on_by_default(Heads) == {"copies": 1}


def test_attention_in_8_bits_halves_what_ulysses_exchanges() -> None:
    """q, k, v and the output are cast before the exchange (Transformer Engine 2.13)."""
    record = resolve_model("llama2-7b")
    fp8 = record.model_copy(update={"config": {**record.config, "attention": "cudnn_fp8"}})
    words = {"cp": 4, "cp_comm": "ulysses", "precision": "fp8"}
    forward, backward = sent("llama2-7b", "1x8xH100", **words)
    assert sent(fp8, "1x8xH100", **words) == (forward / 2, backward / 2)
