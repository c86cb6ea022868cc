"""Imbalance and capacity of experts: identities, bounds, and that more rows are never quicker."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import group

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.request.emit import launch_file
from simcore.step.parallel.expert import ExpertRanks
from simcore.timing.exchanges import exchange_bytes, exchanges_of
from simcore.timing.points import Points
from simcore.timing.steps import point_values
from simcore.workload.models import MODELS

MODEL, GPUS = "deepseek-v2-lite", "2x8xH100"
BASE: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "ep": 16, "recompute": "none"}
EXACT = 1e-12


@cache
def _ask(words: tuple[tuple[str, Any], ...]) -> api.Prediction:
    return api.predict(MODEL, GPUS, **{**BASE, **dict(words)})


def ask(**words: Any) -> api.Prediction:
    return _ask(tuple(sorted(words.items())))


def figures(p: api.Prediction) -> tuple[Any, ...]:
    return (p.step_time_s.value, p.step_time_s.low, p.step_time_s.high, p.mfu_frac,
            p.memory.needed_bytes, p.memory.terms, p.time_s)  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [{"expert_imbalance": 1}, {"expert_capacity": 2.5, "expert_padding": "off"}],
)
def test_one_is_balanced_and_drops_nothing(words: dict[str, Any]) -> None:
    assert figures(ask(**words)) == figures(ask())


@pytest.mark.parametrize(
    "words", [{"expert_capacity": 1.0}, {"expert_capacity": "1", "expert_imbalance": "1.7"}]
)
def test_a_slot_for_each_token_is_balanced_and_needs_no_counts(words: dict[str, Any]) -> None:
    """The host knows how many rows each expert has, and the device waits for nothing."""
    unread = ask(settings="waits_for_counts=false")
    assert figures(ask(**words)) == figures(unread)
    assert unread.step_time_s.value < ask().step_time_s.value


def test_imbalance_needs_ranks_to_be_uneven() -> None:
    assert figures(ask(ep=1, expert_imbalance=1.5)) == figures(ask(ep=1))
    told = ask(ep=1, expert_imbalance=1.5).assumptions
    assert any("changes nothing" in text for text in told)


def test_padding_costs_the_same_without_expert_ranks() -> None:
    """Slots are computed whoever holds the experts; what tokens ask for stays what it was."""
    even, padded = ask(ep=1), ask(ep=1, expert_capacity=1.5)
    assert padded.step_time_s.value > even.step_time_s.value
    ratio = even.step_time_s.value / padded.step_time_s.value
    assert padded.mfu_frac == pytest.approx(even.mfu_frac * ratio)


def test_a_capacity_caps_the_imbalance() -> None:
    capped = {"expert_capacity": 1.2, "expert_padding": "off"}
    assert figures(ask(expert_imbalance=1.5, **capped)) == figures(ask(expert_imbalance=1.2))
    assert figures(ask(expert_imbalance=1.1, **capped)) == figures(ask(expert_imbalance=1.1))


def test_no_rank_gets_more_than_all_tokens() -> None:
    assert figures(ask(ep=2, expert_imbalance=5)) == figures(ask(ep=2, expert_imbalance=2))


FACTORS = st.floats(1.0, 4.0).map(lambda x: round(x, 3))


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep", "hybridep"])
@pytest.mark.parametrize("word", ["expert_imbalance", "expert_capacity"])
@settings(max_examples=12, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip
@given(pair=st.tuples(FACTORS, FACTORS), recompute=st.sampled_from(["none", "full"]))
def test_more_rows_are_never_quicker_nor_smaller(
    word: str, dispatcher: str, pair: tuple[float, float], recompute: str
) -> None:
    few, many = (ask(**{word: x}, dispatcher=dispatcher, recompute=recompute) for x in sorted(pair))
    assert many.step_time_s.value >= few.step_time_s.value * (1 - EXACT)
    # tensors: holes beside them depend on which operator holds most
    assert many.memory.allocated_bytes >= few.memory.allocated_bytes * (1 - EXACT)
    assert many.mfu_frac <= few.mfu_frac * (1 + EXACT)


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ({}, 1.0),
        ({"expert_imbalance": 1.3}, 1.3),
        ({"expert_capacity": 1.25}, 1.25),
        ({"expert_capacity": 1.25, "dispatcher": "deepep"}, 1.0),
        ({"expert_imbalance": 1.3, "expert_capacity": 1.25, "expert_padding": "off"}, 1.25),
    ],
)
def test_bytes_of_an_exchange(words: dict[str, Any], sent: float) -> None:
    """2 samples of seq x hidden in bf16, six copies of each token (deepseek-v2-lite's top-k)."""
    request = make_request(MODEL, GPUS, **BASE, **words, seq_len=1024)
    assert request.placed is not None
    found = exchange_bytes(request.placed, np.array([2.0]))["expert parallel"][0]
    assert found == pytest.approx(2 * 1024 * 2048 * 2 * 6 * sent)


@pytest.mark.parametrize(
    ("called", "is_"), [("DeepEP", "deepep"), ("HybridEP", "hybridep"), ("flex", "deepep")]
)
def test_what_sends_a_token_once_is_called(called: str, is_: str) -> None:
    request = make_request(MODEL, GPUS, **BASE, dispatcher=called)
    assert request.placed is not None and request.placed.layout.dispatcher == is_
    assert figures(ask(dispatcher=called)) == figures(ask(dispatcher=is_))


@pytest.mark.parametrize(
    ("dispatcher", "ep", "beside"),
    [
        ("hybridep", 8, 4 * 128),  # in fp32, of all experts: the node has them
        ("hybridep", 16, 4 * 64),  # of a node's
        ("deepep", 8, (4 + 4 + 8) / 2 * 8),  # there and back, int64 indices there alone
        ("alltoall", 8, 4),
    ],
)
def test_routing_weights_go_beside_half_of_the_exchanges(
    dispatcher: str, ep: int, beside: float
) -> None:
    """Qwen3 30B-A3B: rows of 2,048 in bf16, 128 experts of which a token takes 8."""
    asked = make_request(
        "qwen3-30b-a3b", "2x8xB200", software="megatron", precision="bf16", micro_batch=1,
        strategy="zero1", main_grads="fp32", ep=ep, dispatcher=dispatcher,
    )  # fmt: skip
    assert asked.placed is not None
    assert asked.placed.expert.weights_frac == pytest.approx(beside / (2048 * 2))
    none = replace(asked.placed, expert=replace(asked.placed.expert, weights_frac=0.0))
    points = Points.of(point_values(asked.cluster, asked.profile, "", 64.0, 1.0), 1)
    found, bare = (
        exchanges_of(points, p).once_s["expert parallel", "all_to_all"][0]
        for p in (asked.placed, none)
    )
    if dispatcher == "alltoall":  # an exchange of their own, which takes its latency at least
        assert bare < found < 1.5 * bare
    else:  # the average of exchanges with and without them, but for latency
        assert bare < found <= bare * (1 + beside / (2048 * 2) / 2)
        assert found / bare - 1 == pytest.approx(beside / (2048 * 2) / 2, rel=0.2)


def test_kept_activations_of_the_fullest_rank() -> None:
    """Of each more row of a layer of experts: its input, gate, up and the product, in bf16."""
    seq, layers, hidden, ffn, top_k = 1024, 26, 2048, 1408, 6
    parts = []
    for imbalance in (1.0, 1.5):
        request = make_request(MODEL, GPUS, **BASE, seq_len=seq, expert_imbalance=imbalance)
        assert request.placed is not None
        part = request.placed.part.saved
        parts.append(part.low + part.matmul)
    # gate and up apart and not fused: the activated gate is kept beside them
    fused = request.placed.part.blocks[2].ops
    kept = sum(
        (op.saved.low + op.saved.matmul) for op in fused
        if op.name.startswith("experts.") or op.name in ("silu", "product")
    ) / (seq * top_k * 1.5)  # fmt: skip
    assert kept >= hidden + 3 * ffn
    assert parts[1] - parts[0] == pytest.approx(0.5 * seq * top_k * layers * kept)


@pytest.mark.parametrize("word", ["expert_imbalance", "expert_capacity"])
@pytest.mark.parametrize("value", [0.9, float("nan"), "much", -3])
def test_what_is_no_factor_is_one_sentence(word: str, value: object) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make_request(MODEL, GPUS, **BASE, **{word: value})
    (sentence,) = caught.value.violations
    assert word.replace("_", "-") in sentence


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("llama3-8b", {"expert_imbalance": 1.2}, "has no experts for expert-imbalance"),
        ("resnet-50", {"expert_capacity": 1.2}, "has no experts for expert-capacity"),
        (MODEL, {"expert_padding": "on"}, "needs expert-capacity"),
        (MODEL, {"expert_capacity": 2, "expert_padding": "no"}, "expert-padding"),
        (MODEL, {"expert_capacity": 11}, "more than experts / top-k = 10.6667"),
    ],
)
def test_what_does_not_fit_the_model(model: str, words: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        make_request(model, GPUS, **words)
    (sentence,) = caught.value.violations
    assert said in sentence


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "balanced"),
        ({"expert_imbalance": 1.3}, "fullest expert rank 1.3 x"),
        ({"expert_capacity": 1.25}, "1.25 x the mean rows, padding included"),
        ({"expert_capacity": 1.25, "expert_padding": "off"}, "beyond 1.25 x the mean rows"),
    ],
)
def test_assumptions_say_it(words: dict[str, Any], said: str) -> None:
    assert sum(said in text for text in ask(**words).assumptions) == 1
    mfu = api.explain(MODEL, GPUS, "mfu", **{**BASE, **words})
    assert ("padding" in mfu.formula) == (ask(**words).mfu_frac < ask().mfu_frac)


