"""Durations of every task of a program over the configuration axis.

# C configs, K kernels, P phases, T tasks, U distinct (batch, knob) columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from simcore.base.arrays import NDArray, distinct_columns
from simcore.engine.norms import sync_norms_s
from simcore.engine.points import Points
from simcore.engine.rates import ClassRates
from simcore.engine.transients import saved_bytes
from simcore.physics.collectives import Group, collective_time_s
from simcore.physics.fill import attention_fill, matmul_fill
from simcore.physics.slowest import most_work
from simcore.step.kernels import KINDS, KernelTable
from simcore.step.parallel import PARALLELISMS
from simcore.step.program import Program, Scope
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import NOTHING, Workload

Array = NDArray[np.float64]

_ELEMENTWISE = KINDS.index("elementwise")
#: fp32 elements that a Python-loop EMA moves a parameter: mul_ (1 read, 1 write), add_ (2, 1).
EMA_TRAFFIC_ELEMS = 5.0
FP32_BYTES = 4.0
#: Parameter tensors that one multi-tensor kernel takes on average (torch foreach packs up to
#: 110 pointers a launch for one list, fewer for Adam's five).
FOREACH_TENSORS_PER_LAUNCH = 30.0
#: Bytes a parameter that a host Adam moves: reads g, m, v, w and writes m, v, w in fp32.
HOST_ADAM_BYTES = 28.0
#: State bytes a parameter that NVMe offload reads and writes back: m, v, master in fp32.
NVME_STATE_BYTES = 12.0


@dataclass(frozen=True)
class Priced:
    """Durations [T, C], seconds of all collectives, and of those under backward [C].

    ``host_micro_s`` [C]: what the host takes to issue one micro-step.
    """

    duration_s: Array
    comm_total_s: Array
    comm_beside_s: Array
    host_micro_s: Array


def phase_seconds(
    table: KernelTable, rates: ClassRates, micro_batch: Array, compute: Array, memory: Array
) -> Array:
    """Device seconds of each phase for each column, [P, U]."""

    def affine(column: Array) -> Array:
        return column[:, :1] + column[:, 1:] * micro_batch

    same_batch = bool(micro_batch.size and (micro_batch == micro_batch[0]).all())
    batch = micro_batch[:1] if same_batch else micro_batch

    def narrow(column: Array) -> Array:
        return column[:, :1] + column[:, 1:] * batch

    n_bytes = table.bytes_fixed[:, None] + table.bytes_per_sample[:, None] * batch
    memory_s = n_bytes / rates.bytes_per_s[table.kind][:, None]
    compute_s = table.flop[:, None] * batch / rates.flop_per_s[table.kind][:, None]
    if rates.sm_count:
        geometry = (table.m, table.n, table.k, table.groups)

        def shape(rows: NDArray[np.intp]) -> dict[str, Array | float]:
            kind = table.kind[rows]
            return {
                "sm_count": rates.sm_count,
                "wave_frac": rates.wave_frac[kind][:, None],
                "half_depth": rates.half_depth[kind][:, None],
            }

        def sizes(rows: NDArray[np.intp]) -> tuple[Array, Array, Array, Array]:
            m, n, k, groups = (narrow(a[rows]) for a in geometry)
            return m, n, k, groups

        if table.matrix.size:
            rows = table.matrix
            compute_s[rows] /= matmul_fill(*sizes(rows), **shape(rows))
        if table.attention.size:
            rows, width = table.attention, rates.half_width
            compute_s[rows] /= attention_fill(*sizes(rows), half_width=width, **shape(rows))
    compute_s[table.attention_bwd] /= rates.attention_bwd_frac
    start = (table.launches * table.count * rates.kernel_start_s)[:, None]
    weighted = table.count[:, None]
    # count scales the square root: count^2 inside costs nothing extra.
    tc2 = np.square(compute_s * weighted)
    tm2 = np.square(memory_s * weighted)
    seconds = np.sqrt(tc2 / np.square(compute) + tm2 / np.square(memory)) + start
    result: Array = np.add.reduceat(seconds, table.phase_start, axis=0)
    return result


@dataclass(frozen=True)
class ComputeTimes:
    """Seconds of compute tasks, of equal configurations once: columns U; ``column`` [C] says which.

    ``task_s`` [tasks, U]; ``micro_step_s`` [classes, U] is a micro-step of each class: forward,
    backward and frozen networks once, ``overlapped_s`` what of that runs beside collectives.
    """

    task_s: Array
    micro_step_s: Array
    overlapped_s: Array
    column: NDArray[np.intp]

    def take(self, part: slice) -> ComputeTimes:
        """Of a part of the axis."""
        return replace(self, column=self.column[part])


def compute_times(
    program: Program,
    strategy: Strategy,
    table: KernelTable,
    classes: tuple[ClassRates, ...],
    points: Points,
    shares: tuple[float, ...] = (),
    work_sd_frac: float = 0.0,
) -> ComputeTimes:
    """Price the kernels of a program; ``shares`` as ``evaluate.Job`` has them.

    Where samples differ in work all wait for the rank that drew most (``work_sd_frac``).
    """
    own = 1 if points.class_compute is None else len(classes)
    rows = [points.micro_batch, points.memory, *(points.compute_of(c) for c in range(own))]
    if work_sd_frac:
        most = most_work(points.n_ranks, points.micro_batch * points.grad_accum, work_sd_frac)
        rows.append(most)
    if strategy.launch_blocking:  # the device idles while the host issues
        issued = _issue_s(strategy, classes, points) * _devices(strategy, points)
        rows.append(issued)
    first, column = distinct_columns(rows)
    batch, memory = points.micro_batch[first], points.memory[first]
    seconds = np.zeros((len(program.compute_tasks), len(first)))
    of_class = shares or (1.0,) * len(classes)
    tasks = [program.compute_class == c for c in range(len(classes))]
    for index, (mine, rates, share) in enumerate(zip(tasks, classes, of_class, strict=True)):
        compute = points.compute_of(index)[first]
        phases = phase_seconds(table, rates, batch * share, compute, memory)
        if work_sd_frac:
            phases = phases * most[first]
        seconds[mine] = program.weights[mine] @ phases
    if strategy.launch_blocking:
        seconds += np.outer(program.weights @ table.issues_per_phase, issued[first])
    return ComputeTimes(
        seconds,
        np.stack([seconds[mine].sum(axis=0) for mine in tasks]),
        np.stack([seconds[mine & program.computes_beside].sum(axis=0) for mine in tasks]),
        column,
    )


def _issue_s(strategy: Strategy, classes: tuple[ClassRates, ...], points: Points) -> Array:
    """Host seconds of one launch [C] on the host that is behind all others."""
    each = [c.issue_s(strategy.issuer) for c in classes]
    if points.class_host is None:
        return max(each) / points.host * points.use_host
    slowest: Array = np.max([s / points.host_of(i) for i, s in enumerate(each)], axis=0)
    return slowest * points.use_host


def _devices(strategy: Strategy, points: Points) -> Array | float:
    """Devices whose passes one interpreter issues; the update runs on the master alone."""
    return points.n_ranks if strategy.parallelism == "dp" else 1.0


def price(
    program: Program,
    workload: Workload,
    strategy: Strategy,
    table: KernelTable,
    classes: tuple[ClassRates, ...],
    points: Points,
    computed: ComputeTimes,
    loader: Array,
    shares: tuple[float, ...] = (),
) -> Priced:
    """Price every task. ``loader`` is the blocking load time of one step [C]; ``shares`` of the
    micro-batch as ``evaluate.Job`` has them.
    """
    duration = np.empty((len(program.graph.tasks), len(points)))
    launches = program.host_weights @ table.issues_per_phase
    issue = _issue_s(strategy, classes, points)
    issued = issue * _devices(strategy, points)
    duration[program.host_tasks] = launches[:, None] * issued

    # What runs at the same time slows each other. Sums are over messages and distinct columns,
    # which are few, not over tasks.
    column, comm = computed.column, program.comm_table
    message_s = _messages_s(program, points, strategy)
    beside = program.comm_beside
    # What is sent after backward has ended (DDP's last bucket) slows nothing.
    sent = comm.counts[beside].sum(axis=0) @ message_s
    window = computed.overlapped_s.max(axis=0)[column]
    shared, tiny = np.minimum(sent, window), np.finfo(float).tiny
    slowdown = max(c.overlap_slowdown_frac for c in classes) / points.overlap
    slower = 1.0 + slowdown * shared / np.maximum(window, tiny)
    duration[comm.tasks[~beside]] = comm.counts[~beside] @ message_s
    if beside.any():
        sending = max(c.comm_slowdown_frac for c in classes) / points.overlap
        longer = 1.0 + sending * shared / np.maximum(sent, tiny)
        duration[comm.tasks[beside]] = comm.counts[beside] @ (message_s * longer)

    overlapped = program.computes_beside
    alone, slowed = (
        computed.task_s[rows].take(column, axis=1) for rows in (~overlapped, overlapped)
    )
    slowed *= slower
    duration[program.compute_tasks[~overlapped]] = alone
    duration[program.compute_tasks[overlapped]] = slowed

    comm_micro = comm.counts[comm.every_micro_step].sum(axis=0) @ message_s
    micro_s = computed.micro_step_s[:, column]
    if not overlapped.any():
        micro_s = micro_s + comm_micro
    elif comm.every_micro_step.any():
        slowed_s = (slower - 1.0) * computed.overlapped_s[:, column]
        micro_s = np.maximum(micro_s + slowed_s, comm_micro)

    largest = _scaled(points, max(shares)) if shares else points
    context = _Context(workload, strategy, largest, classes, table, loader, issue,
                       micro_s, launches.sum() * issued)  # fmt: skip
    for task, quantity, index in program.misc:
        duration[task] = context.quantity(quantity, index)
    host_micro_s = launches.sum() * issued + context.sums_host_s
    return Priced(duration, comm.counts.sum(axis=0) @ message_s, sent, host_micro_s)


def _scaled(points: Points, share: float) -> Points:
    return replace(points, micro_batch=points.micro_batch * share)


def scoped(group: Group, scope: Scope, strategy: Strategy) -> Group:
    """Of a group of data ranks those that a collective runs over.

    Shards of a hybrid sharding are dealt to consecutive ranks; ranks of equal shard lie
    ``shard_ranks`` apart, those that hold the same experts ``expert_ranks``.
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
    """Ranks that lie so far apart; the rings beside them share the nodes' NICs.

    Less than 1 apart: ranks of another dimension, next to them, are among them.
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


def _messages_s(program: Program, points: Points, strategy: Strategy) -> Array:
    """Seconds of each distinct message of a step [messages, C]."""
    if not program.comm:
        return np.zeros((0, len(points)))
    group = points.group(points.n_ranks, points.n_nodes)
    table = program.comm_table
    seconds = np.empty((table.counts.shape[1], len(points)))
    for op, scope, sizes, rows in table.messages:
        seconds[rows] = collective_time_s(op, sizes, scoped(group, scope, strategy))
    return seconds * points.use_comm


@dataclass(frozen=True)
class _Context:
    """What the named quantities are made of."""

    workload: Workload
    strategy: Strategy
    points: Points
    classes: tuple[ClassRates, ...]
    table: KernelTable
    loader: Array
    issue_s: Array
    micro_s: Array
    host_micro_s: Array

    def quantity(self, name: str, index: int) -> Array:
        """Seconds [C] of a misc task on rank class ``index``."""
        if name.startswith("fetch_block_"):
            return self._fetch(int(name.split("_")[2]), index)
        return _QUANTITIES[name](self, index)

    def _shards(self) -> Array:
        parallel = PARALLELISMS[self.strategy.parallelism]
        return parallel.shard_degree(self.strategy, self.points.n_ranks)

    def _moved(self, n_bytes: Array | float, index: int, launches: float) -> Array:
        rate = self.classes[index].update_bytes_per_s * self.points.memory
        device = n_bytes / rate + launches * self.classes[index].kernel_start_s
        busy: Array = np.maximum(device, launches * self.issue_s)
        return busy

    def _n_tensors(self) -> int:
        return self.workload.n_tensors

    def _launches(self, kernels: int, per_tensor: int, impl: str) -> float:
        tensors = self._n_tensors()
        if impl == "for-loop":
            return float(per_tensor * tensors)
        if impl == "fused":
            return max(1.0, tensors / FOREACH_TENSORS_PER_LAUNCH)
        return kernels * max(1.0, tensors / FOREACH_TENSORS_PER_LAUNCH)

    def _optimizer(self, index: int) -> Array:
        s = self.strategy
        numel = self.workload.trainable_numel
        state = s.optimizer.traffic_elems * FP32_BYTES
        if s.step_impl == "fused":
            # one pass: read g, w and state, write w and state
            state = (2 * FP32_BYTES + 2 * s.optimizer.state_bytes) + s.precision.grad_bytes
        traffic = numel * (state + 2 * s.precision.param_bytes * bool(s.precision.master_bytes))
        launches = self._launches(s.optimizer.kernels, s.optimizer.kernels_per_tensor, s.step_impl)
        products = s.optimizer.flop * numel / self._shards()
        rate = self.classes[index].half_product_flop_per_s * self.points.compute_of(index)
        return self._moved(traffic / self._shards(), index, launches) + products / rate

    def _grad_norm(self, index: int) -> Array:
        traffic = self.workload.trainable_numel * self.strategy.precision.grad_bytes
        launches = 2.0 * self._launches(1, 1, "foreach")
        return self._moved(traffic / self._shards(), index, launches)

    def _ema(self, index: int) -> Array:
        traffic = self.workload.trainable_numel * EMA_TRAFFIC_ELEMS * FP32_BYTES
        launches = self._launches(2, 2, self.strategy.ema_impl)
        return self._moved(float(traffic), index, launches)

    def _input_copy(self, index: int) -> Array:
        n_bytes = self.workload.input_bytes * self.points.micro_batch * self.points.grad_accum
        return n_bytes / self.classes[index].h2d_bytes_per_s

    def _accumulation(self, index: int) -> Array:
        # Autocast casts the weights anew in each micro-step, and gradients are summed up.
        each = self.micro_s[index] + self._cast(index) + self._grad_sum(index)
        each = np.maximum(each, 2.0 * self._activations_copy(index))  # there and back
        again: Array = (self.points.grad_accum - 1.0) * each
        return again

    def _grad_sum(self, index: int) -> Array:
        """What a micro-step's gradients cost to add to those before.

        Autograd reads both and writes the sum, one kernel a tensor. Fused, the weight gradient's
        own product reads and writes the sum instead of a result. ZeRO-3 sums up shards.
        """
        p, numel = self.strategy.precision, self.workload.trainable_numel
        fused = p.fused_grad_sum
        traffic = numel * (2.0 * p.grad_bytes - p.param_bytes if fused else 3.0 * p.grad_bytes)
        shards = self._shards() if self.strategy.zero_stage == 3 else 1.0
        rate = self.classes[index].bytes_per_s[_ELEMENTWISE] * self.points.memory
        started = self._sum_launches() * self.classes[index].kernel_start_s
        result: Array = traffic / shards / rate + started
        return result

    @property
    def sums_host_s(self) -> Array:
        """What the host takes to issue the summing up of a micro-step's gradients [C]."""
        issued: Array = self._sum_launches() * self.issue_s * (self.points.grad_accum > 1)
        return issued

    def _sum_launches(self) -> float:
        return 0.0 if self.strategy.precision.fused_grad_sum else float(self._n_tensors())

    def _accumulation_host(self, index: int) -> Array:
        issued = self.host_micro_s + self._sum_launches() * self.issue_s
        return (self.points.grad_accum - 1.0) * issued

    def _cast(self, index: int) -> Array:
        p = self.strategy.precision
        launches, numel = self.workload.gemm_weights
        traffic = numel * (p.param_bytes + p.cast_bytes) * bool(p.cast_bytes)
        return self._moved(float(traffic), index, launches * bool(p.cast_bytes))

    def _bucket_copy(self, index: int) -> Array:
        """One pass of all gradients between their tensors and DDP's buckets: read and written."""
        traffic = 2.0 * self.workload.trainable_numel * self.strategy.precision.grad_bytes
        rate = self.classes[index].bytes_per_s[_ELEMENTWISE] * self.points.memory
        started = self._n_tensors() * self.classes[index].kernel_start_s
        copied: Array = (traffic / rate + started) * self._reduces()
        return copied

    def _bucket_copies_host(self, index: int) -> Array:
        passes = 1.0 if self.strategy.bucket_view else 2.0
        issued: Array = passes * self._n_tensors() * self.issue_s * self._reduces()
        return issued

    def _buffer_copies(self, index: int) -> Array:
        """Buffers into one message and out of it: a read and a write each way, a kernel each."""
        traffic = 4.0 * FP32_BYTES * self.workload.buffers_numel
        rate = self.classes[index].bytes_per_s[_ELEMENTWISE] * self.points.memory
        started = self.workload.n_buffers * self.classes[index].kernel_start_s
        copied: Array = (traffic / rate + started) * self._reduces()
        return copied

    def _buffer_copies_host(self, index: int) -> Array:
        issued: Array = self.workload.n_buffers * self.issue_s * self._reduces()
        return issued

    def _reduces(self) -> NDArray[np.bool_]:
        """Whether there is anything to reduce [C]: one device alone is not wrapped."""
        shared: NDArray[np.bool_] = (self.points.n_ranks > 1) & (self.points.use_comm > 0)
        return shared

    # -- offload ---------------------------------------------------------------------------

    def _activations_copy(self, index: int) -> Array:
        """One way between device and host, of the layers whose activations live there."""
        p, blocks = self.strategy.precision, self.workload.blocks
        each = [saved_bytes(b.away, p) if b.away is not NOTHING else 0.0 for b in blocks]
        n_bytes = sum(each[b] for b in self.workload.order)
        return n_bytes * self.points.micro_batch / self.classes[index].h2d_bytes_per_s

    def _host_path(self, target: str, index: int) -> float:
        c = self.classes[index]
        return min(c.h2d_bytes_per_s, c.far_bytes_per_s if target == "cpu-far" else np.inf)

    def _shard_bytes(self, per_param: float) -> Array:
        return self.workload.trainable_numel * per_param / self._shards()

    def _offload_down(self, index: int) -> Array:
        rate = self._host_path(self.strategy.offload.optimizer, index)
        return self._shard_bytes(self.strategy.precision.grad_bytes) / rate

    def _offload_up(self, index: int) -> Array:
        rate = self._host_path(self.strategy.offload.optimizer, index)
        return self._shard_bytes(self.strategy.precision.param_bytes) / rate

    def _host_optimizer(self, index: int) -> Array:
        c, target = self.classes[index], self.strategy.offload.optimizer
        rate = min(
            c.dram_bytes_per_s / c.ranks_per_socket,
            c.far_bytes_per_s / c.ranks_per_socket if target == "cpu-far" else np.inf,
        )
        seconds = self._shard_bytes(HOST_ADAM_BYTES) / (rate * HOST_DRAM_FRAC)
        if target == "nvme":
            ranks = float(c.gpus_per_node)
            state = self._shard_bytes(NVME_STATE_BYTES)
            seconds = seconds + ranks * state * (
                1.0 / c.nvme_read_bytes_per_s + 1.0 / c.nvme_write_bytes_per_s
            )
        return seconds

    def _fetch(self, block: int, index: int) -> Array:
        c, target = self.classes[index], self.strategy.offload.params
        numel = self.workload.blocks[block].numel
        shard = numel * self.strategy.precision.param_bytes / self.points.n_ranks
        if target == "nvme":
            return shard * c.gpus_per_node / c.nvme_read_bytes_per_s
        return shard / self._host_path(target, index)


