"""Data-parallel strategies: their communication and the state each rank holds; DDP itself.

Every other strategy is one file.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from itertools import chain, groupby
from typing import Any, Protocol

import numpy as np

from simcore.base.arrays import Array
from simcore.base.lookup import Registry
from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.step.program import (
    FORWARD_PARTS,
    HOST_STRETCHES,
    Bucket,
    ProgramBuilder,
    Scope,
    backward_stretches,
    gradient_buckets,
    summed,
)
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Workload
from simcore.workload.saved import NOTHING

#: Field of ``Holdings`` for each target of offload.
PLACES = {"cpu": "host", "cpu-far": "host", "nvme": "nvme"}


@dataclass(frozen=True)
class Holdings:
    """Bytes of model state that one rank holds; arrays over the configuration axis [C].

    ``buckets``: flat communication buffers; ``replicas``: gradients of replicas that only the
    master of DataParallel holds; ``host``: in host memory; ``nvme``: on the node's drives. All
    others are in device memory.
    """

    parameters: Array
    gradients: Array
    optimizer_state: Array
    ema: Array
    buckets: Array
    replicas: Array
    host: Array
    nvme: Array

    @classmethod
    def of(cls, n_ranks: Array, **n_bytes: Any) -> Holdings:
        """The named bytes for as many configurations as ``n_ranks`` has; others are zero."""
        zero = np.zeros_like(n_ranks)
        return cls(**{f.name: zero + n_bytes.get(f.name, 0.0) for f in fields(cls)})


class Trained(Protocol):
    """Numbers of trained parameters of a part of a model, with the names that ``Workload`` uses.

    They are arrays [C] where configurations have different parts of the model.
    """

    @property
    def trainable_numel(self) -> Array | float: ...

    @property
    def expert_numel(self) -> Array | float: ...

    @property
    def layers_numel(self) -> Array | float: ...

    @property
    def largest_block_numel(self) -> Array | float: ...

    @property
    def largest_param_numel(self) -> Array | float: ...


class ParallelStrategy(Protocol):
    """How a strategy shards the model, which tasks its step has, and what each rank holds."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Add forward, backward, communication and update of one optimizer step to ``builder``.

        ``builder.workload`` is an outline (``step.program``): it has the order, parameters and
        buffers of blocks, but no ops.
        """

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Bytes of model state on the rank that holds most.

        ``workload``: the rank's part of the model; ``n_ranks`` [C]: data-parallel ranks;
        ``expert_ranks``: ranks that hold different experts, so that only n_ranks / expert_ranks
        replicas share the state of each expert.
        """

    def shard_degree(self, strategy: Strategy, n_ranks: Array) -> Array:
        """The number of ranks over which the optimizer's work is divided [C]."""


#: Every strategy with the file of this folder that registers it.
PARALLELISMS: Registry[ParallelStrategy] = Registry(
    "strategy",
    {
        name: f"simcore.step.parallel{file}"
        for name, file in {
            "ddp": "",
            "dp": ".dp",
            "manual": ".manual",
            "zero1": ".zero",
            "zero2": ".zero",
            "zero3": ".zero",
        }.items()
    },
)


def weight_bytes(workload: Trained, strategy: Strategy) -> Array | float:
    """Bytes of all trained parameters as a rank stores them for its computation.

    With ``fp8_params`` the layers' parameters are ``fp8_copies`` copies of one byte each.
    """
    p = strategy.precision
    whole = workload.trainable_numel * float(p.param_bytes)
    if not strategy.fp8_params:
        return whole
    return whole - workload.layers_numel * (p.param_bytes - float(strategy.fp8_copies))


