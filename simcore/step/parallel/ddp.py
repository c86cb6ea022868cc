"""DistributedDataParallel: bucketed all-reduce under backward (Li et al. 2020)."""

from __future__ import annotations

import numpy as np

from simcore.base.units import FP32_BYTES
from simcore.step.parallel.base import (
    PARALLELISMS,
    Array,
    Holdings,
    Trained,
    backward_with_buckets,
    prologue,
    split_experts,
    update,
    weight_bytes,
)
from simcore.step.program import ProgramBuilder, gradient_buckets
from simcore.strategy.strategy import Strategy

#: Running statistics are fp32 whatever the precision; so is their count, nearly (int64).


class DistributedDataParallel:
    """Every rank keeps everything; gradients are averaged bucket by bucket as they appear."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Forward, backward with one all-reduce a bucket, update on every rank."""
        ready = norms(builder, buffers(builder, prologue(builder, strategy)))
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
            builder.comm(f"all-reduce bucket {i}", "all_reduce", [size], point, scope=scope)
            for i, (bucket, point) in enumerate(zip(buckets, points, strict=True))
            for scope, size in split_experts(strategy, "all", bucket.n_bytes, bucket.expert_bytes)
        ]
        update(builder, strategy, copies(builder, strategy, last, sent))

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Whole state on each rank, and buckets as large as the gradients.

        torch's default ``gradient_as_bucket_view=False`` keeps both; with it gradients are views
        of the buckets, which stay from step to step. A wrapped model has its buckets on one rank
        too (``Strategy.wraps_alone``). Main-grad buffers are both in one.
        """
        p, numel = strategy.precision, workload.trainable_numel
        one, beside = np.ones_like(n_ranks), strategy.program.gradients.ddp_buckets_of_weight_width
        wrapped = (n_ranks > 1) | strategy.wraps_alone
        own = p.main_grads | np.logical_not(wrapped & strategy.bucket_view)
        return Holdings(
            parameters=one * weight_bytes(workload, strategy),
            gradients=one * numel * p.grad_bytes * own,
            optimizer_state=one * numel * (p.master_bytes + strategy.optimizer.state_bytes),
            ema=one * numel * 4 * strategy.ema,
            buckets=one * numel * p.grad_bytes * (not p.main_grads) * wrapped
            + numel * p.param_bytes * ((n_ranks > 1) & p.main_grads & beside),
            gathered=0 * one,
            replicas=0 * one,
            host=0 * one,
            nvme=0 * one,
        )

    def shard_degree(self, strategy: Strategy, n_ranks: Array) -> Array:
        """Every rank updates every parameter."""
        return np.ones_like(n_ranks)


def buffers(builder: ProgramBuilder, ready: list[int]) -> list[int]:
    """The model's buffers (running statistics) as rank 0 has them, before the synchronised forward.

    torch's ``broadcast_buffers``, on by default: one flat message, then a copy a tensor
    (``distributed.py``, ``_sync_buffers``; ``comm.cpp``, ``BroadcastWork::finish``). Other
    micro-steps run under ``no_sync`` and do without.
    """
    model = builder.workload
    if not model.n_buffers:
        return ready
    issued = builder.misc("issue copies of buffers", "host", "host", "buffer_copies_host_s")
    n_bytes = FP32_BYTES * model.buffers_numel
    sent = builder.comm("broadcast buffers", "broadcast", [n_bytes], ready)
    return builder.misc(
        "buffers of rank 0", "compute", "forward", "buffer_copies_s", [sent], bounds=issued
    )


def norms(builder: ProgramBuilder, ready: list[int]) -> list[int]:
    """Batch norms over all ranks: the device waits for each exchange, so they stand together."""
    if not builder.workload.sync_norms:
        return ready
    return builder.misc("statistics of batch norms", "compute", "forward", "sync_norms_s", ready)


def copies(
    builder: ProgramBuilder, strategy: Strategy, last: list[int], sent: list[int]
) -> list[int]:
    """Gradients into buckets and, unless they are views of them, out again: what ends them.

    torch's reducer.cpp: ``mark_variable_ready_dense`` writes each gradient, divided by the ranks,
    into its bucket (in place for a view) and ``finalize_bucket_dense`` copies the sums back once
    every bucket has arrived, a kernel a tensor each. Main-grad buffers are what is reduced.
    """
    if strategy.precision.main_grads:
        return [*last, *sent[-1:]]
    issued = builder.misc("issue copies of gradients", "host", "host", "bucket_copies_host_s")
    filled = builder.misc("gradients into buckets", "compute", "backward", "bucket_fill_s", last)
    if strategy.bucket_view:
        return [*filled, *sent[-1:]]
    ready = [*filled, *sent[-1:]]
    return builder.misc(
        "gradients out of buckets", "compute", "optimizer", "bucket_drain_s", ready, bounds=issued
    )


PARALLELISMS.register("ddp")(DistributedDataParallel())
