"""What tensor, context, expert and pipeline ranks exchange in a micro-step, and its exposed time.

# C configs, all arrays [C]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.base.units import GIGA
from simcore.physics.collectives import (
    Collective,
    Group,
    collective_time_s,
    exchange_s,
    once_each_frac,
)
from simcore.request.context import WAYS
from simcore.request.placed import Placed
from simcore.strategy.layout import Layout
from simcore.timing.evaluate import Steps
from simcore.timing.points import Points

Array = NDArray[np.float64]

#: Collectives of tensor ranks on a layer's output, run as often as ``workload.sharding`` says in
#: each pass: an all-reduce, or with sequence parallelism a reduce-scatter and an all-gather. Full
#: recompute runs those of forward again.
_WHOLE: tuple[Collective, ...] = ("all_reduce",)
_HALVES: tuple[Collective, ...] = ("reduce_scatter", "all_gather")
#: Exchanges of an expert layer: dispatch and combine, forward and backward.
EXPERT_EXCHANGES = 4
#: SMs of DeepEP's kernels (Megatron-Core, moe_deepep_num_sms), and the bytes that each receives or
#: sends a second within a node of Blackwell GPUs: 8 B200 and 8 GB200, 16 and 24 SMs, 20.6 to
#: 22.6 GB/s in dispatch and 17.5 to 19.4 in combine (DeepEP, docs/README_Hybrid-EP.md). On other
#: GPUs NVLink is slower than these SMs; HybridEP copies asynchronously and needs fewer SMs.
DEEPEP_SMS, DEEPEP_BYTES_PER_SM_S = 20.0, 19.8 * GIGA
_BLACKWELL = 3  # Library.generation


def tensor_collectives(layout: Layout) -> tuple[Collective, ...]:
    """The collectives that exchange a layer's output among tensor ranks, in order."""
    return _HALVES if layout.sequence_parallel else _WHOLE


def group_of(points: Points, size: Array, stride: float, gpus_per_node: int) -> Group:
    """A communicator of ``size`` ranks, ``stride`` apart, with its share of the node's NICs."""
    here = np.maximum(1.0, np.minimum(size, np.floor(gpus_per_node / stride)))
    return points.group(
        size,
        np.ceil(size / here),
        nic_share=here / gpus_per_node,
        node_stride=max(1.0, stride / gpus_per_node),
    )


def data_points(points: Points, placed: Placed) -> Points:
    """The configuration axis of the data-parallel job that one pipeline stage is."""
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
        library=replace(points.library, leaf_nodes=group.leaf_nodes),
    )


def exchange_passes(placed: Placed) -> dict[str, tuple[float, float]]:
    """How often a layer runs the exchange of each dimension: (in forward, in backward)."""
    sums, half = placed.traffic.tensor_sums, EXPERT_EXCHANGES / 2
    way = WAYS[placed.layout.cp_comm]
    more = placed.more_sums + placed.recompute_frac * sums + _repeated_gathers(placed)
    return {
        "tensor parallel": (sums, sums + more),
        "context parallel": (
            way.forward,
            way.backward + placed.attention_again_frac * way.forward,
        ),
        "expert parallel": (half, half + 2 * placed.experts_again),
    }


def _repeated_gathers(placed: Placed) -> float:
    """Gathers that backward repeats, in sums: an all-gather is half of an all-reduce."""
    return 0.5 * placed.traffic.tensor_sums * placed.gathers_again


def exchange_bytes(placed: Placed, micro_batch: Array) -> dict[str, Array]:
    """Bytes of one exchange of a rank [C], by dimension.

    For experts, those of a plain all-to-all on the rank with most tokens: all ranks wait for the
    one that receives most, and in combine sends most (links are duplex).
    """
    layout, traffic = placed.layout, placed.traffic
    hidden = micro_batch / layout.cp * traffic.hidden * traffic.width_bytes
    return {
        "tensor parallel": hidden,
        "context parallel": micro_batch * traffic.context * traffic.width_bytes,
        "expert parallel": (
            hidden
            * traffic.dispatched_frac
            * traffic.hidden_copies
            * traffic.expert_rows
            / layout.tp
        ),
    }