def test_a_sweep_takes_both_as_axes() -> None:
    found = api.sweep(MODEL, GPUS, **BASE, expert_imbalance="1,1.3", expert_capacity=[2, 3.5])
    assert found.n_evaluated == 4
    times = found.columns()["step_time_s"]
    words = [dict(b.form.options) for b in found.batches]  # type: ignore[union-attr]
    for seconds, said in zip(times, words, strict=True):
        asked = {w: said[w] for w in ("expert_imbalance", "expert_capacity")}
        assert seconds == pytest.approx(ask(**asked).step_time_s.value)
    with pytest.raises(InvalidConfig, match="expert-imbalance must be a number of at least 1"):
        api.sweep(MODEL, GPUS, **BASE, expert_imbalance="0.5,1")


@pytest.mark.parametrize("padding", ["on", "off"])
def test_a_megatron_file_says_the_capacity(padding: str) -> None:
    words = {**BASE, "expert_imbalance": 1.3, "expert_capacity": 1.25, "expert_padding": padding}
    asked = make_request(MODEL, GPUS, **words, grad_clip=True)
    made = launch_file("megatron", asked, None)
    assert ("--moe-pad-expert-input-to-capacity" in made.text) == (padding == "on")
    assert "expert-imbalance 1.3" in made.left
    back = make_request(MODEL, GPUS, launch=made.text, expert_imbalance=1.3)
    assert back.strategy.routing == asked.strategy.routing
    assert back.workload is asked.workload


