"""What tensor, context, expert and pipeline ranks exchange in a micro-step, and what of it is seen.

# C configs, all arrays [C]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.base.units import GIGA
from simcore.engine.context import WAYS
from simcore.engine.evaluate import Steps
from simcore.engine.placed import Placed
from simcore.engine.points import Points
from simcore.physics.collectives import (
    Collective,
    Group,
    collective_time_s,
    exchange_s,
    once_each_frac,
)
from simcore.strategy.layout import Layout

Array = NDArray[np.float64]

#: What tensor ranks exchange of a layer's output, each way as often as ``workload.sharding`` says:
#: all-reduces; with sequence parallelism each is a reduce-scatter and an all-gather. Full recompute
#: runs those of forward again.
_WHOLE: tuple[Collective, ...] = ("all_reduce",)
_HALVES: tuple[Collective, ...] = ("reduce_scatter", "all_gather")
#: Dispatch and combine, forward and backward.
EXPERT_EXCHANGES = 4
#: SMs that DeepEP's kernels have (Megatron-Core, moe_deepep_num_sms), and what each receives or
#: sends a second within a node of Blackwell: 8 B200 and 8 GB200, 16 and 24 SMs, 20.6 to 22.6 GB/s
#: in dispatch and 17.5 to 19.4 in combination (DeepEP, docs/README_Hybrid-EP.md). Elsewhere NVLink
#: is slower than they are taken to be; HybridEP's copies are asynchronous and need fewer.
DEEPEP_SMS, DEEPEP_BYTES_PER_SM_S = 20.0, 19.8 * GIGA
_BLACKWELL = 3  # Library.generation


def tensor_collectives(layout: Layout) -> tuple[Collective, ...]:
    """What tensor ranks exchange of a layer's output at a time."""
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
    """The axis as one stage's data-parallel job sees it."""
    layout = placed.layout
    ranks = np.maximum(1.0, points.n_ranks / (layout.tp * layout.pp))
    stride = float(layout.tp)
    group = group_of(points, ranks, stride, placed.gpus_per_node)
    return replace(
        points,
        micro_batch=points.micro_batch / layout.cp,
        grad_accum=points.grad_accum / layout.directions,
        n_ranks=ranks,
        n_nodes=np.where(ranks > 1, group.n_nodes, 1.0),
        inter_bw_bytes_per_s=group.inter_bw_bytes_per_s / points.inter,
        library=replace(points.library, leaf_nodes=group.leaf_nodes),
    )


def exchange_passes(placed: Placed) -> dict[str, tuple[float, float]]:
    """How often a layer runs the exchange of each dimension, in forward and in backward."""
    sums, half = placed.traffic.tensor_sums, EXPERT_EXCHANGES / 2
    way = WAYS[placed.layout.cp_comm]
    more = placed.more_sums + placed.recompute_frac * sums + _again(placed)
    return {
        "tensor parallel": (sums, sums + more),
        "context parallel": (
            way.forward,
            way.backward + placed.attention_again_frac * way.forward,
        ),
        "expert parallel": (half, half + 2 * placed.experts_again),
    }


def _again(placed: Placed) -> float:
    """What backward gathers again, in sums: a gathering is half of one."""
    return 0.5 * placed.traffic.tensor_sums * placed.gathers_again


def exchange_bytes(placed: Placed, micro_batch: Array) -> dict[str, Array]:
    """Bytes of one such exchange of a rank; of experts those of a plain all-to-all's fullest rank.

    Ranks wait for the one that receives most, and in combination sends most (links are duplex).
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


#: Exchanges that the host issues and goes on.
_UNWAITED = ("tensor parallel", "context parallel")
#: What moves activations to the next stage, and its operation as NCCL names it.
TRANSFER = "pipeline transfer"
_SENT = "send_recv"


@dataclass(frozen=True)
class Exchanges:
    """Seconds [C] of one exchange of each dimension by operation, of all that its ranks send.

    The pipeline's: of a whole micro-step, there and back.
    """

    placed: Placed
    once_s: dict[tuple[str, str], Array]

    def collectives_s(self, n_layers: int) -> dict[tuple[str, str], Array]:
        """Seconds of one micro-step by dimension and operation, hidden or not."""
        placed, again = self.placed, _again(self.placed)
        times = {name: sum(passes) for name, passes in exchange_passes(placed).items()}
        n_times = {
            "tensor parallel": n_layers * times["tensor parallel"],
            "context parallel": n_layers * times["context parallel"],
            "expert parallel": n_layers * placed.expert_layers_frac * times["expert parallel"],
            TRANSFER: 1.0,
        }
        # what is gathered again has no sum beside it
        more = {
            ("tensor parallel", "reduce_scatter"): -n_layers * again,
            ("tensor parallel", "all_gather"): n_layers * again,
        }
        return {
            key: (n_times[key[0]] + more.get(key, 0.0)) * seconds
            for key, seconds in self.once_s.items()
        }

    def of_stage(self, n_layers: int) -> dict[str, Array]:
        """Seconds of one micro-step that a stage of so many layers spends on each dimension."""
        found: dict[str, Array] = {}
        ring = WAYS[self.placed.layout.cp_comm].seen_frac
        for (name, _), seconds in self.collectives_s(n_layers).items():
            seen = ring if name == "context parallel" else 1.0
            found[name] = found[name] + seen * seconds if name in found else seen * seconds
        return found


def exchanges_s(points: Points, placed: Placed, n_layers: int) -> dict[str, Array]:
    """Seconds of one micro-step that a stage spends on each dimension's exchanges."""
    return exchanges_of(points, placed).of_stage(n_layers)