def gathered_width(block: Block, strategy: Strategy) -> float:
    """Bytes per parameter of a block when ranks gather the parameters that others have updated.

    Weights in 8 bits with a scale a tensor travel in 8 bits. With a scale a block they have a copy
    along rows and one along columns, of other values: they travel in 16 bits, in the gradients'
    buffer, and each rank makes its copies from them (Megatron-Core, param_and_grad_buffer.py:
    reuse_grad_buf_for_mxfp8_param_ag, _post_param_sync; arguments.py: "the param all-gather must
    reuse the grad buffer").
    """
    precision = strategy.precision
    in_fp8 = strategy.fp8_params and block.recomputable and not precision.micro_scaled
    return 1.0 if in_fp8 else float(precision.param_bytes)


def prologue(builder: ProgramBuilder, strategy: Strategy) -> list[int]:
    """Add everything before the last micro-step's forward; returns the tasks that end it.

    That is the input copy, frozen networks, autocast's weight copies, and all micro-steps but one.
    """
    return accumulation(builder, inputs(builder, strategy))


def inputs(builder: ProgramBuilder, strategy: Strategy) -> list[int]:
    """Add input copy, frozen networks and autocast's weight copies; returns the last tasks."""
    # Without loader workers the training process loads, and the host issues nothing meanwhile.
    loaded = builder.misc("load batch", "host", "loader", "loader_blocking_s")
    if strategy.program.host.trainer_loop is not None:
        # The trainer reads each loss before it continues, so the device has no work left then.
        loaded = builder.misc("between micro-steps", "host", "host", "driver_s")
    ready = builder.misc("copy input", "copy", "input copy", "input_copy_s", loaded)
    if strategy.offload.blocks:
        builder.swapping = builder.misc(
            "blocks to and from the host", "copy", "offload", "blocks_copy_s", ready
        )
    if builder.workload.frozen:
        ready = builder.compute("frozen networks", "frozen", builder.frozen_row(), ready)
    if strategy.precision.cast_bytes:
        ready = builder.misc("cast weights", "compute", "forward", "cast_weights_s", ready)
    if builder.workload.exchanges:  # as if each were waited for
        ready = builder.misc(
            "collectives of the script", "compute", "communication", "exchanges_s", ready
        )
    return ready


def accumulation(builder: ProgramBuilder, ready: list[int]) -> list[int]:
    """Add all micro-steps but one; returns the tasks that end them.

    Where activations are offloaded, their copy to the host in the last micro-step is added too.
    """
    issued = builder.misc("issue earlier micro-steps", "host", "host", "accumulation_host_s")
    done = builder.misc(
        "earlier micro-steps", "compute", "accumulation", "accumulation_s", ready, bounds=issued
    )
    if any(b.offloaded != NOTHING for b in builder.workload.blocks):
        builder.leaving = builder.misc(
            "activations to host", "copy", "offload", "activations_copy_s", done
        )
    return done