#: Exchanges after which the host goes on issuing kernels without waiting.
_UNWAITED = ("tensor parallel", "context parallel")
#: Name of the transfer of activations to the next stage, and its NCCL operation.
TRANSFER = "pipeline transfer"
_SENT = "send_recv"


@dataclass(frozen=True)
class Exchanges:
    """Seconds [C] of one exchange, by dimension and NCCL operation.

    For the pipeline transfer: of a whole micro-step, both directions.
    """

    placed: Placed
    once_s: dict[tuple[str, str], Array]

    def collectives_s(self, n_layers: int) -> dict[tuple[str, str], Array]:
        """Seconds of one micro-step [C] by dimension and operation, hidden time included."""
        placed, repeated = self.placed, _repeated_gathers(self.placed)
        times = {name: sum(passes) for name, passes in exchange_passes(placed).items()}
        n_times = {
            "tensor parallel": n_layers * times["tensor parallel"],
            "context parallel": n_layers * times["context parallel"],
            "expert parallel": n_layers * placed.expert_layers_frac * times["expert parallel"],
            TRANSFER: 1.0,
        }
        # a gather that backward repeats has no reduce-scatter with it
        more = {
            ("tensor parallel", "reduce_scatter"): -n_layers * repeated,
            ("tensor parallel", "all_gather"): n_layers * repeated,
        }
        return {
            key: (n_times[key[0]] + more.get(key, 0.0)) * seconds
            for key, seconds in self.once_s.items()
        }

    def of_stage(self, n_layers: int) -> dict[str, Array]:
        """Seconds of one micro-step [C] that a stage of ``n_layers`` spends, by dimension.

        For ring context parallelism only the exposed share.
        """
        found: dict[str, Array] = {}
        ring = WAYS[self.placed.layout.cp_comm].seen_frac
        for (name, _), seconds in self.collectives_s(n_layers).items():
            seen = ring if name == "context parallel" else 1.0
            found[name] = found[name] + seen * seconds if name in found else seen * seconds
        return found


def exchanges_s(points: Points, placed: Placed, n_layers: int) -> dict[str, Array]:
    """Seconds of one micro-step [C] that a stage of ``n_layers`` spends, by dimension."""
    return exchanges_of(points, placed).of_stage(n_layers)


