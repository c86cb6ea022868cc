"""What tensor, context, expert and pipeline ranks exchange in a micro-step, and its exposed time.

# C configs; arrays [C], or [N, C] of N kinds of stages
"""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import TINY, Array
from simcore.base.record import dataclass, replace
from simcore.physics.collectives import Group, collective_time_s
from simcore.request.placed import Placed
from simcore.step.parallel.layer_ranks import LayerRanks
from simcore.timing.collectives import group_of
from simcore.timing.evaluate import Steps
from simcore.timing.points import Points

#: Name of the transfer of activations to the next stage, and its NCCL operation.
TRANSFER = "pipeline transfer"
_SENT = "send_recv"


def data_points(points: Points, placed: Placed) -> Points:
    """The configuration axis of the data-parallel job that one pipeline stage is."""
    layout, directions = placed.layout, placed.schedule.directions
    key = "data", layout.tp, layout.pp, layout.cp, directions, placed.gpus_per_node
    return points.keeps(key, lambda: _data_points(points, placed))


def _data_points(points: Points, placed: Placed) -> Points:
    layout = placed.layout
    ranks = np.maximum(1.0, points.n_ranks / (layout.tp * layout.pp))
    stride = float(layout.tp)
    group = group_of(points, ranks, stride, placed.gpus_per_node)
    return replace(
        points,
        micro_batch=points.micro_batch / layout.cp,
        grad_accum=points.grad_accum / placed.schedule.directions,
        n_ranks=ranks,
        n_nodes=np.where(ranks > 1, group.n_nodes, 1.0),
        inter_bw_bytes_per_s=group.inter_bw_bytes_per_s / points.inter,
        library=replace(points.library, node_stride=group.node_stride),
    )


def exchange_bytes(placed: Placed, micro_batch: Array) -> dict[str, Array]:
    """Bytes of one exchange of a rank [C], by dimension."""
    return {ranks.name: micro_batch * ranks.sample_bytes for ranks in placed.dimensions}


@dataclass(frozen=True)
class Exchanges:
    """Seconds [C] of one exchange, by dimension and NCCL operation.

    For the pipeline transfer: of a whole micro-step, both directions.
    """

    placed: Placed
    once_s: dict[tuple[str, str], Array]

    def collectives_s(self, n_layers: int | Array) -> dict[tuple[str, str], Array]:
        """Seconds of one micro-step by dimension and operation, hidden time included.

        [C] for a stage of ``n_layers``, [N, C] for stages of ``n_layers`` [N, 1] each; transfers
        between stages are equal for all of them, [C].
        """
        n_times = {
            (ranks.name, op): n_layers * times
            for ranks in self.placed.dimensions
            for op, times in ranks.layer_times.items()
        }
        return {key: n_times.get(key, 1.0) * seconds for key, seconds in self.once_s.items()}

    def of_stage(self, n_layers: int | Array) -> dict[str, Array]:
        """Seconds of one micro-step that stages spend, by dimension (as ``collectives_s``).

        Only the share that its own attention leaves exposed (``LayerRanks.seen_frac``).
        """
        found: dict[str, Array] = {}
        seen = {ranks.name: ranks.seen_frac for ranks in self.placed.dimensions}
        for (name, _), seconds in self.collectives_s(n_layers).items():
            found[name] = found.get(name, 0.0) + seen.get(name, 1.0) * seconds
        return found


def exchanges_s(points: Points, placed: Placed, n_layers: int) -> dict[str, Array]:
    """Seconds of one micro-step [C] that a stage of ``n_layers`` spends, by dimension."""
    return exchanges_of(points, placed).of_stage(n_layers)


def exchanges_of(points: Points, placed: Placed) -> Exchanges:
    """The seconds of one exchange in each dimension of a layout; equal for all layers."""
    key = (
        "exchanges", placed.layout, placed.dimensions, placed.gpus_per_node, placed.ring_shares,
        placed.sends_whole,
    )  # fmt: skip
    return Exchanges(placed, points.keeps(key, lambda: _once_s(points, placed)))


