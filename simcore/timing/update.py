"""Time of the parameter update: gradient norm, optimizer, the library's copies, EMA.

# C configs, N parts of a model (stages of a pipeline) priced at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import FP32_BYTES
from simcore.physics.synchronised import synchronised_s
from simcore.step.parallel import PARALLELISMS
from simcore.strategy.optimizers import TENSORS_A_LAUNCH
from simcore.strategy.strategy import Strategy
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates
from simcore.workload.graph import Workload

Array = NDArray[np.float64]

#: fp32 elements moved per parameter by an EMA in a Python loop: mul_ (1 read, 1 write), add_ (2,
#: 1).
EMA_TRAFFIC_ELEMS = 5.0
#: Average number of parameter tensors in one multi-tensor kernel (torch foreach packs up to 110
#: pointers a launch for one list, fewer for Adam's five).
FOREACH_TENSORS_PER_LAUNCH = float(TENSORS_A_LAUNCH)


@dataclass(frozen=True, kw_only=True)
class Update:
    """Seconds on a rank class, [C] or [N, C] of each part; sizes of several parts are [N, 1]."""

    workloads: tuple[Workload, ...]
    strategy: Strategy
    points: Points
    classes: tuple[ClassRates, ...]
    issue_s: Array

    def of_parts(self, size: Callable[[Workload], float]) -> Array | float:
        found = [float(size(w)) for w in self.workloads]
        return found[0] if len(found) == 1 else np.array(found)[:, None]

    @cached_property
    def numel(self) -> Array | float:
        return self.of_parts(lambda w: w.trainable_numel)

    @cached_property
    def n_tensors(self) -> Array | float:
        return self.of_parts(lambda w: w.n_tensors)

    @cached_property
    def packed(self) -> Array | float:
        """Number of launches of a kernel that takes many tensors at a time."""
        return self.of_parts(lambda w: max(1.0, w.n_tensors / FOREACH_TENSORS_PER_LAUNCH))

    def shards(self) -> Array:
        parallel = PARALLELISMS[self.strategy.parallelism]
        return parallel.shard_degree(self.strategy, self.points.n_ranks)

    @cached_property
    def held(self) -> Array:
        """Number of parameters that a rank updates and holds the state of: its shard.

        Experts are divided among the ranks that hold the same ones (Megatron-LM's expert
        data-parallel group), which are fewer than the data ranks. A rank alone with its experts
        updates all of them.
        """
        shards, numel = self.shards(), self.numel
        routed = self.of_parts(lambda w: w.expert_numel)
        alike = self.strategy.expert_ranks if self.strategy.zero_stage else 1.0
        held: Array = (numel - routed) / shards + routed / np.maximum(shards / alike, 1.0)
        if (
            self.strategy.program.optimizer_state.owned_tensor_by_tensor
        ):  # at least the largest tensor, which one owner has whole
            largest = self.of_parts(lambda w: w.largest_param_numel)
            held = np.maximum(held, np.minimum(numel, largest))
        return held

    def moved(self, n_bytes: Array | float, index: int, launches: Array | float) -> Array:
        rate = self.classes[index].update_bytes_per_s * self.points.memory
        device = n_bytes / rate + launches * self.classes[index].kernels.start_s
        busy: Array = np.maximum(device, launches * self.issue_s)
        return busy

    def launches(self, kernels: int, per_tensor: int, impl: str) -> Array | float:
        if impl == "for-loop":
            return per_tensor * self.n_tensors
        packed = self.packed
        return packed if impl == "fused" else kernels * packed

    def optimizer(self, index: int) -> Array:
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
            return self.synchronised(state, index)
        launches = self.launches(s.optimizer.kernels, s.optimizer.kernels_per_tensor, s.step_impl)
        rate = self.classes[index].half_product_flop_per_s * self.points.compute_of(index)
        products = s.optimizer.flop * self.held
        return self.moved(state * self.held, index, launches) + products / rate

    def synchronised(self, each_bytes: float, index: int) -> Array:
        """Seconds of a loop that waits after each tensor; ``each_bytes``: bytes an element."""
        c, kernels, found = self.classes[index], self.strategy.optimizer.kernels_per_tensor, []
        rate = c.update_bytes_per_s * self.points.memory * self.shards()
        for sizes in (w.tensor_sizes for w in self.workloads):
            moved = np.array(list(sizes))[:, None] * each_bytes / rate
            device = moved + kernels * c.kernels.start_s
            turns = synchronised_s(device, kernels * self.issue_s, self.issue_s)
            found.append(np.array(list(sizes.values())) @ turns)
        return found[0] if len(found) == 1 else np.stack(found)

    def grad_norm(self, index: int) -> Array:
        traffic = self.held * self.strategy.kept_grad_bytes
        # torch computes the norm tensor by tensor only where its optimizer loops over tensors.
        loop = self.strategy.step_impl == "for-loop"
        launches = 2.0 * self.launches(1, 1, "for-loop" if loop else "foreach")
        return self.moved(traffic, index, launches)

    def update_passes(self, index: int) -> Array:
        """Seconds of the library's copies of all that a rank holds, several for each tensor."""
        traffic = self.numel * self.strategy.program.optimizer_state.update_copies_bytes
        started = self.n_tensors * self.classes[index].kernels.start_s
        rate = self.classes[index].elementwise_bytes_per_s * self.points.memory
        moved: Array = (traffic / rate + started) * (self.points.n_ranks > 1)
        return moved

    def ema(self, index: int) -> Array:
        traffic = self.numel * EMA_TRAFFIC_ELEMS * FP32_BYTES
        launches = self.launches(2, 2, self.strategy.ema_impl)
        return self.moved(traffic, index, launches)
