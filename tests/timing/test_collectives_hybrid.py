"""Hybrid sharding, summed gradients and overlap, by hand and by what must not happen."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from strategies import strategy

from simcore import api
from simcore.answer.alone import Points, group_of, point_values
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.physics.collectives import Group
from simcore.physics.collectives.pairwise import exchange_s, once_each_frac
from simcore.strategy.layout import Overlap, parse_overlap
from simcore.timing.collectives import scoped
from simcore.timing.evaluate import program_of
from simcore.timing.exchanges import exchanges_of, exposed
from simcore.workload.models import MODELS

BASE = {"micro_batch": 1, "precision": "bf16", "seq_len": 1024}
FAR = "50 Gbit/s"


def group(n, nodes):
    one = np.ones(1)
    return Group(n * one, nodes * one, 2e11 * one, 4e10 * one, 0 * one, 0 * one, 0 * one)


def sharded(ranks):
    return strategy("zero3", "bf16", shard_ranks=ranks)


@pytest.mark.parametrize(
    ("spread", "ranks", "nodes", "rate"),
    [
        (1.0, 32, 4, 4e10),
        (4.0, 8, 4, 4e10 / 4),  # two in a node; the rings of four sets share its NICs
        (8.0, 4, 4, 4e10 / 8),
        (32.0, 1, 1, 4e10 / 8),  # nothing left to share: no message
        (0.5, 64, 4, 4e10),  # tensor ranks hold more of them
    ],
)
def test_experts_are_reduced_over_those_that_hold_the_same(spread, ranks, nodes, rate):
    how = replace(strategy("zero1", "bf16"), expert_ranks=spread)
    found = scoped(group(32, 4), "experts", how)
    assert (found.n_ranks[0], found.n_nodes[0]) == (ranks, nodes)
    assert found.inter_bw_bytes_per_s[0] == pytest.approx(rate)


@pytest.mark.parametrize("name", ["ddp", "zero1", "zero2", "zero3"])
def test_only_experts_bytes_leave_the_dense_message(name):
    """Each byte once: what all ranks and what the experts' ranks reduce add up to all gradients."""
    record = MODELS["mixtral-8x7b"]
    model = record.build(layers=2)
    how = strategy(name, "bf16")
    for spread in (1.0, 8.0):
        program = program_of(model, replace(how, expert_ranks=spread), 1)
        ops = ("all_reduce", "reduce_scatter")
        sent = {
            s: sum(sum(c.sizes_bytes) for c in program.comm if c.op in ops and c.scope == s)
            for s in ("all", "shard", "experts")
        }
        assert sent["experts"] == (2 * model.expert_numel if spread > 1 else 0)
        assert sum(sent.values()) == 2 * model.trainable_numel


def test_ranks_of_a_shard_are_neighbours_and_replicas_lie_apart():
    """4 nodes of 8, sharded over 8: a shard stays in its node, 8 rings share each node's NICs."""
    shard = scoped(group(32, 4), "shard", sharded(8))
    assert (shard.n_ranks[0], shard.n_nodes[0]) == (8, 1)
    replicas = scoped(group(32, 4), "replicas", sharded(8))
    assert (replicas.n_ranks[0], replicas.n_nodes[0]) == (4, 4)
    assert replicas.inter_bw_bytes_per_s[0] == pytest.approx(4e10 / 8)
    # Two of a node's ranks hold the same shard.
    four = scoped(group(32, 4), "replicas", sharded(4))
    assert (four.n_ranks[0], four.n_nodes[0]) == (8, 4)
    assert four.inter_bw_bytes_per_s[0] == pytest.approx(4e10 / 4)
    wide = scoped(group(32, 4), "shard", sharded(16))
    assert (wide.n_ranks[0], wide.n_nodes[0]) == (16, 2)


