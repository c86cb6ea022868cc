"""Durations of tasks that are neither kernels of blocks nor collectives.

They are those of the parameter update (gradient norm, optimizer, the library's copies, EMA), of
sums, casts and copies of gradients, of offload, and of a trainer's own host work.

# C configs, N parts of a model (stages of a pipeline) priced at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.hardware.class_figures import host_work
from simcore.hardware.estimates import CUDNN_VENDOR
from simcore.step.host_calls import driver_issues
from simcore.step.parallel import PARALLELISMS
from simcore.step.transients import saved_bytes, swapped_base
from simcore.strategy.optimizers import TENSORS_A_LAUNCH
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.timing.collectives import (
    NORM_BEHIND_ALL_REDUCE,
    broadcasts_s,
    communicator,
    exchanges_s,
    norm_elems_behind_buckets,
    sync_norms_s,
)
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates
from simcore.workload.graph import Workload
from simcore.workload.saved import NOTHING

#: State bytes a parameter that NVMe offload reads and writes back: m, v, master in fp32.
NVME_STATE_BYTES = 12.0
#: Share of a socket's DRAM bandwidth that vectorised work of its cores sustains: STREAM triad on
#: EPYC 7002 reaches about 0.8 of the channels' peak (AMD, tuning guide 56745).
HOST_DRAM_FRAC = 0.8
#: fp32 elements moved per parameter by an EMA in a Python loop: mul_ (1 read, 1 write), add_ (2,
#: 1).
EMA_TRAFFIC_ELEMS = 5.0
#: Average number of parameter tensors in one multi-tensor kernel (torch foreach packs up to 110
#: pointers a launch for one list, fewer for Adam's five).
FOREACH_TENSORS_PER_LAUNCH = float(TENSORS_A_LAUNCH)
#: Kernel issues of an optimizer's Python for each tensor of a step (benchmarks.host_costs: AdamW
#: fused 2.67 us, foreach 2.38 us, of which 4.47 us are one issue).
TENSOR_ISSUES = 0.6
#: Kernel issues of each tensor in each function on lists of tensors: its checks, its address in the
#: kernel's arguments.
LISTED_ISSUES = 0.2


def update_name(strategy: Strategy) -> str:
    """Name of an optimizer and its implementation, by which timed updates are found again."""
    return f"{strategy.optimizer.name} {strategy.step_impl}"


@dataclass(frozen=True, kw_only=True)
class Quantities:
    """Seconds on a rank class, [C] or [N, C] of each part; sizes of several parts are [N, 1].

    ``issue_s``, ``launch_s``: host seconds of one kernel issue and of one launch. ``loader``: load
    time that blocks a step. ``micro_s`` [classes, N, C], ``host_micro_s`` [N, C]: device and host
    seconds of a micro-step.
    """

    workloads: tuple[Workload, ...]
    strategy: Strategy
    points: Points
    classes: tuple[ClassRates, ...]
    issue_s: Array
    launch_s: Array
    loader: Array
    micro_s: Array
    host_micro_s: Array

    def quantity(self, name: str, index: int) -> Array:
        """Seconds of the named quantity on rank class ``index``: [C], or [N, C] of each part."""
        if name.startswith("fetch_block_"):
            return self._fetch(int(name.split("_")[2]), index)
        return _QUANTITIES[name](self, index)

    # -- sizes and rates -------------------------------------------------------------------

    def of_parts(self, size: Callable[[Workload], float]) -> Array | float:
        """A size of each part: a number for one part, else [N, 1]."""
        found = [float(size(w)) for w in self.workloads]
        return found[0] if len(found) == 1 else np.array(found)[:, None]

    @cached_property
    def numel(self) -> Array | float:
        """Number of trained parameters."""
        return self.of_parts(lambda w: w.trainable_numel)

    @cached_property
    def n_tensors(self) -> Array | float:
        """Number of trained tensors."""
        return self.of_parts(lambda w: w.n_tensors)

    @cached_property
    def shards(self) -> Array:
        """Number of ranks among which the optimizer's work is divided."""
        parallel = PARALLELISMS[self.strategy.parallelism]
        return parallel.shard_degree(self.strategy, self.points.n_ranks)

    @cached_property
    def held(self) -> Array:
        """Number of parameters that a rank updates and holds the state of: its shard.

        Experts are divided among the ranks that hold the same ones (Megatron-LM's expert
        data-parallel group), which are fewer than the data ranks. A rank alone with its experts
        updates all of them.
        """
        routed = self.of_parts(lambda w: w.expert_numel)
        alike = self.strategy.expert_ranks if self.strategy.zero_stage else 1.0
        own_experts = routed / np.maximum(self.shards / alike, 1.0)
        held: Array = (self.numel - routed) / self.shards + own_experts
        if self.strategy.program.optimizer_state.owned_tensor_by_tensor:
            # at least the largest tensor, which one owner has whole
            largest = self.of_parts(lambda w: w.largest_param_numel)
            held = np.maximum(held, np.minimum(self.numel, largest))
        return held

    @property
    def reduces(self) -> NDArray[np.bool_]:
        """Whether there is anything to reduce [C]: a single device is not wrapped in DDP."""
        return (self.points.n_ranks > 1) & (self.points.use_comm > 0)

    def _elementwise(self, n_bytes: Array | float, launches: Array | float, index: int) -> Array:
        """Seconds of elementwise kernels that move ``n_bytes``."""
        c = self.classes[index]
        seconds: Array = n_bytes / (c.elementwise_bytes_per_s * self.points.memory)
        return seconds + launches * c.kernels.start_s

    def _updating(self, n_bytes: Array | float, launches: Array | float, index: int) -> Array:
        """Seconds of kernels of the update on the device."""
        c = self.classes[index]
        seconds: Array = n_bytes / (c.update_bytes_per_s * self.points.memory)
        return seconds + launches * c.kernels.start_s

    def _update_host(self, index: int) -> Array:
        """Host seconds to issue the update: gradient norm, optimizer and EMA."""
        s = self.strategy
        passes: list[tuple[int, int, str]] = []
        # Else its time is in that of the loop, or the host computes it.
        if not s.optimizer.syncs_each_tensor and s.offload.optimizer == "none":
            passes.append((s.optimizer.kernels, s.optimizer.kernels_per_tensor, s.step_impl))
        if s.grad_clip:
            passes.append((2, 2, self._norm_impl))
        if s.ema:
            passes.append((2, 2, s.ema_impl))
        return sum((self._issue(*p) for p in passes), 0.0 * self.issue_s)

    def _issue(self, kernels: int, per_tensor: int, impl: str) -> Array:
        """Host seconds to issue a pass over all tensors; arguments as of ``launches``."""
        launches = self.launches(kernels, per_tensor, impl)
        if not self.strategy.eager:
            return launches * self.issue_s
        own = self.n_tensors * TENSOR_ISSUES * self.issue_s
        if impl == "for-loop" or kernels == per_tensor * TENSORS_A_LAUNCH:
            return launches * self._issue_each + own
        lists = 1 if impl == "fused" else kernels
        listed = self.n_tensors * lists * LISTED_ISSUES * self.issue_s
        return own + listed + launches * self.launch_s

    @cached_property
    def _issue_each(self) -> Array:
        """Host seconds to issue one elementwise kernel."""
        if not self.strategy.eager:
            return self.issue_s
        work = host_work("elementwise", backward=False)
        return work.issues * self.issue_s + work.launches * self.launch_s

    # -- parameter update ------------------------------------------------------------------

    def launches(self, kernels: int, per_tensor: int, impl: str) -> Array | float:
        """Number of launches of an update by ``impl`` (for-loop, foreach, fused)."""
        if impl == "for-loop":
            return per_tensor * self.n_tensors
        packed = self.of_parts(lambda w: max(1.0, w.n_tensors / FOREACH_TENSORS_PER_LAUNCH))
        return packed if impl == "fused" else kernels * packed

    def _optimizer(self, index: int) -> Array:
        s = self.strategy
        state = s.optimizer.traffic_elems * FP32_BYTES
        if s.step_impl == "fused":
            # one pass: read g, w and state, write w and state
            weight = max(s.precision.master_bytes, s.precision.param_bytes)
            grad = FP32_BYTES if s.widens_gradients else s.kept_grad_bytes
            state = (2 * weight + 2 * s.optimizer.state_bytes) + grad
        if s.widens_gradients:  # read in 16 bit, written in fp32
            state += s.precision.grad_bytes + FP32_BYTES
        state += 2 * s.precision.param_bytes * bool(s.precision.master_bytes)
        if s.optimizer.syncs_each_tensor:
            return self._tensor_by_tensor(state, index)
        launches = self.launches(s.optimizer.kernels, s.optimizer.kernels_per_tensor, s.step_impl)
        rate = self.classes[index].half_product_flop_per_s * self.points.compute_of(index)
        moving = self._updating(state * self.held, launches, index)
        seconds: Array = moving + s.optimizer.flop * self.held / rate
        return seconds * self._over_figures(index)

    def _over_figures(self, index: int) -> Array | float:
        """Measured time of such an update over that by its bytes and launches; 1: not timed.

        Between the models whose updates were timed the logarithm is interpolated by the logarithm
        of the number of parameters, beyond them it is constant.
        """
        own = update_name(self.strategy)
        known = sorted((u.numel, u.over_figures) for u in self.classes[index].updates
                       if u.optimizer == own)  # fmt: skip
        if not known:
            return 1.0
        sizes, ratios = np.log(np.array(known)).T
        return np.exp(np.interp(np.log(self.numel), sizes, ratios))

    def _tensor_by_tensor(self, each_bytes: float, index: int) -> Array:
        """Seconds of a loop over tensors that waits for an answer of the device at each of them.

        ``each_bytes``: bytes an element. What the host was ahead by is lost at the first answer, so
        each turn takes as long as the slower of both. From the answer to the next kernel the device
        has nothing to do.
        """
        c, kernels, found = self.classes[index], self.strategy.optimizer.kernels_per_tensor, []
        rate = c.update_bytes_per_s * self.points.memory * self.shards
        for sizes in (w.tensor_sizes for w in self.workloads):
            device = (
                np.array(list(sizes))[:, None] * each_bytes / rate + kernels * c.kernels.start_s
            )
            turns = np.maximum(device, kernels * self.issue_s) + self.issue_s
            found.append(np.array(list(sizes.values())) @ turns)
        return found[0] if len(found) == 1 else np.stack(found)

    def _grad_norm(self, index: int) -> Array:
        traffic = self.held * self.strategy.kept_grad_bytes
        return self._updating(traffic, self.launches(2, 2, self._norm_impl), index)

    @property
    def _norm_impl(self) -> str:
        """torch computes the norm tensor by tensor only where its optimizer loops over tensors."""
        return "for-loop" if self.strategy.step_impl == "for-loop" else "foreach"

    def _update_passes(self, index: int) -> Array:
        """Seconds of the library's copies of all that a rank holds, several for each tensor."""
        copies = self.strategy.program.optimizer_state
        traffic = self.numel * copies.update_copies_bytes
        if copies.update_kernels_a_tensor:
            return self._updating(traffic, copies.update_kernels_a_tensor * self.n_tensors, index)
        return self._elementwise(traffic, self.n_tensors, index) * (self.points.n_ranks > 1)

    def _ema(self, index: int) -> Array:
        traffic = self.numel * EMA_TRAFFIC_ELEMS * self.strategy.ema_bytes
        return self._updating(traffic, self.launches(2, 2, self.strategy.ema_impl), index)

    @cached_property
    def broadcasts_s(self) -> Array | float:
        """Seconds of the broadcasts of parameters from the ranks that own them."""
        by_tensor = self.strategy.program.optimizer_state.owned_tensor_by_tensor
        if not by_tensor or self.strategy.zero_stage != 1:
            return 0.0
        group = communicator(self.points, "shard", self.strategy)
        width = self.strategy.precision.param_bytes
        each = np.array([broadcasts_s(w, width, group) for w in self.workloads])
        return each * self.points.use_comm

    # -- micro-steps -----------------------------------------------------------------------

    def _accumulation(self, index: int) -> Array:
        """Seconds of all micro-steps but the last.

        Autocast casts the weights again in each, and gradients are summed up. Activations that are
        offloaded go to the host and back.
        """
        each = self.micro_s[index] + self._cast(index) + self._grad_sum(index)
        there_and_back: Array = np.maximum(each, 2.0 * self._activations_copy(index))
        return (self.points.grad_accum - 1.0) * there_and_back

    def _accumulation_host(self, index: int) -> Array:
        each = self.host_micro_s + self._sum_launches * self._issue_each
        return (self.points.grad_accum - 1.0) * each

    def _grad_sum(self, index: int) -> Array:
        """Seconds to add a micro-step's gradients to those of earlier ones.

        Autograd reads both and writes the sum with one kernel a tensor; so do programs that add
        16-bit gradients to fp32 sums. With fused sums the weight gradient's own product reads and
        writes the sum in place of a result. ZeRO-3 sums shards, unless it reduces only after the
        last micro-step.
        """
        p, program = self.strategy.precision, self.strategy.program
        made = -p.param_bytes if self._sums_fused else min(p.grad_bytes, p.param_bytes)
        early = self.strategy.zero_stage == 3 and not program.fsdp.reduces_last_micro_step
        traffic = (self.held if early else self.numel) * (2.0 * p.grad_bytes + made)
        return self._elementwise(traffic, self._sum_launches, index)

    @property
    def sums_host_s(self) -> Array:
        """Host seconds to issue the sums of a micro-step's gradients [C]."""
        return self._sum_launches * self._issue_each * (self.points.grad_accum > 1)

    @property
    def _sum_launches(self) -> Array | float:
        return self.n_tensors * (not self._sums_fused)

    @property
    def _sums_fused(self) -> bool:
        by_own_kernel = self.strategy.program.gradients.added_by_own_kernel
        return self.strategy.precision.fused_grad_sum and not by_own_kernel

    def _cast(self, index: int) -> Array:
        """Seconds of autocast's copy of all matrices to 16 bit."""
        p, c = self.strategy.precision, self.classes[index]
        launches = self.of_parts(lambda w: w.gemm_weights[0]) * bool(p.cast_bytes)
        numel = self.of_parts(lambda w: w.gemm_weights[1]) * bool(p.cast_bytes)
        by_element = numel * c.kernels.limits.indexed_s + launches * c.kernels.start_s
        moved = self._updating(numel * (p.param_bytes + p.cast_bytes), launches, index)
        return np.maximum(moved, by_element)

    def _driver(self, index: int) -> Array:
        """Seconds of a trainer's Python between micro-steps, during which the device waits."""
        driver = self.strategy.program.host.trainer_loop
        if driver is None:
            return 0.0 * self.issue_s
        issues = self.of_parts(lambda w: driver_issues(w, driver))
        return self.points.grad_accum * issues * self.issue_s

    # -- copies to and from messages -------------------------------------------------------

    def _bucket_copy(self, index: int) -> Array:
        """Copies of all gradients to or from DDP's buckets: one read and one write each."""
        traffic = 2.0 * self.numel * self.strategy.precision.grad_bytes
        return self._elementwise(traffic, self.n_tensors, index) * self.reduces

    def _bucket_copies_host(self, index: int) -> Array:
        passes = 1.0 if self.strategy.buckets.views else 2.0
        return passes * self.n_tensors * self._issue_each * self.reduces

    def _buffer_copies(self, index: int) -> Array:
        """Copies of buffers to and from one message: a read, a write and a kernel each way."""
        traffic = 4.0 * FP32_BYTES * self.of_parts(lambda w: w.buffers_numel)
        return self._elementwise(traffic, self._n_buffers, index) * self.reduces

    def _buffer_copies_host(self, index: int) -> Array:
        return self._n_buffers * self._issue_each * self.reduces

    @property
    def _n_buffers(self) -> Array | float:
        return self.of_parts(lambda w: w.n_buffers)

    def _sync_norms(self, index: int) -> Array:
        return np.array([sync_norms_s(w, self.points) for w in self.workloads]) * self.reduces

    def _norms_behind_buckets(self, index: int) -> Array:
        """Seconds that cuDNN's batch norms wait in backward for all-reduces that are under way."""
        elems = self.of_parts(lambda w: norm_elems_behind_buckets(w, self.strategy))
        n_bytes = elems * self.points.micro_batch * self.strategy.precision.low_bytes
        waits = NORM_BEHIND_ALL_REDUCE * self._elementwise(n_bytes, 0.0, index)
        return waits * self.reduces * (self.classes[index].gpu.vendor == CUDNN_VENDOR)

    def _exchanges(self, index: int) -> Array:
        per_node = self.classes[index].gpus_per_node
        return np.array([exchanges_s(w, self.points, per_node) for w in self.workloads])

    # -- host memory and offload -----------------------------------------------------------

    def _input_copy(self, index: int) -> Array:
        samples = self.points.micro_batch * self.points.grad_accum
        n_bytes = self.of_parts(lambda w: w.input_bytes) * samples
        return n_bytes / self.classes[index].h2d_bytes_per_s

    def _activations_copy(self, index: int) -> Array:
        """Seconds to copy the activations of offloaded layers one way between device and host."""
        n_bytes = self.of_parts(lambda w: _away_bytes(w, self.strategy.precision))
        return n_bytes * self.points.micro_batch / self.classes[index].h2d_bytes_per_s

    def _blocks_copy(self, index: int) -> Array:
        """Seconds of a step's exchanges of a frozen base's blocks with the host.

        Forward and backward each bring every block that is away and, first, take another one there
        (kohya's sd-scripts, library/custom_offloading_utils.py, swap_weight_devices).
        """
        p, blocks = self.strategy.precision, self.strategy.offload.blocks
        n_bytes = self.of_parts(lambda w: swapped_base(w, p, blocks))
        seconds = 2.0 * 2.0 * n_bytes / self.classes[index].h2d_bytes_per_s
        return seconds * self.points.grad_accum

    def _crossing(self, numel: Array, width_bytes: float, target: str, index: int) -> Array:
        """Seconds to copy a rank's tensors of ``numel`` elements between device and host."""
        return numel * self._host_width(width_bytes) / self._link_bytes_per_s(target, index)

    def _link_bytes_per_s(self, target: str, index: int) -> Array:
        """Rate of copies between a device and host memory, near or on another socket."""
        c = self.classes[index]
        far = c.far_bytes_per_s if target == "cpu-far" else np.inf
        return np.minimum(c.h2d_bytes_per_s, far)

    def _host_width(self, width_bytes: float) -> float:
        """Bytes an element of a tensor that is copied between host and device."""
        in_fp32 = self.strategy.program.offload.crosses_in_fp32
        return max(width_bytes, FP32_BYTES) if in_fp32 else width_bytes

    def _offload_down(self, index: int) -> Array:
        s = self.strategy
        return self._crossing(self.held, s.precision.grad_bytes, s.offload.optimizer, index)

    def _offload_up(self, index: int) -> Array:
        s = self.strategy
        fetched = s.offload.params != "none"  # layer by layer
        numel = self.held * (not fetched)
        return self._crossing(numel, s.precision.param_bytes, s.offload.optimizer, index)

    def _host_optimizer(self, index: int) -> Array:
        c, offload = self.classes[index], self.strategy.offload
        far = c.far_bytes_per_s if offload.optimizer == "cpu-far" else np.inf
        rate = min(c.dram_bytes_per_s, far) / c.ranks_per_socket * HOST_DRAM_FRAC
        seconds = self.held * self.strategy.program.offload.host_update_bytes / rate
        if offload.optimizer == "nvme":
            state = c.gpus_per_node * self.held * NVME_STATE_BYTES
            seconds = seconds + state / c.nvme_read_bytes_per_s + state / c.nvme_write_bytes_per_s
        return seconds

    def _fetch(self, block: int, index: int) -> Array:
        """Seconds to bring a rank's shard of a block's parameters to the device.

        They are the trained ones and the frozen base of adapters.
        """
        c, p, target = self.classes[index], self.strategy.precision, self.strategy.offload.params
        width = self._host_width(p.param_bytes)
        n_bytes = self.of_parts(
            lambda w: (
                w.blocks[block].numel * width + w.blocks[block].base_bytes(p.base_bytes)
                if block < len(w.blocks)
                else 0.0
            )
        )
        if target == "nvme":
            return n_bytes / self.shards * c.gpus_per_node / c.nvme_read_bytes_per_s
        return n_bytes / self.shards / self._link_bytes_per_s(target, index)