#: Share of a socket's DRAM bandwidth that a vectorised CPU Adam sustains: STREAM triad on
#: EPYC 7002 reaches about 0.8 of the channels' peak (AMD, tuning guide 56745).
HOST_DRAM_FRAC = 0.8

_QUANTITIES: dict[str, Callable[[_Context, int], Array]] = {
    "loader_blocking_s": lambda c, i: c.loader,
    "input_copy_s": _Context._input_copy,
    "accumulation_s": _Context._accumulation,
    "accumulation_host_s": _Context._accumulation_host,
    "sync_norms_s": lambda c, i: sync_norms_s(c.workload, c.points) * c._reduces(),
    "bucket_fill_s": _Context._bucket_copy,
    "bucket_drain_s": _Context._bucket_copy,
    "bucket_copies_host_s": _Context._bucket_copies_host,
    "buffer_copies_s": _Context._buffer_copies,
    "buffer_copies_host_s": _Context._buffer_copies_host,
    "cast_weights_s": _Context._cast,
    "optimizer_s": _Context._optimizer,
    "grad_norm_s": _Context._grad_norm,
    "ema_s": _Context._ema,
    "activations_copy_s": _Context._activations_copy,
    "offload_down_s": _Context._offload_down,
    "offload_up_s": _Context._offload_up,
    "host_optimizer_s": _Context._host_optimizer,
}
