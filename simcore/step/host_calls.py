"""Host work other than issuing kernels: calls of collectives and checkpoints, and Python hooks.

All of it is counted in *kernel issues*: one is the time that the host takes to issue one kernel.
Kernels that a CUDA graph of a part of a layer replays are taken off.

# P phases: forward of each block, backward of each block, forward of each frozen network.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.strategy.programs import modules_program
from simcore.strategy.programs.mechanisms import (
    ModuleHooks,
    ModuleOverhead,
    TrainerLoop,
    UnitHooks,
)
from simcore.strategy.strategy import LayerPart, Strategy
from simcore.workload.graph import Block, Op, Workload

#: Kernel issues that one collective adds on the host, beyond issuing its kernel. torch 2.13 takes
#: 7.6 us for dist.all_reduce on its fake backend and 14 us in an autograd function, where nn.Linear
#: takes 12.8 us. The rest, NCCL's enqueue and the events between streams, is an assumption.
COLLECTIVE_ISSUES = 2.0
#: Kernel issues that the checkpoint of a block adds in backward, beyond the kernels of the
#: recompute: it restores the states of random generators and runs an autograd function and a nested
#: backward (torch 2.13, reentrant: 115 us).
CHECKPOINT_ISSUES = 9.0
#: Kernel issues (forward, backward) that a checkpoint which stops early adds to a block: Python
#: hooks around each tensor that autograd saves (torch 2.13: 140 and 340 us for the 24 tensors of a
#: GPT-2 layer, 200 and 475 us for the 38 of a Llama layer).
HOOKED_ISSUES = (17.0, 41.0)


@dataclass(frozen=True)
class Managed:
    """A library's Python work around a model's modules.

    ``hooks``: of ZeRO-3, around modules; ``bucket_numel``: elements of the bucket in which ZeRO-3
    reduces gradients, 0 without ``hooks``; ``units``: of FSDP, around each unit that it shards;
    ``modules``: of the modules' own Python code.
    """

    hooks: ModuleHooks | None = None
    bucket_numel: int = 0
    units: UnitHooks | None = None
    modules: ModuleOverhead | None = None


def managed(strategy: Strategy, modules_of: str = "") -> Managed | None:
    """The Python work around modules that a job's program does; None if it does none.

    ZeRO-3's hooks and FSDP's units apply only where parameters are sharded (ZeRO stage 3).
    ``modules_of``: as in ``Workload``; its modules run where the program has none of its own.
    """
    library, sharded = strategy.program, strategy.zero_stage == 3
    hooks, units = (library.zero3.hooks, library.fsdp.units) if sharded else (None, None)
    modules = library.host.modules
    if modules is None and modules_of and strategy.eager and library.layers.plain_pytorch_modules:
        modules = modules_program(modules_of).host.modules
    if hooks is None and units is None and modules is None:
        return None
    numel = strategy.buckets.zero_numel if hooks else 0
    return Managed(hooks, numel, units, modules)


def calls(
    workload: Workload, recompute: bool, stops_early: bool, by: Managed | None,
    replayed: tuple[LayerPart, ...] = (),
) -> Array:  # fmt: skip
    """Host work other than issuing kernels, in kernel issues of each phase [P].

    ``recompute``: recomputable blocks are checkpointed; ``stops_early``: their checkpoint stops
    once backward has what it needs; ``by``: Python work around modules. FSDP's units are not
    included (``unit_calls``). ``replayed``: parts of layers whose kernels a CUDA graph replays,
    which are counted as issued one by one elsewhere: less those, and one launch a graph.
    """
    collectives = np.array([COLLECTIVE_ISSUES * b.exchanges for b in workload.blocks])
    fwd_issues, bwd_issues = HOOKED_ISSUES if stops_early else (0.0, CHECKPOINT_ISSUES)
    checkpointed = np.array([float(b.recomputable and recompute) for b in workload.blocks])
    forward = collectives + fwd_issues * checkpointed
    backward = collectives + bwd_issues * checkpointed
    if replayed:
        saved = np.array([_replayed(b, replayed) for b in workload.blocks])
        forward, backward = forward - saved[:, 0], backward - saved[:, 1]
    if by is not None and by.hooks is not None:
        hooked = np.array([_hooked(b, by.hooks, by.bucket_numel) for b in workload.blocks])
        forward, backward = forward + hooked[:, 0], backward + hooked[:, 1]
    if by is not None and by.modules is not None:
        overhead = np.array([_module_overhead(b, by.modules) for b in workload.blocks])
        forward, backward = forward + overhead[:, 0], backward + overhead[:, 1]
    return np.concatenate([forward, backward, np.zeros(len(workload.frozen))])


def _replayed(block: Block, parts: tuple[LayerPart, ...]) -> tuple[float, float]:
    """Kernel issues that a graph of these parts saves in a block's forward and in its backward.

    The parts are neighbours, so that one graph holds them (Megatron-Core, --cuda-graph-modules).
    Attention's graph holds its collectives among tensor ranks, half of a layer's, too.
    """
    at = [(part, op) for part, op in _by_part(block) if part in parts]
    held = [op for _, op in at]
    forward, backward = (
        sum(k.launches if k.issues is None else k.issues for kernels in side for k in kernels)
        for side in ([op.fwd for op in held], [op.bwd for op in held])
    )
    attends = any(part == "attention" for part, _ in at)
    exchanged = COLLECTIVE_ISSUES * block.exchanges / 2 if attends else 0.0
    return max(forward + exchanged - 1.0, 0.0), max(backward + exchanged - 1.0, 0.0)


def _by_part(block: Block) -> Iterator[tuple[LayerPart | None, Op]]:
    """The ops of a layer with the parts that graphs hold; None for all others.

    Attention, or a Mamba or delta mixer in its place, ends where its result is added to its input
    (NVIDIA's recipes of hybrids list both: --cuda-graph-modules attn mamba). Routing is all from
    there until rows are sent to their experts, and the experts that every token passes.
    """
    ends = next((i + 1 for i, op in enumerate(block.ops) if op.role == "mixer_sum"), 0)
    sent = next((i for i, op in enumerate(block.ops) if op.part == "exchange"), 0)
    for i, op in enumerate(block.ops):
        routing = ends <= i < sent or (sent and op.part == "shared")
        yield "attention" if i < ends else "routing" if routing else None, op


def weight_casts(workload: Workload) -> Array:
    """Casts under autocast that no kernel of the table stands for, in each phase [P].

    Forward casts each matrix and its bias to 16 bit once (ATen's autocast_mode.cpp, cached_cast);
    backward, whose casts of matrices are in the table, casts the gradients of biases.
    """
    biases = np.array([_biases(b) for b in workload.blocks], dtype=float)
    matrices = np.array([b.gemm_weights[0] for b in workload.blocks], dtype=float)
    return np.concatenate([matrices + biases, biases, np.zeros(len(workload.frozen))])


def unit_calls(workload: Workload, by: Managed | None) -> Array:
    """Host work of FSDP around the units that it shards, in kernel issues of each phase [P].

    It applies only where there is more than one rank; the caller checks that.
    """
    n = len(workload.blocks)
    per_phase = np.zeros(2 * n + len(workload.frozen))
    if by is not None and by.units is not None:
        per_block = np.array([_around_units(b, by.units) for b in workload.blocks])
        per_phase[: 2 * n] = per_block.T.ravel()
    return per_phase


def driver_issues(workload: Workload, driver: TrainerLoop) -> float:
    """Host work of a trainer between two micro-steps, in kernel issues."""
    blocks = sum(
        n * (b.recomputable * driver.layer + adapters(b) * driver.adapter)
        for b, n in workload.repeats
    )
    return driver.micro_step + blocks


def adapters(block: Block) -> int:
    """The number of a block's matrix products that have a LoRA adapter."""
    return sum(op.name.endswith(".lora_a") for op in block.ops)


def _biases(block: Block) -> int:
    """The number of a block's matrices that have a bias."""
    numels = {op.gemm_weight for op in block.ops if op.gemm_weight}
    owners = {p.name.rpartition(".")[0] for p in block.params if p.numel in numels}
    names = (p.name.rpartition(".")[::2] for p in block.params)
    return sum(kind == "bias" and owner in owners for owner, kind in names)


def _matrices(block: Block) -> int:
    """The number of a block's ops that multiply by a weight."""
    return sum(any(k.flop and k.weight for k in op.fwd) for op in block.ops)


def _hooked(block: Block, hooks: ModuleHooks, bucket_numel: int) -> tuple[float, float]:
    """Kernel issues of ZeRO-3's hooks in a block's forward and in its backward."""
    matrices = _matrices(block)
    owners = max(matrices, len({p.name.rpartition(".")[0] for p in block.params}))
    forward, backward = (
        owners * hooks.module[i] + matrices * hooks.matrix[i] + block.recomputable * hooks.layer[i]
        for i in (0, 1)
    )
    # A bucket is reduced when it is full, or when the next tensor does not fit into it any more.
    sizes = [p.numel for p in block.params]
    neighbours = zip(sizes, (*sizes[1:], *sizes[:1]), strict=True)
    separate = sum(a + b > bucket_numel for a, b in neighbours)
    buckets = max(float(separate), sum(min(n, bucket_numel) for n in sizes) / bucket_numel)
    return forward, backward + len(sizes) * hooks.gradient + buckets * hooks.bucket


def _module_overhead(block: Block, modules: ModuleOverhead) -> tuple[float, float]:
    """Kernel issues that the Python code of a block's modules adds in forward and in backward."""
    adapted = adapters(block)
    forward, backward = (
        block.recomputable * modules.layer[i] + adapted * modules.adapter[i] for i in (0, 1)
    )
    return forward, backward


def _around_units(block: Block, units: UnitHooks) -> tuple[float, float]:
    """Kernel issues of FSDP's hooks around a block's units, in forward and in backward.

    A block is one unit; where ``units.adapters``, each matrix of an adapter is another one.
    """
    adapter_units = 2 * adapters(block) if units.adapters else 0
    trained = len(block.params) - adapter_units
    tensors = max(trained, _matrices(block) - 2 * adapters(block))
    if not (tensors or block.base_numel or block.packed_bytes):
        return 0.0, 0.0
    forward, backward = (units.unit[i] + tensors * units.tensor[i] for i in (0, 1))
    backward += bool(trained) * units.reduced + trained * units.reduced_tensor
    adapter_forward = units.unit[0] + units.tensor[0]
    adapter_backward = units.unit[1] + units.tensor[1] + units.reduced + units.reduced_tensor
    return forward + adapter_units * adapter_forward, backward + adapter_units * adapter_backward