def _away_bytes(workload: Workload, p: Precision) -> float:
    """Bytes a sample of activations that are offloaded to the host."""
    each = [
        saved_bytes(b.offloaded, p) if b.offloaded is not NOTHING else 0.0 for b in workload.blocks
    ]
    return sum(each[b] for b in workload.order)


_QUANTITIES: dict[str, Callable[[Quantities, int], Array]] = {
    "loader_blocking_s": lambda q, _: q.loader,
    "input_copy_s": Quantities._input_copy,
    "accumulation_s": Quantities._accumulation,
    "driver_s": Quantities._driver,
    "accumulation_host_s": Quantities._accumulation_host,
    "broadcasts_s": lambda q, _: np.asarray(q.broadcasts_s),
    "sync_norms_s": Quantities._sync_norms,
    "norms_behind_buckets_s": Quantities._norms_behind_buckets,
    "exchanges_s": Quantities._exchanges,
    "bucket_fill_s": Quantities._bucket_copy,
    "bucket_drain_s": Quantities._bucket_copy,
    "bucket_copies_host_s": Quantities._bucket_copies_host,
    "buffer_copies_s": Quantities._buffer_copies,
    "buffer_copies_host_s": Quantities._buffer_copies_host,
    "cast_weights_s": Quantities._cast,
    "optimizer_s": Quantities._optimizer,
    "grad_norm_s": Quantities._grad_norm,
    "update_passes_s": Quantities._update_passes,
    "ema_s": Quantities._ema,
    "update_host_s": Quantities._update_host,
    "activations_copy_s": Quantities._activations_copy,
    "blocks_copy_s": Quantities._blocks_copy,
    "offload_down_s": Quantities._offload_down,
    "offload_up_s": Quantities._offload_up,
    "host_optimizer_s": Quantities._host_optimizer,
}