def test_a_file_with_a_capacity_for_a_model_without_experts() -> None:
    flags = "--micro-batch-size 1 --bf16 --moe-expert-capacity-factor 1.25"
    assert make_request("llama3-8b", "1x8xH100", launch=flags).strategy.routing.capacity is None


def test_rows_of_a_latent_width_are_what_experts_exchange() -> None:
    """Nemotron 3 Super brings 4,096 numbers to 1,024 before dispatch (fc1_latent_proj)."""
    record, found = MODELS["nemotron-3-super-120b-a12b"], []
    for latent in (1024, 0):
        own = record.model_copy(update={"config": {**record.config, "expert_latent": latent}})
        request = make_request(own, "8x8xH100", ep=8, seq_len=1024, strategy="zero1")
        assert request.placed is not None
        found.append(exchange_bytes(request.placed, np.array([1.0]))["expert parallel"][0])
    assert found == [1024 * 22 * 1024 * 2, 1024 * 22 * 4096 * 2]


def _ranks(model: str, words: dict[str, Any]) -> ExpertRanks:
    base: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "recompute": "none"}
    base |= {"micro_batch": 1, "seq_len": 1024}
    placed = make_request(model, "2x8xH100", **{**base, **words}).placed
    assert placed is not None
    return placed.expert


def test_expert_ranks_by_hand() -> None:
    """Two copies of 1024 tokens of 4096 in bf16: out and back, forward and backward."""
    plain = _ranks("mixtral-8x7b", {"ep": 8})
    assert plain.sample_bytes == 2 * 1024 * 4096 * 2
    assert plain.passes == (2.0, 2.0) and plain.hidden_backward_frac == 0.5
    assert dict(plain.layer_times) == {"all_to_all": 4.0}
    again = _ranks("mixtral-8x7b", {"ep": 8, "recompute": "full"})
    assert again.passes == (2.0, 4.0) and again.hidden_backward_frac == pytest.approx(4 / 6)
    halved = _ranks("mixtral-8x7b", {"ep": 8, "tp": 2, "expert_imbalance": 1.5})
    assert halved.sample_bytes == 1.5 * 2 * 1024 * 4096 * 2 / 2
    some = _ranks("deepseek-v3", {"ep": 16, "strategy": "zero3"})
    assert some.layers_frac == pytest.approx(58 / 61)  # three layers are dense
    empty = _ranks("mixtral-8x7b", {"ep": 8, "settings": {"zero_experts": 8}})
    assert empty.sample_bytes == plain.sample_bytes / 2  # the other half stays where it is


