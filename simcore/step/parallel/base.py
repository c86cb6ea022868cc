"""The contract of a parallel strategy, and the parts that all of them share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.registry import Registry
from simcore.step.program import (
    HOST_STRETCHES,
    Bucket,
    ProgramBuilder,
    Scope,
    backward_stretches,
)
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block
from simcore.workload.saved import NOTHING

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Holdings:
    """Bytes that a rank keeps of the model's state; arrays over the configuration axis.

    ``buckets`` are flat communication buffers, ``gathered`` parameters fetched for use,
    ``replicas`` what only the master of DataParallel holds. ``host`` lies in host memory,
    ``nvme`` on the node's drives.
    """

    parameters: Array
    gradients: Array
    optimizer_state: Array
    ema: Array
    buckets: Array
    gathered: Array
    replicas: Array
    host: Array
    nvme: Array


class Trained(Protocol):
    """Trained parameters of a part of a model, as ``Workload`` names them: elements.

    Along an axis of which configurations have different parts, arrays.
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
    """Shards the model, adds its collectives to the step, says what each rank keeps."""

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Add forward, backward, communication and update of one optimizer step.

        ``builder.workload`` is an outline: order, parameters and buffers of blocks, nothing else.
        """

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """What the fullest rank keeps, for each number of ranks.

        ``workload`` is the rank's part of the model; its experts differ between ``expert_ranks``
        ranks, so that fewer replicas share their state.
        """

    def shard_degree(self, strategy: Strategy, n_ranks: Array) -> Array:
        """Over how many ranks the optimizer's work is divided."""


PARALLELISMS: Registry[ParallelStrategy] = Registry("strategy")


def weight_bytes(workload: Trained, strategy: Strategy) -> Array | float:
    """Bytes of all trained parameters in the width that a rank computes with."""
    p = strategy.precision
    whole = workload.trainable_numel * float(p.param_bytes)
    if not strategy.fp8_params:
        return whole
    return whole - workload.layers_numel * (p.param_bytes - float(strategy.fp8_copies))


def gathered_width(block: Block, strategy: Strategy) -> float:
    """Bytes a parameter of a block in which ranks gather what others have updated."""
    narrow = strategy.fp8_params and block.recomputable
    return 1.0 if narrow else float(strategy.precision.param_bytes)


def prologue(builder: ProgramBuilder, strategy: Strategy) -> list[int]:
    """Input copy, frozen networks, autocast's weight copies, all micro-steps but the last."""
    return accumulation(builder, inputs(builder, strategy))


def inputs(builder: ProgramBuilder, strategy: Strategy) -> list[int]:
    """Input copy, frozen networks, autocast's weight copies."""
    # Without workers the training process loads: the host issues nothing meanwhile.
    loaded = builder.misc("load batch", "host", "loader", "loader_blocking_s")
    if strategy.program.host.trainer_loop is not None:
        # it looks at each loss before it goes on, so that the device has nothing left to do
        loaded = builder.misc("between micro-steps", "host", "host", "driver_s")
    ready = builder.misc("copy input", "copy", "input copy", "input_copy_s", loaded)
    if builder.workload.frozen:
        ready = builder.compute("frozen networks", "frozen", builder.frozen_row(), ready)
    if strategy.precision.cast_bytes:
        ready = builder.misc("cast weights", "compute", "forward", "cast_weights_s", ready)
    return ready


def accumulation(builder: ProgramBuilder, ready: list[int]) -> list[int]:
    """All micro-steps but one; of the last, activations that live on the host begin to leave."""
    issued = builder.misc("issue earlier micro-steps", "host", "host", "accumulation_host_s")
    done = builder.misc(
        "earlier micro-steps", "compute", "accumulation", "accumulation_s", ready, bounds=issued
    )
    if any(b.away != NOTHING for b in builder.workload.blocks):
        builder.leaving = builder.misc(
            "activations to host", "copy", "offload", "activations_copy_s", done
        )
    return done


def split_experts(
    strategy: Strategy, scope: Scope, n_bytes: float, expert_bytes: float
) -> list[tuple[Scope, float]]:
    """What of a message goes to which ranks: experts' part only to those that hold the same."""
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
    """Backward cut where buckets become ready.

    Returns the tasks that end backward and, for each bucket, the tasks that make it ready: the
    last where nothing is to ``overlap``.
    The host is followed in at most HOST_STRETCHES stretches.
    """
    stretches = backward_stretches(builder.workload, buckets)
    rows = [builder.backward_row(piece) for piece in stretches]
    per_host = -(-len(rows) // HOST_STRETCHES)
    ready: list[list[int]] = []
    last: list[int] = []
    host = 0
    for i, row in enumerate(rows):
        if i % per_host == 0:
            host = builder.host("backward", np.sum(rows[i : i + per_host], axis=0))
        last = builder.compute(
            "backward", "backward", row, [] if i else builder.leaving,
            issued_by=host, overlapped=overlap and i > 0,
        )  # fmt: skip
        ready.append(last)
    return last, ready[: len(buckets)] if overlap else [last] * len(buckets)


def update(builder: ProgramBuilder, strategy: Strategy, deps: Sequence[int]) -> list[int]:
    """Gradient clipping, optimizer, EMA, in that order, where the strategy has them."""
    done = list(deps)
    if builder.leaving:
        done += builder.misc(
            "activations to device", "copy", "offload", "activations_copy_s", builder.leaving
        )
    if strategy.program.optimizer_state.update_copies_bytes:
        done = builder.misc("copies in update", "compute", "optimizer", "update_passes_s", done)
    if strategy.grad_clip:
        done = builder.misc("gradient norm", "compute", "optimizer", "grad_norm_s", done)
    if strategy.offload.optimizer != "none":
        done = builder.misc("gradients to host", "copy", "offload", "offload_down_s", done)
        done = builder.misc("host optimizer", "host cpu", "offload", "host_optimizer_s", done)
        done = builder.misc("parameters to device", "copy", "offload", "offload_up_s", done)
    else:
        done = builder.misc("optimizer", "compute", "optimizer", "optimizer_s", done)
    if strategy.ema:
        done = builder.misc("EMA", "compute", "ema", "ema_s", done)
    return done