def exchanges_of(points: Points, placed: Placed) -> Exchanges:
    """What the dimensions of a layout exchange, the same for all layers."""
    layout, traffic = placed.layout, placed.traffic
    on = points.use_comm

    def on_ranks(size: int, stride: float) -> Group:
        ranks = np.full(len(points), float(size))
        group = group_of(points, ranks, stride, placed.gpus_per_node)
        if stride == 1.0 and size < len(placed.ring_shares):  # neighbours, from the first GPU on
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
        ops = tensor_collectives(layout)  # of halves one costs what the other does
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
            # what comes from other nodes passes the node's links too, on its way to the rank
            inside = once_each_frac(group.n_ranks, copies, *traffic.expert_groups) * group.n_nodes
            # with the rows, in half of the exchanges: to the experts and their gradients back
            rows = rows * (1.0 + 0.5 * weights)
            if layout.dispatcher == "deepep" and points.library.generation == _BLACKWELL:
                group = _by_sms(group)
        exchanged = exchange_s(rows[None, :], group, across, inside)[0]
        if weights and not layout.sends_once:  # an exchange of their own
            exchanged = exchanged + 0.5 * exchange_s(rows[None, :] * weights, group)[0]
        found["expert parallel", "all_to_all"] = exchanged * on
    if layout.pp > 1:
        # Activations forward and gradients backward to the neighbour stage. A tensor rank sends its
        # share, which its norms work on (sequence parallelism) or all gather, or everything.
        # Stages lie furthest apart in the order of ranks: on several nodes they are on others.
        crosses = (points.n_nodes > 1) | (layout.tp * layout.cp >= placed.gpus_per_node)
        across = points.inter_bw_bytes_per_s * points.inter / placed.gpus_per_node
        inside = points.intra_bw_bytes_per_s * points.intra
        rate = np.where(crosses, across, inside)
        hop = np.where(crosses, points.inter_hop_s, points.intra_hop_s)
        sent = hidden / placed.sending_ranks
        count = 2.0 * layout.vpp  # one a chunk each way
        found[TRANSFER, _SENT] = count * (sent / rate + hop) * on
        if placed.gathers_received:
            gathered = time("all_gather", hidden, on_ranks(layout.tp, 1.0))
            found[TRANSFER, "all_gather"] = count * gathered
    return Exchanges(placed, found)


def _by_sms(group: Group) -> Group:
    """A group whose links within a node serve what DeepEP's SMs copy, a rank's own rows too.

    What NCCL loses between latency and rate is in the rate, which was timed with 4,096 tokens.
    """
    here = group.a_node
    most = DEEPEP_SMS * DEEPEP_BYTES_PER_SM_S * (here - 1.0) / here
    rate = np.where(here > 1, np.minimum(group.intra_bw_bytes_per_s, most), np.inf)
    return replace(group, intra_bw_bytes_per_s=rate, ramp=0.0)


