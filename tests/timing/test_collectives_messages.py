"""Messages of a step over the ranks of their scope, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import block, group, points, strategy, workload

from simcore.timing.collectives import communicator, group_of, messages_s, scoped
from simcore.timing.evaluate import program_of
from simcore.timing.points import COLLECTIVE_BASE_S, Sending, together

BUCKETS = {"cap_bytes": 1, "first_bytes": 1, "optimizer": "sgd-plain"}


def sending(how: Any) -> Sending:
    """Gradients of 40 and 12 bytes, in a message each."""
    model = workload([block("a", [10]), block("c", [3])])
    return together((program_of(model, how, 1),)).sending


@pytest.mark.parametrize(("n_ranks", "over"), [(1.0, 0.0), (2.0, 1.0), (4.0, 1.5)])
def test_an_all_reduce_by_hand(n_ranks: float, over: float) -> None:
    """2 (n - 1) / n of the bytes at 1 byte/s, on a node for each rank."""
    how = strategy("ddp", **BUCKETS)
    found = messages_s(sending(how), points(n_ranks=n_ranks, n_nodes=n_ranks), how)
    base = COLLECTIVE_BASE_S * (over > 0)
    assert sorted(found[:, 0]) == pytest.approx([12 * over + base, 40 * over + base])


def test_without_communication_messages_take_no_time() -> None:
    how = strategy("ddp", **BUCKETS)
    found = messages_s(sending(how), points(2, use_comm=np.array([1.0, 0.0])), how)
    assert (found[:, 0] > 0).all()
    assert (found[:, 1] == 0).all()


@pytest.mark.parametrize(
    ("scope", "shard", "experts", "ranks", "nodes", "rate"),
    [
        ("all", 4, 1.0, 32, 4, 1.0),
        ("shard", 0, 1.0, 32, 4, 1.0),
        ("shard", 4, 1.0, 4, 1, 1.0),
        ("shard", 16, 1.0, 16, 2, 1.0),
        ("shard", 64, 1.0, 32, 4, 1.0),
        ("replicas", 4, 1.0, 8, 4, 2 / 8),  # two of a node's eight share its NICs
        ("replicas", 16, 1.0, 2, 2, 1 / 8),
        ("experts", 0, 2.0, 16, 4, 4 / 8),
        ("experts", 0, 64.0, 1, 1, 1 / 8),
        ("experts", 0, 0.5, 64, 4, 1.0),  # ranks of another dimension next to its own
    ],
)
def test_scopes_on_four_nodes_of_eight(
    scope: Any, shard: int, experts: float, ranks: float, nodes: float, rate: float
) -> None:
    how = strategy("zero3", shard_ranks=shard, expert_ranks=experts)
    found = scoped(group(32.0, 4.0, inter_bw=100.0), scope, how)
    assert (float(found.n_ranks[0]), float(found.n_nodes[0])) == (ranks, nodes)
    assert float(found.inter_bw_bytes_per_s[0]) == pytest.approx(100.0 * rate)


def test_communicators_are_made_once_for_each_scope_and_shard() -> None:
    axis = points(n_ranks=8.0, n_nodes=2.0)
    halves, whole = (strategy("zero3", shard_ranks=n) for n in (4, 0))
    first = communicator(axis, "shard", halves)
    assert communicator(axis, "shard", halves) is first
    assert float(first.n_ranks[0]) == 4.0
    assert float(communicator(axis, "shard", whole).n_ranks[0]) == 8.0
    assert float(communicator(axis, "replicas", halves).n_ranks[0]) == 2.0


def test_replicas_of_a_shard_lie_as_far_apart_as_the_shard_reaches() -> None:
    """16 ranks on four nodes, shards of eight: two replicas, every second node; on a fabric alone
    are leaves counted from it.
    """
    how = strategy("zero3", "bf16", shard_ranks=8)
    for fabric, stride in ((None, 1.0), (object(), 2.0)):
        on = scoped(group(16.0, 4.0, fabric=fabric), "replicas", how)
        assert (on.n_ranks, on.n_nodes, on.node_stride) == (2.0, 2.0, stride)
    alone = scoped(group(8.0, 1.0, fabric=object()), "experts", strategy(expert_ranks=16))
    assert (alone.n_ranks, alone.n_nodes, alone.node_stride) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("size", "stride", "nodes", "share", "apart"),
    [(8.0, 1.0, 1, 1.0, 1.0), (4.0, 2.0, 1, 0.5, 1.0), (4.0, 8.0, 4, 1 / 8, 1.0),
     (4.0, 16.0, 4, 1 / 8, 2.0), (32.0, 1.0, 4, 1.0, 1.0), (8.0, 4.0, 4, 1 / 4, 1.0)],
)  # fmt: skip
def test_ranks_of_nodes_of_eight_and_their_share_of_the_nics(
    size: float, stride: float, nodes: int, share: float, apart: float
) -> None:
    on = group_of(points(inter_bw_bytes_per_s=80.0), np.array([size]), stride, 8)
    assert (on.n_ranks, on.n_nodes, on.node_stride) == (size, nodes, apart)
    assert on.inter_bw_bytes_per_s == 80.0 * share