def exchanges_of(points: Points, placed: Placed) -> Exchanges:
    """The seconds of one exchange in each dimension of a layout; equal for all layers."""
    layout, traffic = placed.layout, placed.traffic
    on = points.use_comm

    def on_ranks(size: int, stride: float) -> Group:
        ranks = np.full(len(points), float(size))
        group = group_of(points, ranks, stride, placed.gpus_per_node)
        if stride == 1.0 and size < len(placed.ring_shares):  # neighbouring GPUs, from the first on
            share = placed.ring_shares[size - 1]
            group = replace(group, intra_bw_bytes_per_s=group.intra_bw_bytes_per_s * share)
        return group

    def time(op: Collective, n_bytes: Array, group: Group) -> Array:
        seconds: Array = collective_time_s(op, n_bytes[None, :], group)[0] * on
        return seconds

    found: dict[tuple[str, str], Array] = {}
    moved = exchange_bytes(placed, points.micro_batch)
    hidden = moved["tensor parallel"]
    if layout.tp > 1:
        group = on_ranks(layout.tp, 1.0)
        ops = tensor_collectives(layout)  # an all-gather costs what a reduce-scatter does
        once = time(ops[0], hidden, group)
        found |= {("tensor parallel", op): once for op in ops}
        if placed.narrow_gathers:
            narrow = time("all_gather", hidden * placed.gathered_frac, group)
            found["tensor parallel", "all_gather"] = narrow
    if layout.cp > 1:
        group = on_ranks(layout.cp, float(layout.tp))
        way = WAYS[layout.cp_comm]
        found["context parallel", way.sent] = time(way.op, moved["context parallel"], group)
    if layout.ep > 1:
        group = on_ranks(layout.ep, float(layout.expert_tp))
        copies = traffic.hidden_copies
        across, inside = np.ones(len(points)), np.ones(len(points))
        rows, weights = moved["expert parallel"], traffic.weights_frac
        if layout.sends_once:
            across = once_each_frac(group.n_nodes, copies, *traffic.expert_groups)
            # tokens from other nodes also pass the links within the node on their way to the rank
            inside = once_each_frac(group.n_ranks, copies, *traffic.expert_groups) * group.n_nodes
            # routing weights go with the rows in half of the exchanges: out, and their gradients
            # back
            rows = rows * (1.0 + 0.5 * weights)
            if layout.dispatcher == "deepep" and points.library.generation == _BLACKWELL:
                group = _by_sms(group)
        exchanged = exchange_s(rows[None, :], group, across, inside)[0]
        if weights and not layout.sends_once:  # the weights have an exchange of their own
            exchanged = exchanged + 0.5 * exchange_s(rows[None, :] * weights, group)[0]
        found["expert parallel", "all_to_all"] = exchanged * on
    if layout.pp > 1:
        # Activations go forward and gradients backward to the neighbouring stage. A tensor rank
        # sends its share, on which its norms work (sequence parallelism) or which all ranks then
        # gather, or it sends everything. Stages are furthest apart in the order of ranks: with
        # several nodes they are on different ones.
        crosses = (points.n_nodes > 1) | (layout.tp * layout.cp >= placed.gpus_per_node)
        across = points.inter_bw_bytes_per_s * points.inter / placed.gpus_per_node
        inside = points.intra_bw_bytes_per_s * points.intra
        rate = np.where(crosses, across, inside)
        hop = np.where(crosses, points.inter_hop_s, points.intra_hop_s)
        sent = hidden / placed.sending_ranks
        count = 2.0 * layout.vpp  # one transfer a chunk in each direction
        found[TRANSFER, _SENT] = count * (sent / rate + hop) * on
        if placed.gathers_received:
            gathered = time("all_gather", hidden, on_ranks(layout.tp, 1.0))
            found[TRANSFER, "all_gather"] = count * gathered
    return Exchanges(placed, found)


def _by_sms(group: Group) -> Group:
    """A group whose rate within a node is limited by DeepEP's SMs, which copy all rows.

    The rate was measured with 4,096 tokens and already includes what NCCL's formula adds between
    the latency and the bandwidth regime (``ramp``).
    """
    here = group.a_node
    most = DEEPEP_SMS * DEEPEP_BYTES_PER_SM_S * (here - 1.0) / here
    rate = np.where(here > 1, np.minimum(group.intra_bw_bytes_per_s, most), np.inf)
    return replace(group, intra_bw_bytes_per_s=rate, ramp=0.0)


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
    seconds: Array = collective_time_s("all_reduce", size, pair)[0] * points.use_comm
    return seconds


def exposed(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, slowdown: Array
) -> dict[str, Array]:
    """Exposed seconds of a micro-step's exchanges [C], by dimension.

    ``busy_s``: compute seconds of the micro-step. Overlapped tensor exchanges are divided into tp
    pieces: the first piece is exposed, and so are exchanges of inputs that adapters read. Without
    such pieces, weight gradients can hide the exchanges of input gradients. Exchanges of experts
    can hide under another micro-batch. Hidden time costs ``slowdown`` of itself in slower compute.
    """
    found = dict(exchange)
    left_s = busy_s  # compute that hides no exchange yet
    of_tensor, under = 0.0, busy_s
    if placed.overlap.tensor:
        of_tensor = (1.0 - 1.0 / placed.layout.tp) * (1.0 - placed.bare_frac)
    elif placed.overlap.dgrad:
        # repeated gathers hide under the computation of the input's gradient, which takes as long
        # as that of the weight's gradient, which hides the sum of the former
        covers = placed.column_grads_frac * (1 + placed.gathers_again)
        of_tensor, under = _dgrad_frac(placed), covers * busy_s
    for name, part, covered in (
        ("tensor parallel", of_tensor, under),
        ("expert parallel", float(placed.overlap.experts), busy_s),
    ):
        if not part or name not in found:
            continue
        whole = found[name]
        hidden = np.minimum(whole * part, np.minimum(covered, left_s))
        left_s = left_s - hidden
        found[name] = whole - hidden * (1.0 - slowdown)
    return found


