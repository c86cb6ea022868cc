"""A step of a replica that is cut over ranks: tensor, context, expert and pipeline parallelism.

Each pipeline stage is a job of its own on its data-parallel group. What tensor, context and
expert ranks exchange stands in the way of compute, unless the job overlaps it, and is added to
every micro-step. The pipeline adds what its stages wait for each other (physics.pipeline): for 1F1B
and its interleaved form (Narayanan et al. 2021); nothing for zero-bubble schedules (Qi et al.
2023).

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, groupby

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.engine import messages
from simcore.engine.compute import pass_seconds, phases_of_parts
from simcore.engine.context import WAYS
from simcore.engine.evaluate import Job, Steps, evaluate_parts
from simcore.engine.micro_step import forward_share, micro_step_s, of_slowest
from simcore.engine.pace import stage_paces
from simcore.engine.points import Points
from simcore.physics.collectives import (
    Collective,
    Group,
    collective_time_s,
    exchange_s,
    once_a_node_frac,
)
from simcore.physics.pipeline import bubble_s
from simcore.step.together import together
from simcore.strategy.layout import Layout
from simcore.strategy.overlap import Overlap
from simcore.workload.graph import Workload
from simcore.workload.sharding import TENSOR_SUMS, Stage

Array = NDArray[np.float64]

#: What tensor ranks exchange of a layer's output, each way as often as ``workload.sharding`` says:
#: all-reduces; with sequence parallelism each is a reduce-scatter and an all-gather. Full recompute
#: runs those of forward again.
_WHOLE: tuple[Collective, ...] = ("all_reduce",)
_HALVES: tuple[Collective, ...] = ("reduce_scatter", "all_gather")
#: Dispatch and combine, forward and backward.
EXPERT_EXCHANGES = 4


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """Elements a sample that one layer exchanges; widths in bytes of an activation.

    ``context``: what context ranks exchange at a time. ``hidden_copies``: to how many experts each
    token goes. ``tensor_sums``: how often tensor ranks sum ``hidden`` up, in forward and again in
    backward. ``expert_rows``: what the fullest expert rank receives over the mean.
    """

    hidden: float
    context: float
    hidden_copies: float
    width_bytes: float
    tensor_sums: float = TENSOR_SUMS
    expert_rows: float = 1.0


@dataclass(frozen=True)
class Placed:
    """A layout on a cluster: how many GPUs a node has, and the stages to run.

    ``part`` is one tensor and expert rank's part of the model, which the stages cut.
    ``more_sums``: over tensor ranks in a layer's backward, beside one a sum of forward.
    ``column_grads_frac``: of a layer's FLOP those of the weight gradients of products that are cut
    by columns, beside which the gradients of their inputs can be summed up.
    ``gathers_again``: inputs of such products are kept as shares of the sequence, and backward
    gathers them once more, for their weights' gradients (Korthikanti et al. 2022, 4.2.2).
    ``ring_shares``: of a node whose GPUs are not all joined alike, what a ring over its first 1, 2
    … GPUs gets of the bandwidth of one over those in use; nothing where all are.
    ``sends_whole``: every tensor rank hands the next stage all that the stage's output holds.
    """

    layout: Layout
    gpus_per_node: int
    part: Workload
    stages: tuple[Stage, ...]
    traffic: LayerTraffic
    recompute_frac: float
    experts_again: bool
    attention_again_frac: float
    overlap: Overlap
    expert_layers_frac: float
    column_grads_frac: float
    more_sums: int = 0
    sends_whole: bool = False
    gathers_again: bool = False
    ring_shares: tuple[float, ...] = ()

    @property
    def sending_ranks(self) -> int:
        """Among how many tensor ranks what a stage sends is shared out."""
        return 1 if self.sends_whole else self.layout.tp

    @property
    def gathers_received(self) -> bool:
        """Whether tensor ranks put together what each of them received a share of."""
        layout = self.layout
        return layout.tp > 1 and not (layout.sequence_parallel or self.sends_whole)

    @cached_property
    def distinct_stages(self) -> tuple[tuple[int, int], ...]:
        """(index of the first, how many) of the stages that have equal parts."""
        parts = [id(s.workload) for s in self.stages]
        return tuple((parts.index(part), parts.count(part)) for part in dict.fromkeys(parts))

    @property
    def hides_messages(self) -> bool:
        """Whether stages work while what they send and wait for is under way."""
        return self.overlap.pipeline and self.layout.vpp > 1

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """Stages behind the last of each of ``distinct_stages``: of equal ones it waits longest."""
        parts = [id(s.workload) for s in reversed(self.stages)]
        return tuple(parts.index(id(self.stages[i].workload)) for i, _ in self.distinct_stages)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(which of ``distinct_stages``, how many in a row), from the first stage to the last."""
        known = {id(self.stages[i].workload): n for n, (i, _) in enumerate(self.distinct_stages)}
        parts = groupby(known[id(s.workload)] for s in self.stages)
        return tuple((part, len(list(row))) for part, row in parts)

    @cached_property
    def run_starts(self) -> tuple[int, ...]:
        """The first stage of each of ``runs``."""
        counts = [count for _, count in self.runs]
        return tuple(accumulate(counts[:-1], initial=0))


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
        "expert parallel": hidden * traffic.hidden_copies * traffic.expert_rows / layout.tp,
    }


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
        placed = self.placed
        times = {name: sum(passes) for name, passes in exchange_passes(placed).items()}
        n_times = {
            "tensor parallel": n_layers * times["tensor parallel"],
            "context parallel": n_layers * times["context parallel"],
            "expert parallel": n_layers * placed.expert_layers_frac * times["expert parallel"],
            TRANSFER: 1.0,
        }
        return {key: n_times[key[0]] * seconds for key, seconds in self.once_s.items()}

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
    if layout.cp > 1:
        group = on_ranks(layout.cp, float(layout.tp))
        way = WAYS[layout.cp_comm]
        found["context parallel", way.sent] = time(way.op, moved["context parallel"], group)
    if layout.ep > 1:
        group = on_ranks(layout.ep, float(layout.expert_tp))
        copies = traffic.hidden_copies
        across = once_a_node_frac(group.n_nodes, copies) if layout.dispatcher == "deepep" else 1.0
        exchanged = exchange_s(moved["expert parallel"][None, :], group, across)[0] * on
        found["expert parallel", "all_to_all"] = exchanged
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


