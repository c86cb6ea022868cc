"""Seconds of a step's collectives among the ranks of their scope.

Also of those with costs of their own: through lists of tensors, from the owners of whole tensors,
and of the statistics of norms.

# C configs, M messages, n ranks
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from heapq import heapify, heapreplace

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import Same
from simcore.base.units import FP32_BYTES
from simcore.physics.collectives import Collective, Group, collective_time_s
from simcore.step.program import Scope, gradient_buckets, outline
from simcore.strategy.programs.mechanisms import TensorLists
from simcore.strategy.strategy import Strategy
from simcore.timing.points import Points, Sending
from simcore.timing.rates import ClassRates
from simcore.workload.graph import CUDNN_NORM, NATIVE_NORM, NONE, Workload


def scoped(group: Group, scope: Scope, strategy: Strategy) -> Group:
    """The ranks of a data-parallel group over which a collective runs.

    With hybrid sharding, a shard group is ``shard_ranks`` consecutive ranks, and ranks with equal
    shards are ``shard_ranks`` apart; ranks that hold the same experts are ``expert_ranks`` apart.
    """
    if scope == "experts":
        return _every(group, strategy.expert_ranks)
    if scope == "all" or not strategy.shard_ranks:
        return group
    shard = np.minimum(float(strategy.shard_ranks), group.n_ranks)
    if scope == "replicas":
        return _every(group, shard)
    here = np.minimum(shard, group.n_ranks / group.n_nodes)
    return replace(group, n_ranks=shard, n_nodes=np.ceil(shard / here))


def _every(group: Group, apart: Array | float) -> Group:
    """Every ``apart``-th rank of a group; the parallel rings of the others share the nodes' NICs.

    ``apart`` below 1: the group also includes ranks of another dimension next to its own.
    """
    a_node = group.n_ranks / group.n_nodes
    size = np.maximum(1.0, group.n_ranks / apart)
    here = np.maximum(1.0, np.minimum(size, np.floor(a_node / apart)))
    stride = group.node_stride
    if group.library.fabric is not None:  # the closed form of leaves takes them for neighbours
        stride *= max(1.0, float(np.max(np.where(group.n_nodes > 1, apart / a_node, 1.0))))
    return replace(
        group,
        n_ranks=size,
        n_nodes=np.ceil(size / here),
        node_stride=stride,
        inter_bw_bytes_per_s=group.inter_bw_bytes_per_s * np.minimum(1.0, here / a_node),
    )


def nodes_of(size: Array, stride: float, gpus_per_node: int) -> tuple[Array, Array, float]:
    """(ranks in a node, nodes, distance of these nodes) of ``size`` ranks, ``stride`` apart."""
    here = np.maximum(1.0, np.minimum(size, np.floor(gpus_per_node / stride)))
    return here, np.ceil(size / here), max(1.0, stride / gpus_per_node)


def group_of(points: Points, size: Array, stride: float, gpus_per_node: int) -> Group:
    """A communicator of ``size`` ranks, ``stride`` apart, with its share of the node's NICs."""
    here, nodes, apart = nodes_of(size, stride, gpus_per_node)
    return points.group(size, nodes, nic_share=here / gpus_per_node, node_stride=apart)


def communicator(points: Points, scope: Scope, strategy: Strategy) -> Group:
    """The communicator of a scope, cached: stages of a pipeline share one axis and its groups."""

    def made() -> Group:
        return scoped(points.group(points.n_ranks, points.n_nodes), scope, strategy)

    key = "communicator", scope, strategy.shard_ranks, strategy.expert_ranks
    return points.keeps(key, made)


def messages_s(sending: Sending, points: Points, strategy: Strategy) -> Array:
    """Seconds of each distinct message of a step [messages, C]."""
    at, column = points.by_links
    seconds = np.zeros((len(sending.message_part), len(at)))
    if (at.n_ranks > 1).any():
        for op, scope, sizes, rows in sending.messages:
            group = communicator(at, scope, strategy)
            seconds[rows] = collective_time_s(op, sizes, group) * at.use_comm
    return seconds[:, column]


# -- lists of tensors, one for each rank, as in DeepSpeed's ZeRO-3 of 2021 -------------------------


def through_lists_s(
    lists: TensorLists, sending: Sending, wire_s: Array, points: Points, strategy: Strategy,
    issue_s: Array, classes: tuple[ClassRates, ...],
) -> Array:  # fmt: skip
    """Seconds of each message that passes through tensor lists [messages, C].

    ``wire_s``: NCCL's part of it; ``issue_s``: host seconds to issue one of PyTorch's kernels.
    """
    seconds = wire_s.copy()
    for op, scope, sizes, rows in sending.messages:
        n_ranks = communicator(points, scope, strategy).n_ranks
        seconds[rows] = tensor_lists_s(lists, op, sizes, wire_s[rows], n_ranks, issue_s, classes)
    return np.where(points.use_comm > 0, seconds, 0.0)


