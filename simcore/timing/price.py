"""Durations of every task of a step graph along the configuration axis.

# C configs, T tasks, N parts of a model (stages of a pipeline) priced at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.base.units import FP32_BYTES
from simcore.physics.collectives import Group, collective_time_s
from simcore.step.host_calls import driver_issues
from simcore.step.kernels import KernelTable
from simcore.step.program import Scope
from simcore.step.together import Sending, Together
from simcore.step.transients import saved_bytes
from simcore.strategy.precision import Precision
from simcore.strategy.programs.mechanisms import TensorLists
from simcore.strategy.strategy import Strategy
from simcore.timing.compute import ComputeTimes, host_s, issue_s, issuing_devices
from simcore.timing.norms import sync_norms_s
from simcore.timing.owned_tensors import broadcasts_s
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates
from simcore.timing.tensor_lists import tensor_lists_s
from simcore.timing.update import Update
from simcore.workload.graph import Workload
from simcore.workload.saved import NOTHING

Array = NDArray[np.float64]

#: State bytes a parameter that NVMe offload reads and writes back: m, v, master in fp32.
NVME_STATE_BYTES = 12.0


@dataclass(frozen=True)
class Priced:
    """Durations of one graph's tasks [T, C].

    ``comm_total_s`` [C]: seconds of all collectives; ``comm_beside_s`` [C]: of those that run
    during backward. ``host_micro_s`` [C]: host seconds to issue one micro-step.
    """

    duration_s: Array
    comm_total_s: Array
    comm_beside_s: Array
    host_micro_s: Array


def price(
    joined: Together,
    workloads: Sequence[Workload],
    strategy: Strategy,
    table: KernelTable,
    classes: tuple[ClassRates, ...],
    points: Points,
    computed: ComputeTimes,
    loader: Array,
    shares: tuple[float, ...] = (),
) -> list[Priced]:
    """Durations of the tasks of several step graphs, one result for each of ``workloads``.

    ``workloads``: parts of one model. ``loader``: load time that blocks a step [C]. ``shares``: as
    in ``evaluate.Job``.
    """
    duration = np.empty((joined.ends[-1], len(points)))
    tasks, sending = joined.computing, joined.sending
    issue = issue_s(strategy, classes, points)
    issued = issue * issuing_devices(strategy, points)
    shared_out = points.n_ranks > 1
    duration[tasks.host_tasks] = host_s(tasks.host_weights, table, issued, shared_out)
    host_micro_s = host_s(tasks.host_sums, table, issued, shared_out)

    # Compute and collectives that run at the same time slow each other. Sums are over messages and
    # distinct columns, of which there are few, not over tasks.
    column = computed.column
    wire_s = _messages_s(sending, points, strategy)
    message_s = wire_s
    if lists := strategy.program.zero3.tensor_lists:
        message_s = _through_lists_s(lists, sending, wire_s, points, strategy, classes)
    # A message that is sent after backward has ended (DDP's last bucket) slows nothing.
    sent = sending.sent_counts @ message_s
    window = computed.overlapped_s.max(axis=0)[:, column]
    shared = np.minimum(sent, window)
    slowdown = max(c.overlap_slowdown_frac for c in classes) / points.overlap
    slower = 1.0 + slowdown * shared / np.maximum(window, TINY)
    duration[sending.after_tasks] = sending.after_counts @ message_s
    if len(sending.sent_tasks):
        slowing = max(c.comm_slowdown_frac for c in classes) / points.overlap
        longer = 1.0 + slowing * shared / np.maximum(sent, TINY)
        longer_s = message_s * _spread(longer, sending.message_part)
        duration[sending.sent_tasks] = sending.sent_task_counts @ longer_s

    alone, slowed = (
        computed.task_s[rows].take(column, axis=1) for rows in (tasks.alone, tasks.slowed)
    )
    slowed *= _spread(slower, tasks.slowed_part)
    duration[tasks.tasks[tasks.alone]] = alone
    duration[tasks.tasks[tasks.slowed]] = slowed

    comm_micro = sending.micro_counts @ message_s
    micro_s = computed.micro_step_s[:, :, column]
    in_turn = micro_s + comm_micro
    if sending.hides.any():
        slowed_s = (slower - 1.0) * computed.overlapped_s[:, :, column]
        beside = np.maximum(micro_s + slowed_s, comm_micro)
        micro_s = beside if sending.hides.all() else np.where(sending.hides, beside, in_turn)
    else:
        micro_s = in_turn

    largest = _scaled(points, max(shares)) if shares else points
    context = _Context(
        workloads=tuple(workloads), strategy=strategy, points=largest, classes=classes,
        table=table, loader=loader, issue_s=issue, micro_s=micro_s, host_micro_s=host_micro_s,
    )  # fmt: skip
    for quantity, index, at, part in joined.misc:
        duration[at] = _spread(context.quantity(quantity, index), part)
    host_micro_s = host_micro_s + context.sums_host_s
    total = sending.all_counts @ wire_s + context.broadcasts_s
    begins = (0, *joined.ends[:-1])
    return [
        Priced(duration[begin:end], total[n], sent[n], host_micro_s[n])
        for n, (begin, end) in enumerate(zip(begins, joined.ends, strict=True))
    ]


def _spread(of_part: Array, part: NDArray[np.intp]) -> Array:
    """Rows for each task: from a number, a row for all parts ([C], [1, C]) or one a part [N, C]."""
    return of_part if of_part.ndim < 2 or len(of_part) == 1 else of_part[part]


def _scaled(points: Points, share: float) -> Points:
    return replace(points, micro_batch=points.micro_batch * share)


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
    return replace(
        group,
        n_ranks=size,
        n_nodes=np.ceil(size / here),
        inter_bw_bytes_per_s=group.inter_bw_bytes_per_s * np.minimum(1.0, here / a_node),
    )


def _messages_s(sending: Sending, points: Points, strategy: Strategy) -> Array:
    """Seconds of each distinct message of a step [messages, C]."""
    shape = len(sending.message_part), len(points)
    if not sending.messages or not (points.n_ranks > 1).any():
        return np.zeros(shape)
    seconds = np.empty(shape)
    for op, scope, sizes, rows in sending.messages:
        seconds[rows] = collective_time_s(op, sizes, _communicator(points, scope, strategy))
    return seconds * points.use_comm


def _through_lists_s(
    lists: TensorLists, sending: Sending, wire_s: Array, points: Points, strategy: Strategy,
    classes: tuple[ClassRates, ...],
) -> Array:  # fmt: skip
    """Seconds of each message that passes through tensor lists; ``wire_s``: NCCL's part of it."""
    issue = issue_s(replace(strategy, issuer="torch"), classes, points)
    seconds = wire_s.copy()
    for op, scope, sizes, rows in sending.messages:
        n_ranks = _communicator(points, scope, strategy).n_ranks
        seconds[rows] = tensor_lists_s(lists, op, sizes, wire_s[rows], n_ranks, issue, classes)
    return np.where(points.use_comm > 0, seconds, 0.0)