def exposed(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, slowdown: Array
) -> dict[str, Array]:
    """What of the exchanges of a micro-step is seen, beside ``busy_s`` seconds of compute.

    Exchanges of tensor ranks in tp pieces leave the first piece bare; of whole ones those hide
    that weight gradients cover; those of experts hide under another micro-batch. What is hidden
    slows compute by ``slowdown`` of its own time.
    """
    found = dict(exchange)
    room = busy_s
    of_tensor, under = 0.0, busy_s
    if placed.overlap.tensor:
        of_tensor = 1.0 - 1.0 / placed.layout.tp
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


def _dgrad_frac(placed: Placed) -> float:
    """Of what tensor ranks exchange in a micro-step, the gradients of products' inputs.

    Those are all that backward sums up, and what it gathers again of these inputs. With sequence
    parallelism it also gathers before the products that are cut by rows, and that stands in the
    way (Megatron-LM, core/tensor_parallel/layers.py).
    """
    forward, backward = exchange_passes(placed)["tensor parallel"]
    summed = 0.5 if placed.layout.sequence_parallel else 1.0
    hidden = summed * (placed.traffic.tensor_sums + placed.more_sums) + _again(placed)
    return hidden / (forward + backward)


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


#: Terms of a stage's breakdown that its micro-step is made of.
_MICRO_STEP = ("forward", "backward", "accumulation")