def test_hybrid_sharding_spares_the_network_and_costs_memory():
    whole = api.predict("gpt2-xl", "4x8xA100", strategy="zero3", network=FAR, **BASE)
    hybrid = api.predict(
        "gpt2-xl", "4x8xA100", strategy="zero3", network=FAR, shard_ranks=8, **BASE
    )
    assert hybrid.step_time_s.value < 0.8 * whole.step_time_s.value
    assert hybrid.memory.allocated_bytes > whole.memory.allocated_bytes
    every = api.predict(
        "gpt2-xl", "4x8xA100", strategy="zero3", network=FAR, shard_ranks=32, **BASE
    )
    # one replica: nothing is left to average, but the messages of a ring of one are none
    assert every.step_time_s.value == pytest.approx(whole.step_time_s.value, rel=1e-6)


def test_shards_must_divide_the_ranks():
    with pytest.raises(InvalidConfig, match="shard-ranks=5"):
        make_request("gpt2-small", "2x8xA100", strategy="zero3", shard_ranks=5, **BASE)
    with pytest.raises(InvalidConfig, match="needs zero1"):
        make_request("gpt2-small", "2x8xA100", strategy="ddp", shard_ranks=8, **BASE)


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2"])
def test_overlap_of_gradients_never_costs(strategy):
    shown = api.predict("gpt2-xl", "2x8xA100", strategy=strategy, overlap="none", network=FAR,
                        **BASE)  # fmt: skip
    hidden = api.predict("gpt2-xl", "2x8xA100", strategy=strategy, overlap="grads", network=FAR,
                         **BASE)  # fmt: skip
    assert hidden.step_time_s.value < shown.step_time_s.value


def test_parameters_gathered_under_forward():
    late = api.predict("gpt2-xl", "2x8xA100", strategy="zero1", overlap="grads", **BASE)
    early = api.predict("gpt2-xl", "2x8xA100", strategy="zero1", overlap="grads,params", **BASE)
    assert early.step_time_s.value < late.step_time_s.value

    # what is hidden still runs: communication takes no less in all
    def total(p):
        return p.time_s["communication_exposed"] + p.time_s["communication_hidden"]

    assert total(early) >= 0.95 * total(late)


def test_a_tensor_exchange_in_pieces_leaves_one_bare():
    request = make_request("gpt2-medium", "1x4xA100", tp=4, overlap="tensor", **BASE)
    seconds = {"tensor parallel": np.array([8.0])}
    # room enough: the first of 4 pieces, and what the other three slow compute by
    seen = exposed(seconds, request.placed, np.array([1e4]), np.array([0.1]))
    assert seen["tensor parallel"][0] == pytest.approx(2.0 + 6.0 * 0.1)
    # too little compute: each of four sums beside 3/4 of its product; of 12 h^2 a layer qkv, out,
    # up and down have 3, 1, 4 and 4, scores and context 2 more, the head 50,257 columns; each
    # forward once and both ways back
    seen = exposed(
        seconds, request.placed, np.array([100.0]), np.array([0.1]), 0.0, np.array([10.0])
    )
    every = 3.0 * (24 * 14 + 50_257 / 1024)
    beside = sum(min(1.5, 10.0 * 0.75 * 24 * part / every) for part in (3, 1, 4, 4))
    assert seen["tensor parallel"][0] == pytest.approx(8.0 - 0.9 * beside, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        # of two all-reduces forward and two backward, backward's
        ({"sequence_parallel": False}, 2 / 4),
        # recompute runs forward's again, in the way
        ({"sequence_parallel": False, "recompute": "full"}, 2 / 6),
        # of two scatters and two gathers each way backward's scatters, and what it gathers again
        ({"sequence_parallel": True}, (1 + 1) / 5),
    ],
)
def test_gradients_of_inputs_beside_those_of_weights(words, hidden):
    request = make_request("gpt2-medium", "1x4xA100", tp=4, overlap="dgrad", **words, **BASE)
    seconds = {"tensor parallel": np.array([8.0])}
    seen = exposed(seconds, request.placed, np.array([1e3]), np.array([0.1]))
    assert seen["tensor parallel"][0] == pytest.approx(8.0 * (1.0 - hidden * 0.9))