def tensor_lists_s(
    lists: TensorLists, op: Collective, sizes_bytes: Array, wire_s: Array, n_ranks: Array,
    issue_s: Array, classes: tuple[ClassRates, ...],
) -> Array:  # fmt: skip
    """Seconds of messages of ``sizes_bytes`` [M, 1] that take ``wire_s`` [M, C] in NCCL: [M, C].

    Before each message the host waits for the device, then creates a view for each rank. The output
    of a gather is cleared before it and copied piece by piece after it; these copies are issued
    during it. The input of a reduction is divided by the number of ranks and copied piece by piece
    before it.
    """
    rate = min(c.update_bytes_per_s for c in classes)
    start = max(c.kernels.start_s for c in classes)
    copied = n_ranks * start + 2 * sizes_bytes / rate
    issued = n_ranks * lists.copy * issue_s
    if op == "reduce_scatter":
        before = n_ranks * lists.reduced_view * issue_s + 2 * sizes_bytes / rate
        found = before + np.maximum(issued, copied) + wire_s
    else:
        before = n_ranks * lists.gathered_view * issue_s + sizes_bytes / rate
        found = before + np.maximum(issued, wire_s) + copied
    return np.where(n_ranks > 1, lists.call * issue_s + found, wire_s)


# -- whole tensors owned by ranks that share the optimizer state -----------------------------------


def owned_numel(workload: Workload, n_ranks: int) -> Counter[int]:
    """Number of ranks by the elements that they own; ranks without a tensor are left out.

    The largest tensor is assigned first, each to the rank that owns least.
    """
    return _owned(Same(outline(workload)), n_ranks)


@lru_cache(maxsize=256)
def _owned(workload: Same[Workload], n_ranks: int) -> Counter[int]:
    numels = [q.numel for b, n in workload.it.repeats for _ in range(n) for q in b.params]
    loads = [0] * n_ranks
    heapify(loads)
    for numel in sorted(numels, reverse=True):
        heapreplace(loads, loads[0] + numel)
    return Counter(load for load in loads if load)


def broadcasts_s(workload: Workload, width_bytes: float, group: Group) -> Array:
    """Seconds in which the owners broadcast what they updated to all of ``group``, one by one [C].

    A communicator runs one collective at a time, so the broadcasts add up: as many bytes as an
    all-gather, and a ring's latency for each owner.
    """
    found: Array = np.zeros(group.n_ranks.shape)
    for n in {*group.n_ranks.tolist()}:  # np.unique would import masked arrays
        owned = owned_numel(workload, int(n))
        if n <= 1 or not owned:
            continue
        sizes = np.array([[width_bytes * numel] for numel in owned])
        each = collective_time_s("broadcast", sizes, group)
        found = np.where(group.n_ranks == n, np.array(list(owned.values()), float) @ each, found)
    return found


# -- batch norms whose statistics all ranks average ------------------------------------------------


def sync_norms_s(workload: Workload, points: Points) -> Array:
    """Seconds of a step that devices wait for each other's batch-norm statistics [C].

        2 · norms · accumulation · (wait + all-reduce of mean and variance)

    Each norm has one exchange in forward and one in backward. The next layer needs the result, so
    that nothing hides them.
    """
    group = points.group(points.n_ranks, points.n_nodes)
    size = np.array([[FP32_BYTES * workload.buffers_numel / workload.sync_norms]])
    each = collective_time_s("all_reduce", size, group)[0] + workload.sync_norm_wait_s
    return 2.0 * workload.sync_norms * points.grad_accum * each


# -- batch norms that wait for all-reduces under way -----------------------------------------------

#: Time that the backward of a channels-last batch norm waits for an all-reduce that began before
#: it, over its own. In a ResNet-50 in fp16 it takes 4 to 8 ms beside one and 2 ms alone (issue 338
#: of NVIDIA/nccl). The kernel is cuDNN's batchnorm_bwtr_nhwc_semiPersist, all of whose blocks must
#: run at once; cuDNN's of channels first and PyTorch's own do not wait (pytorch issue 80259).
NORM_BEHIND_ALL_REDUCE = 2.0


@lru_cache(maxsize=256)
def norm_elems_behind_buckets(workload: Workload, strategy: Strategy) -> float:
    """Elements a sample that norms move in backward while they wait for gradient buckets.

    Each bucket that is sent during backward is taken to delay a norm of the size that was timed,
    the model's largest. The last bucket is sent once backward has ended. Synchronised norms have
    other kernels.
    """
    p = strategy.precision
    if workload.sync_norms or p.low_bytes >= FP32_BYTES or p.native_norms:
        return 0.0
    norms = (
        k.low
        for block in workload.blocks
        for op in block.ops
        for k in op.bwd
        if k.kind == CUDNN_NORM and k.blocks == NONE and any(o.kind == NATIVE_NORM for o in op.bwd)
    )
    largest = max(norms, default=0.0)
    caps = strategy.buckets
    sent = len(gradient_buckets(workload, p.grad_bytes, caps.cap_bytes, caps.first_bytes)) - 1
    return largest * sent if largest else 0.0


# -- collectives of a captured script itself -------------------------------------------------------


def exchanges_s(workload: Workload, points: Points, gpus_per_node: int) -> Array:
    """Seconds of a step's collectives that the script issues beside its strategy's [C].

        sum of times * (time of one)

    No group has more ranks than there are: another cluster may be smaller than the captured one.
    """
    total = np.zeros(len(points))
    for e in workload.exchanges:
        group = points.group(points.n_ranks, points.n_nodes)
        if e.ranks:
            ranks = np.minimum(float(e.ranks), points.n_ranks)
            group = group_of(points, ranks, float(e.stride), gpus_per_node)
        samples, micro_steps = points.micro_batch, points.grad_accum
        n_bytes = e.n_bytes * (samples if e.per_sample else np.ones(len(points)))
        times = e.times * (micro_steps if e.per_sample else 1.0)
        total = total + times * collective_time_s(e.op, n_bytes[None, :], group)[0]
    return total