def _communicator(points: Points, scope: Scope, strategy: Strategy) -> Group:
    """The communicator of a scope, cached: stages of a pipeline share one axis and its groups."""
    key = scope, strategy.shard_ranks, strategy.expert_ranks
    if key not in points.communicators:
        world = points.group(points.n_ranks, points.n_nodes)
        points.communicators[key] = scoped(world, scope, strategy)
    return points.communicators[key]


@dataclass(frozen=True, kw_only=True)
class _Context(Update):
    """The quantities that tasks name, in seconds; sizes of several parts of a model are [N, 1]."""

    table: KernelTable
    loader: Array
    micro_s: Array
    host_micro_s: Array

    def quantity(self, name: str, index: int) -> Array:
        """Seconds of the named quantity on rank class ``index``: [C], or [N, C] of each part."""
        if name.startswith("fetch_block_"):
            return self._fetch(int(name.split("_")[2]), index)
        return _QUANTITIES[name](self, index)

    @cached_property
    def broadcasts_s(self) -> Array | float:
        """Seconds of the broadcasts of parameters from the ranks that own them."""
        if (
            not self.strategy.program.optimizer_state.owned_tensor_by_tensor
            or self.strategy.zero_stage != 1
        ):
            return 0.0
        group = _communicator(self.points, "shard", self.strategy)
        width = self.strategy.precision.param_bytes
        each = np.array([broadcasts_s(w, width, group) for w in self.workloads])
        return each * self.points.use_comm

    def _input_copy(self, index: int) -> Array:
        input_bytes = self.of_parts(lambda w: w.input_bytes)
        n_bytes = input_bytes * self.points.micro_batch * self.points.grad_accum
        return n_bytes / self.classes[index].h2d_bytes_per_s

    def _accumulation(self, index: int) -> Array:
        # Autocast casts the weights again in each micro-step, and gradients are summed up.
        each = self.micro_s[index] + self._cast(index) + self._grad_sum(index)
        each = np.maximum(each, 2.0 * self._activations_copy(index))  # to the host and back
        earlier_s: Array = (self.points.grad_accum - 1.0) * each
        return earlier_s

    def _grad_sum(self, index: int) -> Array:
        """Seconds to add a micro-step's gradients to those of earlier ones.

        Autograd reads both and writes the sum with one kernel a tensor; so do programs that add
        16-bit gradients to fp32 sums. With fused sums the weight gradient's own product reads and
        writes the sum in place of a result. ZeRO-3 sums shards, unless it reduces only after the
        last micro-step.
        """
        p = self.strategy.precision
        made = -p.param_bytes if self._sums_fused else min(p.grad_bytes, p.param_bytes)
        early = (
            self.strategy.zero_stage == 3 and not self.strategy.program.fsdp.reduces_last_micro_step
        )
        traffic = (self.held if early else self.numel) * (2.0 * p.grad_bytes + made)
        rate = self.classes[index].elementwise_bytes_per_s * self.points.memory
        started = self._sum_launches() * self.classes[index].kernels.start_s
        result: Array = traffic / rate + started
        return result

    @property
    def sums_host_s(self) -> Array:
        """Host seconds to issue the sums of a micro-step's gradients [C]."""
        issued: Array = self._sum_launches() * self.issue_s * (self.points.grad_accum > 1)
        return issued

    def _sum_launches(self) -> Array | float:
        return self.n_tensors * (not self._sums_fused)

    @property
    def _sums_fused(self) -> bool:
        return (
            self.strategy.precision.fused_grad_sum
            and not self.strategy.program.gradients.added_by_own_kernel
        )

    def _driver(self, index: int) -> Array:
        """Seconds of a trainer's Python between micro-steps, during which the device waits."""
        driver = self.strategy.program.host.trainer_loop
        if driver is None:
            return 0.0 * self.issue_s
        size = self.of_parts(lambda w: driver_issues(w, driver))
        between: Array = self.points.grad_accum * size * self.issue_s
        return between

    def _accumulation_host(self, index: int) -> Array:
        issued = self.host_micro_s + self._sum_launches() * self.issue_s
        return (self.points.grad_accum - 1.0) * issued

    def _cast(self, index: int) -> Array:
        p = self.strategy.precision
        launches = self.of_parts(lambda w: w.gemm_weights[0]) * bool(p.cast_bytes)
        numel = self.of_parts(lambda w: w.gemm_weights[1])
        numel = numel * bool(p.cast_bytes)
        by_element = numel * self.classes[index].kernels.limits.indexed_s
        moved = self.moved(numel * (p.param_bytes + p.cast_bytes), index, launches)
        return np.maximum(moved, by_element + launches * self.classes[index].kernels.start_s)

    def _bucket_copy(self, index: int) -> Array:
        """Copies of all gradients to or from DDP's buckets: one read and one write each."""
        traffic = 2.0 * self.numel * self.strategy.precision.grad_bytes
        rate = self.classes[index].elementwise_bytes_per_s * self.points.memory
        started = self.n_tensors * self.classes[index].kernels.start_s
        copied: Array = (traffic / rate + started) * self._reduces()
        return copied

    def _bucket_copies_host(self, index: int) -> Array:
        passes = 1.0 if self.strategy.bucket_view else 2.0
        issued: Array = passes * self.n_tensors * self.issue_s * self._reduces()
        return issued

    def _buffer_copies(self, index: int) -> Array:
        """Copies of buffers to and from one message: a read, a write and a kernel each way."""
        traffic = 4.0 * FP32_BYTES * self.of_parts(lambda w: w.buffers_numel)
        rate = self.classes[index].elementwise_bytes_per_s * self.points.memory
        n_buffers = self.of_parts(lambda w: w.n_buffers)
        started = n_buffers * self.classes[index].kernels.start_s
        copied: Array = (traffic / rate + started) * self._reduces()
        return copied

    def _buffer_copies_host(self, index: int) -> Array:
        n_buffers = self.of_parts(lambda w: w.n_buffers)
        issued: Array = n_buffers * self.issue_s * self._reduces()
        return issued

    def _reduces(self) -> NDArray[np.bool_]:
        """Whether there is anything to reduce [C]: a single device is not wrapped in DDP."""
        shared: NDArray[np.bool_] = (self.points.n_ranks > 1) & (self.points.use_comm > 0)
        return shared

    # -- offload ---------------------------------------------------------------------------

    def _activations_copy(self, index: int) -> Array:
        """Seconds to copy the activations of offloaded layers one way between device and host."""
        n_bytes = self.of_parts(lambda w: _away_bytes(w, self.strategy.precision))
        return n_bytes * self.points.micro_batch / self.classes[index].h2d_bytes_per_s

    def _host_path(self, target: str, index: int) -> float:
        c = self.classes[index]
        return min(c.h2d_bytes_per_s, c.far_bytes_per_s if target == "cpu-far" else np.inf)

    def _shard_bytes(self, per_param: float) -> Array:
        return self.held * per_param

    def _offload_down(self, index: int) -> Array:
        rate = self._host_path(self.strategy.offload.optimizer, index)
        return self._shard_bytes(self._host_width(self.strategy.precision.grad_bytes)) / rate

    def _host_width(self, n_bytes: float) -> float:
        """Bytes an element of a tensor that is copied between host and device."""
        return (
            max(n_bytes, FP32_BYTES) if self.strategy.program.offload.crosses_in_fp32 else n_bytes
        )

    def _offload_up(self, index: int) -> Array:
        if self.strategy.offload.params != "none":  # they stay, and are fetched layer by layer
            return self._shard_bytes(0.0)
        rate = self._host_path(self.strategy.offload.optimizer, index)
        return self._shard_bytes(self._host_width(self.strategy.precision.param_bytes)) / rate

    def _host_optimizer(self, index: int) -> Array:
        c, target = self.classes[index], self.strategy.offload.optimizer
        rate = min(
            c.dram_bytes_per_s / c.ranks_per_socket,
            c.far_bytes_per_s / c.ranks_per_socket if target == "cpu-far" else np.inf,
        )
        moved = self._shard_bytes(self.strategy.program.offload.host_update_bytes)
        seconds = moved / (rate * HOST_DRAM_FRAC)
        if target == "nvme":
            ranks = float(c.gpus_per_node)
            state = self._shard_bytes(NVME_STATE_BYTES)
            seconds = seconds + ranks * state * (
                1.0 / c.nvme_read_bytes_per_s + 1.0 / c.nvme_write_bytes_per_s
            )
        return seconds

    def _fetch(self, block: int, index: int) -> Array:
        c, target = self.classes[index], self.strategy.offload.params
        numel = self.of_parts(lambda w: w.blocks[block].numel if block < len(w.blocks) else 0.0)
        width = self._host_width(self.strategy.precision.param_bytes)
        shard = numel * width / self.shards()
        if target == "nvme":
            return shard * c.gpus_per_node / c.nvme_read_bytes_per_s
        return shard / self._host_path(target, index)