def test_a_token_that_is_sent_once_saves_the_copies() -> None:
    """Of two copies to eight ranks 8 (1 - (7/8)^2) / 2 travel."""
    link = group(8.0, intra_bw=1e11)
    plain, once = (
        _ranks("mixtral-8x7b", {"ep": 8, "dispatcher": d}) for d in ("alltoall", "hybridep")
    )
    bytes_, share = np.array([1e11]), 8 * (1 - (7 / 8) ** 2) / 2
    weights = 1 + 0.5 * 4 * 8 / (4096 * 2)  # fp32, of all eight experts, beside half of the rows
    first, second = (r.once_s(bytes_, link)["all_to_all"][0] for r in (plain, once))
    assert second / first == pytest.approx(share * weights, rel=1e-3)


def test_weights_of_a_plain_exchange_travel_alone_in_half_of_the_exchanges() -> None:
    """1 GB of rows at 10 GB/s, 7 of 8 parts leave; a hundredth of it in every second exchange."""
    plain = replace(_ranks("mixtral-8x7b", {"ep": 8}), weights_frac=0.0)
    rows = plain.once_s(np.array([1e9]), group(8.0))["all_to_all"][0]
    assert rows == pytest.approx(7 / 8 * 0.1)
    beside = replace(plain, weights_frac=0.01)
    found = beside.once_s(np.array([1e9]), group(8.0))["all_to_all"][0]
    assert found == pytest.approx(7 / 8 * 0.1 * (1 + 0.5 * 0.01))


def test_deepeps_processors_limit_nvlink_of_blackwell_alone() -> None:
    """20 SMs of 19.8 GB/s bring 396 GB/s of rows; of a bus bandwidth that is 7/8 of it."""
    deep = replace(_ranks("mixtral-8x7b", {"ep": 8, "dispatcher": "deepep"}), weights_frac=0.0)
    travelling = 8 * (1 - (7 / 8) ** 2) / 2  # two copies to random ones of eight ranks

    def seconds(generation: int, intra_bw: float = 1e12) -> float:
        on = group(8.0, generation=generation, nvlink=True, intra_bw=intra_bw)
        return float(deep.once_s(np.array([1e12]), on)["all_to_all"][0])

    assert seconds(3) == pytest.approx(travelling * 7 / 8 * 1e12 / (396e9 * 7 / 8))
    assert seconds(2) == pytest.approx(travelling * 7 / 8 * 1e12 / 1e12)
    assert seconds(3, 1e11) == seconds(2, 1e11)  # slower than the SMs
    # the measured rate includes what is lost between latency and bandwidth: both just add up

    def late(n_bytes: float, hop_s: float) -> float:
        on = group(8.0, generation=3, nvlink=True, intra_hop_s=hop_s, intra_chunk_ramp=1.0)
        return float(deep.once_s(np.array([n_bytes]), on)["all_to_all"][0])

    assert late(1e6, 1e-3) == pytest.approx(late(0.0, 1e-3) + late(1e6, 0.0), rel=1e-12)
    assert late(0.0, 1e-3) > 0.0


def test_ranks_alone_on_their_nodes_are_limited_by_the_network_alone() -> None:
    """DeepEP's processors copy rows within a node; 4 nodes of one rank: 3/4 at the NIC's rate."""
    deep = replace(_ranks("mixtral-8x7b", {"ep": 8, "dispatcher": "deepep"}), weights_frac=0.0)
    on = group(4.0, 4.0, generation=3, nvlink=True, intra_bw=1e12, inter_bw=1e10)
    plain = group(4.0, 4.0, generation=2, nvlink=True, intra_bw=1e12, inter_bw=1e10)
    found, other = (deep.once_s(np.array([1e12]), g)["all_to_all"][0] for g in (on, plain))
    travelling = 4 * (1 - (3 / 4) ** 2) / 2
    assert found == pytest.approx(travelling * 3 / 4 * 1e12 / 1e10) == other