def forward(builder: ProgramBuilder, ready: Sequence[int]) -> list[int]:
    """Add one forward of the whole model after the tasks ``ready``; returns its last tasks.

    Host and device are two queues, and which of them the other waits for differs between blocks of
    a model. So forward is a task for each run of equal blocks, within which it does not, or for
    several such runs where there are more than FORWARD_PARTS.
    """
    runs = [list(run) for _, run in groupby(builder.workload.order)]
    per_task = -(-len(runs) // FORWARD_PARTS)
    for i in range(0, len(runs), per_task):
        row = builder.forward_row(chain.from_iterable(runs[i : i + per_task]))
        ready = builder.compute("forward", "forward", row, ready)
    return list(ready)


def backward(builder: ProgramBuilder) -> list[int]:
    """Add one backward of the whole model after its forward; returns its tasks."""
    shares = [(block, 1.0) for block in builder.workload.order]
    return builder.compute("backward", "backward", builder.backward_row(shares))


def split_experts(
    strategy: Strategy, scope: Scope, n_bytes: float, expert_bytes: float
) -> list[tuple[Scope, float]]:
    """The parts of a message by the ranks that exchange them: pairs (scope, bytes).

    Where experts are spread over ranks, only ranks that hold the same experts exchange the
    ``expert_bytes`` among the ``n_bytes``.
    """
    if strategy.expert_ranks == 1 or strategy.shard_ranks or not expert_bytes:
        return [(scope, n_bytes)]
    parts: list[tuple[Scope, float]] = [
        (scope, n_bytes - expert_bytes),
        ("experts", expert_bytes),
    ]
    return [(ranks, size) for ranks, size in parts if size > 0]


def backward_with_buckets(
    builder: ProgramBuilder, buckets: Sequence[Bucket], *, overlap: bool
) -> tuple[list[int], list[list[int]]]:
    """Add backward as one task per bucket, each of which ends when its bucket is ready.

    Returns the tasks that end backward, and for each bucket the tasks after which it can be
    reduced: without ``overlap`` those that end backward. At most HOST_STRETCHES host tasks issue
    the kernels.
    """
    parts = backward_stretches(builder.workload, buckets)
    rows = [builder.backward_row(part) for part in parts]
    per_host = -(-len(rows) // HOST_STRETCHES)
    ready: list[list[int]] = []
    last: list[int] = []
    host = 0
    for i, row in enumerate(rows):
        if i % per_host == 0:
            host = builder.host("backward", summed(chain.from_iterable(rows[i : i + per_host])))
        last = builder.compute(
            "backward", "backward", row, [] if i else builder.leaving,
            issued_by=host, overlapped=overlap and i > 0,
        )  # fmt: skip
        ready.append(last)
    return last, ready[: len(buckets)] if overlap else [last] * len(buckets)


def update(builder: ProgramBuilder, strategy: Strategy, deps: Sequence[int]) -> list[int]:
    """Add gradient clipping, optimizer and EMA, as far as the strategy has them.

    ``deps``: tasks that the update starts after. Returns the tasks that end it.
    """
    done = [*deps, *builder.swapping]
    waits = done if strategy.waits_for_gradients else []
    issued = builder.misc("issue update", "host", "host", "update_host_s", waits)
    if builder.leaving:
        done += builder.misc(
            "activations to device", "copy", "offload", "activations_copy_s", builder.leaving
        )
    of_program = strategy.program.optimizer_state
    if of_program.update_copies_bytes or of_program.update_kernels_a_tensor:
        done = builder.misc("copies in update", "compute", "optimizer", "update_passes_s", done)
    if strategy.grad_clip:
        done = builder.misc("gradient norm", "compute", "optimizer", "grad_norm_s", done)
    if strategy.offload.optimizer != "none":
        done = builder.misc("gradients to host", "copy", "offload", "offload_down_s", done)
        done = builder.misc("host optimizer", "host cpu", "offload", "host_optimizer_s", done)
        done = builder.misc("parameters to device", "copy", "offload", "offload_up_s", done)
    else:
        done = builder.misc("optimizer", "compute", "optimizer", "optimizer_s", done, bounds=issued)
    if strategy.ema:
        done = builder.misc("EMA", "compute", "ema", "ema_s", done, bounds=issued)
    return done


def outer_layers_stay(strategy: Strategy) -> bool:
    """Whether ZeRO-3 gathers what lies outside the repeated layers once a micro-step."""
    fsdp = strategy.program.fsdp
    return fsdp.outer_layers_one_unit or fsdp.outer_layers_stay


def blocks_ahead(workload: Workload, strategy: Strategy) -> int:
    """Number of blocks ahead for which ZeRO-3 gathers parameters (``Fsdp.ahead_numel``)."""
    wanted = strategy.program.fsdp.ahead_numel
    layers = sum(times for b, times in workload.repeats if b.recomputable)
    if not (wanted and layers):
        return strategy.prefetch_blocks
    each = max(workload.layers_numel / layers, 1.0)
    return max(strategy.prefetch_blocks, min(math.ceil(wanted / each), layers))


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
        if builder.workload.n_buffers and strategy.overlap.grads:
            last = builder.misc(
                "batch norms behind buckets", "compute", "backward", "norms_behind_buckets_s", last
            )
            bucket_ready[-1:] = [last]
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