def tied_s(points: Points, placed: Placed) -> Array:
    """Seconds in which the two ends of a pipeline sum up the gradients of a table they share.

    Once a step, behind the last backward, and hidden under nothing (Megatron-LM, training.py,
    "All-reduce word_embeddings' grad across first and last stages"; DeepSpeed, runtime/pipe/
    engine.py, _exec_reduce_tied_grads). On several nodes the ends are on different ones, where
    all GPUs of a node do so at once.
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
    """What of the exchanges of a micro-step is seen, beside ``busy_s`` seconds of compute.

    Exchanges of tensor ranks in tp pieces leave the first piece bare, and those of inputs that
    adapters read; of whole ones those hide that weight gradients cover; those of experts hide under
    another micro-batch. What is hidden slows compute by ``slowdown`` of its own time.
    """
    found = dict(exchange)
    room = busy_s
    of_tensor, under = 0.0, busy_s
    if placed.overlap.tensor:
        of_tensor = (1.0 - 1.0 / placed.layout.tp) * (1.0 - placed.bare_frac)
    elif placed.overlap.dgrad:
        # what is gathered again hides under the input's gradient, which takes as long as the
        # weight's, under which that is summed up
        covers = placed.column_grads_frac * (1 + placed.gathers_again)
        of_tensor, under = _dgrad_frac(placed), covers * busy_s
    for name, part, covered in (
        ("tensor parallel", of_tensor, under),
        ("expert parallel", float(placed.overlap.experts), busy_s),
    ):
        if not part or name not in found:
            continue
        whole = found[name]
        hidden = np.minimum(whole * part, np.minimum(covered, room))
        room = room - hidden
        found[name] = whole - hidden * (1.0 - slowdown)
    return found


def beside_host(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, host_s: Array
) -> dict[str, Array]:
    """What of these is seen where the host issues a micro-step slower than the device runs it.

    Collectives are issued as kernels are, and it is a stream that waits for them, not the host
    (torch, ProcessGroupNCCL.cpp, WorkNCCL::synchronize): the device has them done while the next
    kernels are still to come. Not so messages, for which the next stage waits. With routed experts
    the host itself waits in every layer, for counts of tokens (Megatron-Core, token_dispatcher.py,
    cuda_sync_point): which of its parts has room is not known.
    """
    if placed.expert_layers_frac:
        return exchange
    spent = sum((exchange[name] for name in _UNWAITED if name in exchange), np.zeros(len(busy_s)))
    room = np.maximum(host_s - busy_s, 0.0)
    seen = 1.0 - np.minimum(room / np.maximum(spent, TINY), 1.0)
    return {name: x * seen if name in _UNWAITED else x for name, x in exchange.items()}


def _dgrad_frac(placed: Placed) -> float:
    """Of the bytes that tensor ranks exchange in a micro-step, the gradients of products' inputs.

    Those are all that backward sums up, and what it gathers again of these inputs. With sequence
    parallelism it also gathers before the products that are cut by rows, and that stands in the
    way (Megatron-LM, core/tensor_parallel/layers.py).
    """
    whole, again = sum(exchange_passes(placed)["tensor parallel"]), _again(placed)
    summed = placed.traffic.tensor_sums + placed.more_sums
    if not placed.layout.sequence_parallel:
        return summed / whole
    gathered = placed.gathered_frac
    return (summed + 2 * gathered * again) / ((whole - again) + gathered * (whole + again))


def shared_nic_s(
    steps: Steps, whole: dict[str, Array], seen: dict[str, Array], placed: Placed, local: Points,
    slowdown: Array,
) -> Array:  # fmt: skip
    """What gradients and hidden exchanges between nodes cost each other in the last backward.

    Both hide under the same compute, and the NICs carry one after the other or each at a share of
    the rate: together they take D + h, of which the backward W covers what it covers of D alone or
    more. Beyond that max(0, D + h - W) - max(0, D - W) is seen.
    """
    layout, extra = placed.layout, np.zeros(len(local))
    wide = {"tensor parallel": layout.tp, "expert parallel": layout.ep * layout.expert_tp}
    hidden = np.zeros(len(local))
    for name, ranks in wide.items():
        if name in whole and ranks > placed.gpus_per_node:
            forward, backward = exchange_passes(placed)[name]
            share = backward / (forward + backward)
            if name == "tensor parallel" and not placed.overlap.tensor:
                share = 1.0  # gradients of inputs: backward's alone
            hidden = hidden + share * (whole[name] - seen[name]) / (1.0 - slowdown)
    if not hidden.any():
        return extra
    sent = np.where(local.n_nodes > 1, steps.comm_beside_s, 0.0)
    window = steps.terms_s["backward"]
    extra = np.maximum(sent + hidden - window, 0.0) - np.maximum(sent - window, 0.0)
    return np.where(sent > 0, extra, 0.0)