def _once_s(points: Points, placed: Placed) -> dict[tuple[str, str], Array]:
    """``Exchanges.once_s``."""
    layout, on = placed.layout, points.use_comm
    moved = exchange_bytes(placed, points.micro_batch)

    def among(ranks: LayerRanks) -> Group:
        size, stride = np.full(len(points), float(ranks.ranks)), ranks.stride
        group = group_of(points, size, stride, placed.gpus_per_node)
        if stride == 1.0 and ranks.ranks < len(placed.ring_shares):  # neighbours, from the first on
            share = placed.ring_shares[ranks.ranks - 1]
            group = replace(group, intra_bw_bytes_per_s=group.intra_bw_bytes_per_s * share)
        return group

    found = {
        (ranks.name, op): seconds * on
        for ranks in placed.dimensions
        if ranks.ranks > 1
        for op, seconds in ranks.once_s(moved[ranks.name], among(ranks)).items()
    }
    if layout.pp > 1:
        # Activations go forward and gradients backward to the neighbouring stage. A tensor rank
        # sends its share, on which its norms work (sequence parallelism) or which all ranks then
        # gather, or it sends everything. Stages are furthest apart in the order of ranks: with
        # several nodes they are on different ones.
        crosses = (points.n_nodes > 1) | (layout.tp * layout.cp >= placed.gpus_per_node)
        across = points.inter_bw_bytes_per_s * points.inter / placed.gpus_per_node
        if points.library.fabric is not None:  # the nodes of a stage lie side by side
            apart = max(1.0, float(points.n_nodes.max()) / layout.pp)
            stages = np.minimum(points.n_nodes, float(layout.pp))
            across = across * points.library.fabric.share("chain", stages, apart)
        inside = points.intra_bw_bytes_per_s * points.intra
        rate = np.where(crosses, across, inside)
        hop = np.where(crosses, points.inter_hop_s, points.intra_hop_s)
        whole = moved[placed.tensor.name]
        sent = whole / placed.sending_ranks
        count = 2.0 * layout.vpp  # one transfer a chunk in each direction
        found[TRANSFER, _SENT] = count * (sent / rate + hop) * on
        if placed.gathers_received:
            gathered = collective_time_s("all_gather", whole[None, :], among(placed.tensor))[0]
            found[TRANSFER, "all_gather"] = count * gathered * on
    return found


def tied_s(points: Points, placed: Placed) -> Array:
    """Seconds [C] of the all-reduce of a tied table's gradient between first and last stage.

    It runs once a step after the last backward, and nothing hides it (Megatron-LM, training.py,
    "All-reduce word_embeddings' grad across first and last stages"; DeepSpeed, runtime/pipe/
    engine.py, _exec_reduce_tied_grads). With several nodes the two stages are on different ones,
    and all GPUs of a node communicate at the same time.
    """
    if not placed.tied_bytes:
        return np.zeros(len(points))
    apart = points.n_nodes > 1
    share = np.where(apart, 1.0 / placed.gpus_per_node, 1.0)
    pair = points.group(np.full(len(points), 2.0), np.where(apart, 2.0, 1.0), nic_share=share)
    size = np.full((1, len(points)), placed.tied_bytes)
    return collective_time_s("all_reduce", size, pair)[0] * points.use_comm


def alone_frac(placed: Placed, micro_batches: Array) -> Array:
    """Share of a step's passes [C] that no pass of another micro-batch runs beside.

    ``micro_batches`` [C]: those of a step. Megatron-Core runs the forward of one micro-batch beside
    the backward of another (core/pipeline_parallel/combined_1f1b.py), which takes a stage that has
    both: the forwards before the first backward, and as many backwards at the end, run alone. They
    are as many as the last stage holds in flight; the stages before it wait meanwhile.
    """
    schedule, last = placed.schedule, placed.layout.pp - 1
    first = schedule.in_flight(placed.layout, last, micro_batches)
    return np.minimum(first * schedule.directions / micro_batches, 1.0)