def _away_bytes(workload: Workload, p: Precision) -> float:
    """Bytes a sample of activations that are offloaded to the host."""
    each = [saved_bytes(b.away, p) if b.away is not NOTHING else 0.0 for b in workload.blocks]
    return sum(each[b] for b in workload.order)


#: Share of a socket's DRAM bandwidth that a vectorised CPU Adam sustains: STREAM triad on
#: EPYC 7002 reaches about 0.8 of the channels' peak (AMD, tuning guide 56745).
HOST_DRAM_FRAC = 0.8

_QUANTITIES: dict[str, Callable[[_Context, int], Array]] = {
    "loader_blocking_s": lambda c, i: c.loader,
    "input_copy_s": _Context._input_copy,
    "accumulation_s": _Context._accumulation,
    "driver_s": _Context._driver,
    "accumulation_host_s": _Context._accumulation_host,
    "broadcasts_s": lambda c, i: np.asarray(c.broadcasts_s),
    "sync_norms_s": lambda c, i: (
        np.array([sync_norms_s(w, c.points) for w in c.workloads]) * c._reduces()
    ),
    "bucket_fill_s": _Context._bucket_copy,
    "bucket_drain_s": _Context._bucket_copy,
    "bucket_copies_host_s": _Context._bucket_copies_host,
    "buffer_copies_s": _Context._buffer_copies,
    "buffer_copies_host_s": _Context._buffer_copies_host,
    "cast_weights_s": _Context._cast,
    "optimizer_s": Update.optimizer,
    "grad_norm_s": Update.grad_norm,
    "update_passes_s": Update.update_passes,
    "ema_s": Update.ema,
    "activations_copy_s": _Context._activations_copy,
    "offload_down_s": _Context._offload_down,
    "offload_up_s": _Context._offload_up,
    "host_optimizer_s": _Context._host_optimizer,
}
