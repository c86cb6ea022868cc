"""Ranks that own whole tensors: how they are dealt out, and what broadcasting them costs."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import strategy

from simcore import api
from simcore.physics.collectives import Group, collective_time_s
from simcore.strategy.programs import program_named
from simcore.timing.collectives import broadcasts_s, owned_numel
from simcore.timing.evaluate import program_of
from simcore.workload.graph import Block, Param, Workload
from simcore.workload.models import MODELS

JOB = {"model": "llama-7b", "strategy": "zero1", "software": "internevo", "precision": "bf16",
       "micro_batch": 1, "seq_len": 2048}  # fmt: skip
SLOW = "200 Gbit/s"


def model(*numels: int) -> Workload:
    params = tuple(Param(f"p{i}", n) for i, n in enumerate(numels))
    return Workload(
        name="x",
        sample_unit="sample",
        blocks=(Block(name="b", ops=(), params=params),),
        order=(0,),
    )


def group(n: float, nodes: float) -> Group:
    one = np.ones(1)
    return Group(n * one, nodes * one, 2e11 * one, 4e10 * one, 3e-6 * one, 1e-5 * one, 1e-5 * one)


def test_the_largest_goes_first_to_who_has_least() -> None:
    """5, 3, 3, 2 over two: 5 and 2, 3 and 3. Over six nobody has two, and two have none."""
    assert owned_numel(model(3, 5, 2, 3), 2) == Counter({7: 1, 6: 1})
    assert owned_numel(model(3, 5, 2, 3), 6) == Counter({5: 1, 3: 2, 2: 1})


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=60), st.integers(1, 90))
def test_dealing_out_loses_nothing_and_is_near_the_best(numels: list[int], n: int) -> None:
    """Graham 1966: who is fullest had no more than an even share before the last tensor came."""
    owned = owned_numel(model(*numels), n)
    assert sum(load * k for load, k in owned.items()) == sum(numels)
    assert owned.total() == min(n, len(numels))
    assert max(numels) <= max(owned) <= sum(numels) / n + (1 - 1 / n) * max(numels) + 1e-6


def test_owners_broadcast_one_after_another() -> None:
    whole, ring = model(3_000_000, 5_000_000, 2_000_000, 3_000_000), group(16, 2)
    sizes = np.array([[2.0 * n] for n in (5_000_000, 3_000_000, 3_000_000, 2_000_000)])
    by_hand = collective_time_s("broadcast", sizes, ring).sum()
    assert broadcasts_s(whole, 2.0, ring)[0] == pytest.approx(by_hand)
    assert broadcasts_s(whole, 2.0, group(1, 1))[0] == 0.0


def test_more_ranks_wait_longer_until_each_tensor_has_its_owner() -> None:
    """The bytes stay; the latency of a ring for each owner comes on top."""
    llama = MODELS["llama-7b"].build()
    took = [broadcasts_s(llama, 2.0, group(8.0 * n, n))[0] for n in (2, 8, 32, 128)]
    assert took == sorted(took)
    tensors = sum(len(b.params) for b in llama.instances())
    at = group(1024, 128)
    latency = collective_time_s("broadcast", np.zeros((1, 1)), at)[0, 0]
    least = collective_time_s("broadcast", np.array([[2.0 * llama.trainable_numel]]), at)[0, 0]
    assert took[-1] >= least + (tensors - 1) * latency


def test_gradients_are_summed_among_all_whatever_the_shard() -> None:
    how = strategy("zero1", "bf16", shard_ranks=8)
    sent = {(c.op, c.scope) for c in program_of(MODELS["llama-7b"].build(), how, 1).comm}
    assert sent == {
        ("reduce_scatter", "shard"),
        ("all_reduce", "replicas"),
        ("all_gather", "shard"),
    }
    how = strategy("zero1", "bf16", shard_ranks=8, program=program_named("internevo"))
    sent = {(c.op, c.scope) for c in program_of(MODELS["llama-7b"].build(), how, 1).comm}
    assert sent == {("all_reduce", "all")}


def test_a_shard_of_a_node_beats_one_of_all_ranks() -> None:
    """InternLM's own finding (doc/en/train_performance.md): zero1=8 scales, zero1=-1 does not."""

    def step_s(nodes: int, shard: int | None) -> float:
        found = api.predict(**JOB, gpus=f"{nodes}x8xA100-SXM-80GB", network=SLOW, shard_ranks=shard)
        return found.step_time_s.value

    alone = step_s(1, None)
    assert step_s(128, 8) - alone < 0.5 * (step_s(128, None) - alone)


def test_the_fullest_owner_has_no_less_than_the_largest_tensor() -> None:
    """Embeddings of 32,000 x 4,096: masters and moments are 12 bytes an element."""
    found = api.predict(**JOB, gpus="16x8xA100-SXM-80GB")
    assert found.memory.terms["optimizer_state"] == pytest.approx(12 * 32_000 * 4096)
    plain = api.predict(**{**JOB, "software": "plain"}, gpus="16x8xA100-SXM-80GB")
    assert plain.memory.terms["optimizer_state"] < found.memory.terms["optimizer_state"]


def test_zero3_shards_every_tensor_though_its_program_owns_them_whole_under_zero1() -> None:
    """Nothing is broadcast: the step is that of plain ZeRO-3."""
    job = {**JOB, "gpus": "1x8xA100", "strategy": "zero3"}
    own, plain = (api.predict(**{**job, "software": s}) for s in ("internevo", "plain"))
    assert own.step_time_s.value == pytest.approx(plain.step_time_s.value, rel=1e-9)
