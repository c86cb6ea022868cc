"""DistributedDataParallel: bucketed all-reduce under backward (Li et al. 2020)."""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import Array
from simcore.base.units import FP32_BYTES
from simcore.step.parallel import (
    PARALLELISMS,
    Holdings,
    Trained,
    backward_with_buckets,
    forward,
    prologue,
    split_experts,
    update,
    weight_bytes,
)
from simcore.step.program import ProgramBuilder, gradient_buckets
from simcore.strategy.strategy import Strategy


class DistributedDataParallel:
    """Every rank holds the whole state; gradients are averaged bucket by bucket in backward."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Forward, backward with one all-reduce per bucket, update on every rank."""
        ready = norms(builder, buffers(builder, prologue(builder, strategy)))
        forward(builder, ready)
        buckets = gradient_buckets(
            builder.workload,
            strategy.precision.grad_bytes,
            strategy.buckets.cap_bytes,
            strategy.buckets.first_bytes,
        )
        last, bucket_ready = backward_with_buckets(builder, buckets, overlap=strategy.overlap.grads)
        sent = [
            builder.comm(f"all-reduce bucket {i}", "all_reduce", [size], after, scope=scope)
            for i, (bucket, after) in enumerate(zip(buckets, bucket_ready, strict=True))
            for scope, size in split_experts(strategy, "all", bucket.n_bytes, bucket.expert_bytes)
        ]
        update(builder, strategy, copies(builder, strategy, last, sent))

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Bytes of the whole state on each rank, and of buckets as large as the gradients.

        With torch's default, ``gradient_as_bucket_view=False``, both gradients and buckets exist.
        With True, gradients are views of the buckets, which persist from step to step. A model that
        is wrapped on a single rank has its buckets there too (``Strategy.wraps_alone``). Main-grad
        buffers are gradients and buckets in one.
        """
        p, numel = strategy.precision, workload.trainable_numel
        extra_buckets = strategy.program.gradients.ddp_buckets_of_weight_width
        wrapped = (n_ranks > 1) | strategy.buckets.wraps_alone
        separate_grads = p.main_grads | np.logical_not(wrapped & strategy.buckets.views)
        return Holdings.of(
            n_ranks,
            parameters=weight_bytes(workload, strategy),
            gradients=numel * p.grad_bytes * separate_grads,
            optimizer_state=numel * (p.master_bytes + strategy.optimizer.state_bytes),
            ema=numel * strategy.ema_bytes,
            buckets=numel * p.grad_bytes * (not p.main_grads) * wrapped
            + numel * p.param_bytes * ((n_ranks > 1) & p.main_grads & extra_buckets),
        )

    def shard_degree(self, strategy: Strategy, n_ranks: Array) -> Array:
        """One for every configuration [C]: every rank updates every parameter."""
        return np.ones_like(n_ranks)


def buffers(builder: ProgramBuilder, ready: list[int]) -> list[int]:
    """Add rank 0's broadcast of the model's buffers (running statistics); returns the last tasks.

    torch's ``broadcast_buffers``, on by default, sends one flat message before the forward pass,
    which one kernel per tensor copies back (``distributed.py``, ``_sync_buffers``; ``comm.cpp``,
    ``BroadcastWork::finish``). Micro-steps under ``no_sync``, all but the last, have no broadcast.
    """
    model = builder.workload
    if not model.n_buffers:
        return ready
    issued = builder.misc("issue copies of buffers", "host", "host", "buffer_copies_host_s")
    # Running statistics are fp32 whatever the precision; their int64 counts are too few to matter.
    n_bytes = FP32_BYTES * model.buffers_numel
    sent = builder.comm("broadcast buffers", "broadcast", [n_bytes], ready)
    return builder.misc(
        "buffers of rank 0", "compute", "forward", "buffer_copies_s", [sent], bounds=issued
    )


def norms(builder: ProgramBuilder, ready: list[int]) -> list[int]:
    """Add the exchanges of synchronised batch norms, if any; returns the last tasks.

    They are one task, since the device waits for each exchange anyway.
    """
    if not builder.workload.sync_norms:
        return ready
    return builder.misc("statistics of batch norms", "compute", "forward", "sync_norms_s", ready)


def copies(
    builder: ProgramBuilder, strategy: Strategy, last: list[int], sent: list[int]
) -> list[int]:
    """Add the copies of gradients into buckets and, unless they are views, back out of them.

    ``last``: the tasks that end backward; ``sent``: the all-reduces. Returns the tasks that the
    update starts after.

    In torch's reducer.cpp, ``mark_variable_ready_dense`` writes each gradient, divided by the
    number of ranks, into its bucket (in place for a view), and ``finalize_bucket_dense`` copies the
    sums back once every bucket has been reduced. Both take one kernel per tensor. Main-grad buffers
    are reduced themselves, without copies.
    """
    if strategy.precision.main_grads:
        return [*last, *sent[-1:]]
    issued = builder.misc("issue copies of gradients", "host", "host", "bucket_copies_host_s")
    filled = builder.misc("gradients into buckets", "compute", "backward", "bucket_fill_s", last)
    if strategy.buckets.views:
        return [*filled, *sent[-1:]]
    ready = [*filled, *sent[-1:]]
    return builder.misc(
        "gradients out of buckets", "compute", "optimizer", "bucket_drain_s", ready, bounds=issued
    )


PARALLELISMS.register("ddp")(DistributedDataParallel())
