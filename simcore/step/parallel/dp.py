"""DataParallel: one process, whose master device replicates the model, sums gradients and updates.

Each micro-step sends the parameters to the other devices and their gradients back, all over the
master's port, so the cost grows with the number of devices. One Python interpreter issues every
device's kernels.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simcore.base.arrays import Array
from simcore.step.parallel import (
    PARALLELISMS,
    DistributedDataParallel,
    Holdings,
    Trained,
    backward,
    forward,
    prologue,
    update,
)
from simcore.step.program import ProgramBuilder
from simcore.strategy.strategy import Strategy


class DataParallel(DistributedDataParallel):
    """torch.nn.DataParallel: one process; the master replicates, gathers and updates."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Replication, forward, backward, reduction to the master, update there."""
        ready = prologue(builder, strategy)
        weights = float(builder.workload.trainable_numel * strategy.precision.param_bytes)
        grads = float(builder.workload.trainable_numel * strategy.precision.grad_bytes)
        replicated = builder.comm(
            "replicate parameters", "one_to_all", [weights], ready, every_micro_step=True
        )
        forward(builder, [*ready, replicated])
        last = backward(builder)
        reduced = builder.comm(
            "reduce to master", "all_to_one", [grads], last, every_micro_step=True
        )
        update(builder, strategy, [*last, reduced])

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Bytes on the master: the whole state, and the incoming gradients of one replica."""
        apart = replace(strategy, buckets=replace(strategy.buckets, views=False))
        held = super().holdings(workload, apart, n_ranks)
        several: Array = np.where(n_ranks > 1, 1.0, 0.0)
        incoming = workload.trainable_numel * strategy.precision.grad_bytes * several
        return replace(held, buckets=0 * n_ranks, replicas=incoming)


PARALLELISMS.register("dp")(DataParallel())
