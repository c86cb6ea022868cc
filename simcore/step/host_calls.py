"""What the host does beside issuing kernels: calls and hooks, in the time of so many kernels.

# P phases: forward of each block, backward of each, frozen networks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray
from simcore.strategy.programs.mechanisms import (
    ModuleHooks,
    ModuleOverhead,
    TrainerLoop,
    UnitHooks,
)
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Workload

Array = NDArray[np.float64]
#: What a collective costs its host over a kernel: torch 2.13 takes 7.6 us for dist.all_reduce on
#: its fake backend and 14 in an autograd function, where nn.Linear takes 12.8; the rest, NCCL's
#: enqueue and the events between streams, is an assumption.
COLLECTIVE_ISSUES = 2.0
#: The same for a checkpointed block beside what it runs again: states of random generators, an
#: autograd function and a backward of its own (torch 2.13, reentrant: 115 us).
CHECKPOINT_ISSUES = 9.0
#: The same of one that stops early, forward and backward: hooks in Python around each tensor that
#: autograd keeps (torch 2.13: 140 and 340 us of a GPT-2 layer's 24, 200 and 475 of a Llama's 38).
HOOKED_ISSUES = (17.0, 41.0)


@dataclass(frozen=True, slots=True)
class Managed:
    """What a library's Python does around modules; elements of a bucket that it reduces."""

    hooks: ModuleHooks | None = None
    bucket_numel: int = 0
    units: UnitHooks | None = None
    modules: ModuleOverhead | None = None


def managed(strategy: Strategy) -> Managed | None:
    """What a job's library does in Python around modules, if it does anything."""
    library, sharded = strategy.program, strategy.zero_stage == 3
    hooks, units = (library.zero3.hooks, library.fsdp.units) if sharded else (None, None)
    if hooks is None and units is None and library.host.modules is None:
        return None
    numel = strategy.zero_bucket_numel if hooks else 0
    return Managed(hooks, numel, units, library.host.modules)


def calls(
    workload: Workload, issues: Array, recompute: bool, stops_early: bool, by: Managed | None
) -> Array:
    """What the host does beside its ``issues`` [P] of kernels, in kernels' worth."""
    sent = np.array([COLLECTIVE_ISSUES * b.exchanges for b in workload.blocks])
    first, second = HOOKED_ISSUES if stops_early else (0.0, CHECKPOINT_ISSUES)
    again = np.array([float(b.recomputable and recompute) for b in workload.blocks])
    forward, backward = sent + first * again, sent + second * again
    if by is not None and by.hooks is not None:
        hooked = np.array([_hooked(b, by.hooks, by.bucket_numel) for b in workload.blocks])
        forward, backward = forward + hooked[:, 0], backward + hooked[:, 1]
    if by is not None and by.modules is not None:
        n = len(workload.blocks)
        more = np.array([
            _in_python(b, by.modules, issues[i], issues[n + i])
            for i, b in enumerate(workload.blocks)
        ])  # fmt: skip
        forward, backward = forward + more[:, 0], backward + more[:, 1]
    return np.concatenate([forward, backward, np.zeros(len(workload.frozen))])


def unit_calls(workload: Workload, by: Managed | None) -> Array:
    """What FSDP does around its units [P], in kernels' worth: nothing where one rank is alone."""
    n = len(workload.blocks)
    found = np.zeros(2 * n + len(workload.frozen))
    if by is not None and by.units is not None:
        each = np.array([_around_units(b, by.units) for b in workload.blocks])
        found[: 2 * n] = each.T.ravel()
    return found


def driver_issues(workload: Workload, driver: TrainerLoop) -> float:
    """What a trainer does between two micro-steps, in kernels' worth."""
    each = sum(
        n * (b.recomputable * driver.layer + adapters(b) * driver.adapter)
        for b, n in workload.repeats
    )
    return driver.micro_step + each


def adapters(block: Block) -> int:
    """Products of a block that have an adapter."""
    return sum(op.name.endswith(".lora_a") for op in block.ops)


def _matrices(block: Block) -> int:
    return sum(any(k.flop and k.weight for k in op.fwd) for op in block.ops)


def _hooked(block: Block, hooks: ModuleHooks, room: int) -> tuple[float, float]:
    """What hooks take of the host in a block, forward and backward."""
    matrices = _matrices(block)
    owners = max(matrices, len({p.name.rpartition(".")[0] for p in block.params}))
    forward, backward = (
        owners * hooks.module[i] + matrices * hooks.matrix[i] + block.recomputable * hooks.layer[i]
        for i in (0, 1)
    )
    # a bucket goes when it is full, or when the next tensor does not fit into what is left of it
    sizes = [p.numel for p in block.params]
    apart = sum(a + b > room for a, b in zip(sizes, (*sizes[1:], *sizes[:1]), strict=True))
    buckets = max(float(apart), sum(min(n, room) for n in sizes) / room)
    return forward, backward + len(sizes) * hooks.gradient + buckets * hooks.bucket


def _in_python(
    block: Block, modules: ModuleOverhead, forward: float, backward: float
) -> tuple[float, float]:
    """What modules take beside the kernels that they issue, forward and backward."""
    adapted = adapters(block)
    share = [block.recomputable * s for s in modules.share]
    return (
        share[0] * forward + adapted * modules.adapter[0],
        share[1] * backward + adapted * modules.adapter[1],
    )


def _around_units(block: Block, units: UnitHooks) -> tuple[float, float]:
    """What hooks around a block's units take, forward and backward."""
    apart = 2 * adapters(block) if units.adapters else 0
    trained = len(block.params) - apart
    own = max(trained, _matrices(block) - 2 * adapters(block))
    if not (own or block.base_numel or block.packed_bytes):
        return 0.0, 0.0
    forward, backward = (units.unit[i] + own * units.tensor[i] for i in (0, 1))
    backward += bool(trained) * units.reduced + trained * units.reduced_tensor
    alone = units.unit[1] + units.tensor[1] + units.reduced + units.reduced_tensor
    return forward + apart * (units.unit[0] + units.tensor[0]), backward + apart * alone