def exposed(
    exchange: dict[str, Array],
    placed: Placed,
    busy_s: Array,
    slowdown: Array,
    alone: Array | float = 0.0,
    products_s: Array | float = np.inf,
) -> dict[str, Array]:
    """Exposed seconds of a micro-step's exchanges [C], by dimension.

    ``busy_s``: compute seconds of the micro-step, each of which hides one exchange at most;
    ``products_s``: the part of them in matrix products. Hidden time costs ``slowdown`` of itself in
    slower compute. ``alone``: share of the micro-steps without another micro-batch, whose compute
    could hide exchanges.
    """
    found = dict(exchange)
    left_s = busy_s  # compute that hides no exchange yet
    for ranks in placed.dimensions:
        if ranks.pairs and ranks.name in found:
            whole = found[ranks.name]
            hidden = np.zeros_like(busy_s)
            for pair in ranks.pairs:
                beside_s = np.minimum(products_s, busy_s) if pair.by_products else busy_s
                covered = np.minimum(pair.covering_frac * beside_s, left_s - hidden)
                hidden = hidden + np.minimum(whole * pair.exchanged_frac, covered)
            left_s = left_s - hidden
            beside = 1.0 - alone if ranks.beside_others else 1.0
            found[ranks.name] = whole - beside * hidden * (1.0 - slowdown)
    return found


def beside_host(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, host_s: Array
) -> dict[str, Array]:
    """Exposed seconds of exchanges where the host issues a micro-step slower than the device runs.

    Collectives are issued like kernels, and a stream waits for them, not the host (torch,
    ProcessGroupNCCL.cpp, WorkNCCL::synchronize): the device finishes them while the host still
    issues the next kernels. Pipeline transfers stay exposed, since the next stage waits for them.
    Where the host itself waits in some layers, it is not known where it then has time left, so all
    exchanges stay exposed.
    """
    if any(ranks.host_waits and ranks.layers_frac for ranks in placed.dimensions):
        return exchange
    unwaited = [ranks.name for ranks in placed.dimensions if ranks.name in exchange]
    if not unwaited:
        return exchange
    spent = sum((exchange[name] for name in unwaited), np.zeros_like(busy_s))
    spare_s = np.maximum(host_s - busy_s, 0.0)
    exposed_frac = 1.0 - np.minimum(spare_s / np.maximum(spent, TINY), 1.0)
    return {name: x * exposed_frac if name in unwaited else x for name, x in exchange.items()}


def shared_nic_s(
    steps: Steps, whole: dict[str, Array], seen: dict[str, Array], placed: Placed, local: Points,
    slowdown: Array,
) -> Array:  # fmt: skip
    """Extra seconds [C] because gradients and hidden exchanges share the NICs in the last backward.

    Both hide under the same compute. The NICs carry one after the other, or each at part of the
    rate: together they take D + h, of which the backward W hides at most W. Exposed beyond D alone
    is max(0, D + h - W) - max(0, D - W).
    """
    extra = np.zeros(len(local))
    hidden = sum(
        (
            ranks.hidden_backward_frac * (whole[ranks.name] - seen[ranks.name]) / (1.0 - slowdown)
            for ranks in placed.dimensions
            if ranks.name in whole and ranks.nic_ranks > placed.gpus_per_node
        ),
        extra,
    )
    if not hidden.any():
        return extra
    sent = np.where(local.n_nodes > 1, steps.comm_beside_s, 0.0)
    window = steps.terms_s["backward"]
    extra = np.maximum(sent + hidden - window, 0.0) - np.maximum(sent - window, 0.0)
    return np.where(sent > 0, extra, 0.0)