def evaluate_layout(
    jobs: tuple[Job, ...],
    placed: Placed,
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> Steps:
    """The step of the stage that holds up the others: its own, exchanges, and its waiting.

    ``jobs``: of each of ``placed.distinct_stages``, alike but for their part of the model.
    ``terms``: of the breakdown, None: all.
    """
    layout = placed.layout
    needed = None if terms is None else {*terms, *_MICRO_STEP}
    local = data_points(points, placed)
    exchanges = exchanges_of(points, placed)
    first, n_parts = jobs[0], len(jobs)
    tables = [job.table for job in jobs]
    counts = tuple(count for _, count in placed.distinct_stages)
    paces = stage_paces(points, layout, counts, first.classes[0].device_sd_frac)
    spread = first.workload.work_sd_frac
    phases = phases_of_parts(
        first.strategy, tables * 2, first.classes, local, first.shares, spread,
        np.concatenate([paces.slowest, [paces.typical] * n_parts]),
    )  # fmt: skip
    of_parts, average = (
        [np.concatenate(of_class) for of_class in zip(*half, strict=True)]
        for half in (phases[:n_parts], phases[n_parts:])
    )
    every = evaluate_parts(jobs, local, keep_timeline=keep_timeline, terms=needed, phases=of_parts)
    # What passes through all stages meets average ones on its way.
    computing = together([job.program for job in jobs]).computing
    there, here = (
        pass_seconds(computing, first.strategy, first.classes, local, p, spread)
        for p in (average, of_parts)
    )
    slowdown = first.classes[0].overlap_slowdown_frac / points.overlap
    totals, forwards, backwards, own, parts = [], [], [], [], []
    for n, (steps, (index, _)) in enumerate(zip(every, placed.distinct_stages, strict=True)):
        busy = micro_step_s(steps, local)
        whole_s = exchanges.of_stage(placed.stages[index].n_layers)
        exchange = exposed(whole_s, placed, busy, slowdown)
        spent = sum(exchange.values(), np.zeros(len(points)))
        passing = busy * there[n] / np.maximum(here[n], TINY)
        once = np.maximum(passing, steps.host_micro_s) + spent
        shared = shared_nic_s(steps, whole_s, exchange, placed, local, slowdown)
        share = forward_share(steps)
        hidden = np.zeros(len(points))
        if placed.hides_messages:
            sent, halves = exchange[TRANSFER], (busy * share, busy * (1.0 - share))
            behind, count = placed.behind[n], local.grad_accum
            seen = messages.seen_s(layout, behind, count, sent, halves, slowdown)
            exchange, hidden = {**exchange, TRANSFER: seen}, sent - seen
        spent = spent - hidden
        totals.append(steps.step_s + local.grad_accum * spent + shared)
        forwards.append(once * share)
        backwards.append(once * (1.0 - share))
        own.append(once - hidden)
        parts.append((steps, exchange, spent))
    runs = [part for part, _ in placed.runs]
    bubbles = bubble_s(
        layout.schedule,
        np.stack(forwards)[runs],
        np.stack(backwards)[runs],
        [n for _, n in placed.runs],
        local.grad_accum,
        layout.vpp,
    )
    whole = np.stack(totals)[runs] + bubbles
    held_up = np.argmax(whole, axis=0)
    slowest = np.array(runs)[held_up]
    step, bubble = (x[held_up, np.arange(len(points))] for x in (whole, bubbles))
    steps, _, spent = parts[int(slowest[0])]
    of_stages = [
        {
            name: x
            for name, x in (
                *s.terms_s.items(),
                *((name, local.grad_accum * x) for name, x in exchange.items()),
            )
            if terms is None or name in terms
        }
        for s, exchange, _ in parts
    ]
    return Steps(
        step_s=step,
        makespan_s=step,
        load_period_s=steps.load_period_s,
        restart_s=steps.restart_s,
        comm_s=steps.comm_s + local.grad_accum * spent,
        comm_beside_s=steps.comm_beside_s,
        terms_s={**of_slowest(of_stages, slowest), "pipeline bubble": bubble},
        host_micro_s=steps.host_micro_s,
        timeline=steps.timeline,
        micro_steps_s=np.stack(own),
    )
