"""DistributedDataParallel: bucketed all-reduce under backward (Li et al. 2020)."""

from __future__ import annotations

import numpy as np

from simcore.step.parallel.base import (
    PARALLELISMS,
    Array,
    Holdings,
    backward_with_buckets,
    prologue,
    update,
    weight_bytes,
)
from simcore.step.program import ProgramBuilder, gradient_buckets
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload


class DistributedDataParallel:
    """Every rank keeps everything; gradients are averaged bucket by bucket as they appear."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Forward, backward with one all-reduce a bucket, update on every rank."""
        ready = prologue(builder, strategy)
        order = builder.workload.order
        builder.compute("forward", "forward", builder.forward_row(order), ready)
        buckets = gradient_buckets(
            builder.workload,
            strategy.precision.grad_bytes,
            strategy.bucket_cap_bytes,
            strategy.first_bucket_bytes,
        )
        last, points = backward_with_buckets(builder, buckets, overlap=strategy.overlap.grads)
        sent = [
            builder.comm(f"all-reduce bucket {i}", "all_reduce", [bucket.n_bytes], point)
            for i, (bucket, point) in enumerate(zip(buckets, points, strict=True))
        ]
        update(builder, strategy, [*last, *sent[-1:]])

    def holdings(
        self, workload: Workload, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Whole state on each rank, and buckets as large as the gradients.

        torch's default ``gradient_as_bucket_view=False`` keeps both; with it gradients are views
        of the buckets, which stay from step to step. A wrapped model has its buckets on one rank
        too. Main-grad buffers are both in one.
        """
        p, numel = strategy.precision, workload.trainable_numel
        one, beside = np.ones_like(n_ranks), strategy.software.weight_buckets
        return Holdings(
            parameters=one * weight_bytes(workload, strategy),
            gradients=one * numel * p.grad_bytes * (p.main_grads or not strategy.bucket_view),
            optimizer_state=one * numel * (p.master_bytes + strategy.optimizer.state_bytes),
            ema=one * numel * 4 * strategy.ema,
            buckets=one * numel * p.grad_bytes * (not p.main_grads)
            + numel * p.param_bytes * ((n_ranks > 1) & p.main_grads & beside),
            gathered=0 * one,
            replicas=0 * one,
            host=0 * one,
            nvme=0 * one,
        )

    def shard_degree(self, strategy: Strategy, n_ranks: Array) -> Array:
        """Every rank updates every parameter."""
        return np.ones_like(n_ranks)


PARALLELISMS.register("ddp")(DistributedDataParallel())
