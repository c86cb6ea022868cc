"""Hand-written gradient averaging: one all-reduce per parameter tensor after backward."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

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


class ManualAllReduce(DistributedDataParallel):
    """One all-reduce per parameter tensor after backward: no overlap, no buckets."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Forward, backward, an all-reduce of every tensor in sequence, update."""
        forward(builder, prologue(builder, strategy))
        last = backward(builder)
        sizes = Counter(
            p.numel * strategy.precision.grad_bytes
            for block in builder.workload.instances()
            for p in block.params
        )
        sent = builder.comm(
            "all-reduce each tensor",
            "all_reduce",
            [float(s) for s in sizes],
            last,
            counts=[float(c) for c in sizes.values()],
        )
        update(builder, strategy, [*last, sent])

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Bytes as under DDP, without buckets."""
        apart = replace(strategy, buckets=replace(strategy.buckets, views=False))
        held = super().holdings(workload, apart, n_ranks)
        return replace(held, buckets=0 * n_ranks)


PARALLELISMS.register("manual")(ManualAllReduce())