def test_only_weight_gradients_of_column_products_cover_them():
    request = make_request(
        "gpt2-medium", "1x4xA100", tp=4, overlap="dgrad", sequence_parallel=False,
        software="megatron", **BASE,
    )  # fmt: skip
    # a layer of hidden h: qkv 3 h^2 and up 4 h^2 of 12 h^2, a third of whose passes are theirs;
    # scores and context are without weights
    products = 12 * 1024 + 1024  # causal: half of 2 s h
    share = 7 * 1024 / (3 * products)
    (pair,) = request.placed.tensor.pairs
    assert pair.covering_frac == pytest.approx(share, rel=0.03)
    seen = exposed(
        {"tensor parallel": np.array([8.0])}, request.placed, np.array([10.0]), np.array([0.1])
    )
    room = 10.0 * pair.covering_frac
    assert seen["tensor parallel"][0] == pytest.approx(8.0 - room * 0.9)


def test_words_of_overlap():
    assert parse_overlap(None) == Overlap(grads=True)
    assert str(parse_overlap("none")) == "none"
    assert parse_overlap("tensor, params") == Overlap(grads=False, tensor=True, params=True)
    with pytest.raises(UnknownName, match="params"):
        parse_overlap("parms")


@pytest.mark.parametrize("places", [1, 2, 3, 4, 5, 6, 7, 8, 32])
def test_tokens_of_some_groups_reach_fewer_places(places):
    """Counted over every choice of 4 of 8 groups: units lie in order over groups and places."""
    units, copies = 3360, 8
    held = []
    for chosen in combinations(range(8), 4):
        within = [p for p in range(units) if p * 8 // units in chosen]
        shares = np.bincount([u * places // units for u in within], minlength=places) / len(within)
        held.append((1 - (1 - shares) ** copies).sum())
    share = once_each_frac(np.array([float(places)]), copies, 8, 4)[0]
    assert share * copies == pytest.approx(np.mean(held))
    assert share <= once_each_frac(np.array([float(places)]), copies)[0] + 1e-12


def test_a_router_that_groups_its_experts_sends_less():
    """DeepSeek-V3's tokens go to 4 of 8 nodes (2024, 2.1.2); all experts alike would be more."""

    grouped = MODELS["deepseek-v3"]
    everywhere = grouped.model_copy(update={"config": {**grouped.config, "top_groups": 8}})

    def step(model):
        return api.predict(
            model, "8x8xH800", ep=64, dispatcher="deepep", recompute="full", micro_batch=1,
            precision="bf16",
        ).step_time_s.value  # fmt: skip

    assert step(grouped) < step(everywhere)


def test_tokens_to_a_node_once():
    """Of 8 copies over 2 nodes half cross; sent once, a token crosses with 1 - 2^-8."""
    share = once_each_frac(np.array([2.0]), 8)[0]
    assert share * 8 * 0.5 == pytest.approx(1 - 0.5**8)
    assert once_each_frac(np.array([1.0]), 8)[0] == pytest.approx(1 / 8)
    assert once_each_frac(np.array([4.0]), 1)[0] == pytest.approx(1.0)


def test_dispatch_is_bound_by_the_wire_it_uses_most():
    g = group(16, 2)
    plain = exchange_s(np.array([[1e9]]), g)[0, 0]
    # 8/16 of a rank's gigabyte leaves; 8 ranks share 40 GB/s
    assert plain == pytest.approx(0.5 * 1e9 * 8 / 4e10)
    once = exchange_s(np.array([[1e9]]), g, 0.01)[0, 0]
    assert once == pytest.approx(7 / 16 * 1e9 / 2e11)
    thrice = exchange_s(np.array([[1e9]]), g, 0.01, 3.0)[0, 0]
    assert thrice == pytest.approx(3 * once)


@pytest.mark.parametrize(
    ("cluster", "measured_gb_per_s"),
    [("1x8xB200", 704), ("1x8xGB200", 750), ("1x32xGB200", 623),
     ("4x8xH100", 57.6), ("8x8xH100", 49.9)],
)  # fmt: skip
def test_hybrid_ep_alone(cluster, measured_gb_per_s):
    """HybridEP's kernels (DeepEP, docs/README_Hybrid-EP.md): rows that ranks receive a second, or
    on several nodes those that nodes do, their own among them.
    """
    gpus = parse_cluster(cluster)
    values = point_values(gpus, load_profile(), "", 1.0, 1.0)
    points = Points.of(values, 1)
    g = group_of(points, points.n_ranks, 1.0, int(values["gpus_per_node"]))
    nodes, ranks = once_each_frac(g.n_nodes, 8), once_each_frac(g.n_ranks, 8)
    sent = 4096 * 7168 * 2.0 * 8  # tokens, their width, bytes, experts of a token
    seconds = exchange_s(np.array([[sent]]), g, nodes, ranks * g.n_nodes)
    received = sent * (nodes if g.n_nodes[0] > 1 else ranks)[0]
    assert received / seconds[0, 0] / 1e9 == pytest.approx(measured_gb_per_s, rel=0.15)


@pytest.mark.parametrize("cluster", ["1x8xB200", "1x8xGB200"])
def test_deep_ep_within_a_node_is_bound_by_its_sms(cluster):
    """DeepEP, docs/README_Hybrid-EP.md, its own kernels, 4,096 tokens of 7,168, top 8: rows that a
    rank receives with 16 SMs, 348 and 362 GB/s in dispatch, 302 and 310 in combination; with 24
    494 and 513, 420 and 426. Megatron-Core gives it 20.
    """
    record = MODELS["deepseek-v3"]
    model = record.model_copy(update={"config": {**record.config, "top_groups": 8}})
    asked = make_request(
        model, cluster, ep=8, dispatcher="deepep", precision="bf16", micro_batch=1,
        strategy="zero1",
    )  # fmt: skip
    points = Points.of(point_values(asked.cluster, load_profile(), "", 1.0, 1.0), 1)
    seconds = exchanges_of(points, asked.placed).once_s["expert parallel", "all_to_all"][0]
    received = 4096 * 7168 * 2.0 * 8 * (1 - (7 / 8) ** 8)
    few, many = (2 / (1 / 362 + 1 / 310), 2 / (1 / 494 + 1 / 420))
    assert few < received / seconds / 1e9 < many
    hybrid = replace(asked.placed, expert=replace(asked.placed.expert, sms_bound=False))
    quicker = exchanges_of(points, hybrid).once_s["expert parallel", "all_to_all"][0]
    assert quicker < 0.7 * seconds
    alone = replace(asked.placed, gpus_per_node=1)  # no rank has neighbours
    assert np.isfinite(exchanges_of(points, alone).once_s["expert parallel", "all_to_all"]).all()


def test_recompute_of_some_layers_lies_between_none_and_all():
    def step(**options):
        # so large a batch that memory peaks in backward, not in the optimizer's copies
        return api.predict("gpt2-xl", "1x8xA100", **options, **{**BASE, "micro_batch": 32})

    none, some, every = step(), step(recompute="full", recompute_layers=24), step(recompute="full")
    assert none.step_time_s.value < some.step_time_s.value < every.step_time_s.value
    assert none.memory.allocated_bytes > some.memory.allocated_bytes > every.memory.allocated_bytes
    with pytest.raises(InvalidConfig, match="needs recompute"):
        step(recompute_layers=3)


@pytest.mark.parametrize(("words", "ranks"), [({}, 8), ({"tp": 2}, 4), ({"shard_ranks": 16}, 16)])
def test_hsdp_is_zero3_over_the_data_ranks_of_a_node(words, ranks):
    named = api.predict("llama3-8b", "4x8xH100", **BASE, **words | {"strategy": "hsdp"})
    told = {"strategy": "zero3", "shard_ranks": ranks}
    assert named == api.predict("llama3-8b", "4x8xH100", **BASE, **words | told)
    assert named.shard_ranks == ranks
    assert f"zero3 in groups of {ranks}" in str(named)


def test_hsdp_on_one_node_is_zero3():
    one, all_ = (api.predict("gpt2", "8xH100", strategy=s) for s in ("hsdp", "zero3"))
    assert one == all_ and "groups" not in str(one)


@pytest.mark.parametrize("name", ["hsdp", "fsdp", "HYBRID_SHARD", "zero3"])
def test_torch_s_sharding_beside_tensor_ranks_is_no_megatron_s(name):
    found = api.predict("llama3-8b", "4x8xH100", **BASE, tp=2, strategy=name)
    assert not any("megatron" in text for text in found.assumptions)