def beside_host(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, host_s: Array
) -> dict[str, Array]:
    """Exposed seconds of exchanges where the host issues a micro-step slower than the device runs.

    Collectives are issued like kernels, and a stream waits for them, not the host (torch,
    ProcessGroupNCCL.cpp, WorkNCCL::synchronize): the device finishes them while the host still
    issues the next kernels. Pipeline transfers stay exposed, since the next stage waits for them.
    With routed experts the host itself waits in every layer for token counts (Megatron-Core,
    token_dispatcher.py, cuda_sync_point); where it then has time left is not known, so all
    exchanges stay exposed.
    """
    if placed.expert_layers_frac:
        return exchange
    spent = sum((exchange[name] for name in _UNWAITED if name in exchange), np.zeros(len(busy_s)))
    spare_s = np.maximum(host_s - busy_s, 0.0)
    exposed_frac = 1.0 - np.minimum(spare_s / np.maximum(spent, TINY), 1.0)
    return {name: x * exposed_frac if name in _UNWAITED else x for name, x in exchange.items()}


def _dgrad_frac(placed: Placed) -> float:
    """Share of the bytes tensor ranks exchange in a micro-step that weight gradients can hide.

    That is everything backward sums (the gradients of the products' inputs) and the inputs that it
    gathers again. With sequence parallelism backward also gathers before the row-parallel products,
    and that stays exposed (Megatron-LM, core/tensor_parallel/layers.py).
    """
    whole, repeated = sum(exchange_passes(placed)["tensor parallel"]), _repeated_gathers(placed)
    summed = placed.traffic.tensor_sums + placed.more_sums
    if not placed.layout.sequence_parallel:
        return summed / whole
    gathered = placed.gathered_frac
    return (summed + 2 * gathered * repeated) / ((whole - repeated) + gathered * (whole + repeated))


def shared_nic_s(
    steps: Steps, whole: dict[str, Array], seen: dict[str, Array], placed: Placed, local: Points,
    slowdown: Array,
) -> Array:  # fmt: skip
    """Extra seconds [C] because gradients and hidden exchanges share the NICs in the last backward.

    Both hide under the same compute. The NICs carry one after the other, or each at part of the
    rate: together they take D + h, of which the backward W hides at most W. Exposed beyond D alone
    is max(0, D + h - W) - max(0, D - W).
    """
    layout, extra = placed.layout, np.zeros(len(local))
    wide = {"tensor parallel": layout.tp, "expert parallel": layout.ep * layout.expert_tp}
    hidden = np.zeros(len(local))
    for name, ranks in wide.items():
        if name in whole and ranks > placed.gpus_per_node:
            forward, backward = exchange_passes(placed)[name]
            share = backward / (forward + backward)
            if name == "tensor parallel" and not placed.overlap.tensor:
                share = 1.0  # gradients of inputs: in backward only
            hidden = hidden + share * (whole[name] - seen[name]) / (1.0 - slowdown)
    if not hidden.any():
        return extra
    sent = np.where(local.n_nodes > 1, steps.comm_beside_s, 0.0)
    window = steps.terms_s["backward"]
    extra = np.maximum(sent + hidden - window, 0.0) - np.maximum(sent - window, 0.0)
    return np.where(sent > 0, extra, 0.0)
