"""Sizes, saved tensors and candidate moments that the memory of parts of a model is computed from.

# C configs, N parts of a model, J ops, S saved storages
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same, dataclass
from simcore.base.units import FP32_BYTES
from simcore.memory.moments import Moments, Walked, moments_of
from simcore.step.parallel import blocks_ahead, outer_layers_stay
from simcore.step.transients import saved_bytes, storages, swapped_base
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Frozen, Workload

Array = NDArray[np.float64]


class SavedActivations(NamedTuple):
    """Bytes per sample that forward saves for backward.

    ``kept``: all of them; ``inputs``: those that are inputs of recomputed blocks; ``storages``:
    how many storages there are of each size.
    """

    kept: float
    inputs: float
    storages: dict[float, float]


@lru_cache(maxsize=1000)
def saved_activations(workload: Workload, p: Precision, recompute: bool) -> SavedActivations:
    """What a part of a model saves, for one precision and recompute policy."""
    kept = inputs = 0.0
    sizes: dict[float, float] = {}
    for block, times in workload.repeats:
        again = recompute and block.recomputable
        saved, each = _saved_of(Same(block), p, again)
        kept, inputs = kept + saved * times, inputs + saved * times * again
        for n in each:
            sizes[n] = sizes.get(n, 0.0) + times
    return SavedActivations(kept, inputs, sizes)


@lru_cache(maxsize=2000)
def _saved_of(block: Same[Block], p: Precision, again: bool) -> tuple[float, tuple[float, ...]]:
    """Bytes per sample that a block saves, and each of their storages.

    ``again``: it is recomputed, so that only its input is saved.
    """
    parts = [block.it.kept_input] if again else [op.saved for op in block.it.ops]
    saved = saved_bytes(block.it.kept_input if again else block.it.saved, p)
    return saved, tuple(n for part in parts for n in storages(part, p))


def frozen_width(net: Frozen, p: Precision) -> float:
    """Bytes per parameter of a frozen network."""
    if net.bytes_per_param is not None:
        return net.bytes_per_param
    return p.param_bytes if net.ops or net.as_trained else p.base_bytes


def live_bytes(net: Frozen, p: Precision) -> int:
    """Bytes per element of a frozen network's activations: fp32 where it is stored in fp32."""
    return FP32_BYTES if net.bytes_per_param == FP32_BYTES else p.low_bytes


def frozen_base(workload: Workload, p: Precision) -> tuple[float, float]:
    """Bytes of the adapters' frozen base in the blocks: (all of it, routed experts')."""
    resident = sum(f.resident_numel * frozen_width(f, p) for f in workload.frozen if not f.ops)
    whole = min(sum(n * b.base_bytes(p.base_bytes) for b, n in workload.repeats), resident)
    routed = sum(n * b.routed_base_bytes(p.base_bytes) for b, n in workload.repeats)
    return whole, min(routed, whole)


def frozen_away(
    base: tuple[Array, Array] | tuple[float, float], shards: Array | float, expert_ranks: float
) -> Array:
    """Bytes of a frozen base that ZeRO-3 keeps on other ranks; it is sharded like trained
    parameters.

    DeepSpeed partitions every parameter, FSDP every one of a wrapped module, trained or not. An
    expert's is sharded among the ranks that hold the same experts (``parallel.zero.holdings``).
    """
    whole, routed = base
    of_expert = np.maximum(np.asarray(shards) / expert_ranks, 1.0)
    return (whole - routed) * (1.0 - 1.0 / np.asarray(shards)) + routed * (1.0 - 1.0 / of_expert)


def hands_stubs(strategy: Strategy) -> bool:
    """Whether autograd gets a stub in place of gradients that a kernel adds to main gradients."""
    stub = strategy.program.gradients.stub_after_fused_sum
    return strategy.precision.main_grads and strategy.zero_stage < 3 and stub


def early_bytes(p: Precision) -> int:
    """Bytes an element of a gradient made in forward: itself, a piece of it as a product and in
    fp32 (Liger-Kernel, fused linear cross-entropy).
    """
    return p.param_bytes + p.low_bytes + FP32_BYTES


def stub_bytes(workload: Workload, p: Precision) -> float:
    """Bytes of the tensors that stand in for gradients under fused sums into main gradients.

    Autograd gets them in place of a gradient. Transformer Engine keeps one tensor of the weights'
    width for each weight shape (module/base.py, get_dummy_wgrad); Megatron-LM's own head makes a
    new one each time (layers.py).
    """
    return p.main_grads * p.param_bytes * sum(k * n for k, n in workload.layer_weight_shapes)


class PartSizes(NamedTuple):
    """Sizes that the memory of a part of a model is computed from; arrays [N] or [C].

    Element counts are those of ``Workload``; bytes are those of ``SavedActivations``, of frozen
    networks (live in their forward, with a sample; resident), of the base of adapters (all, routed
    experts', and ``swapped_base``), and of ``stub_bytes``.
    """

    trainable_numel: Array
    expert_numel: Array
    layers_numel: Array
    largest_block_numel: Array
    largest_param_numel: Array
    kept: Array
    inputs: Array
    transient_frozen: Array
    resident_frozen: Array
    base: Array
    routed_base: Array
    swapped_base: Array
    stubs: Array


def _sizes(w: Workload, p: Precision, saved: SavedActivations, swapped: int) -> tuple[float, ...]:
    """One part's values of ``PartSizes``, in its order."""
    transient = max((f.transient_low * live_bytes(f, p) for f in w.frozen), default=0.0)
    resident = sum(f.resident_numel * frozen_width(f, p) for f in w.frozen)
    return (
        w.trainable_numel, w.expert_numel, w.layers_numel, w.largest_block_numel,
        w.largest_param_numel, saved.kept, saved.inputs, transient,
        resident + w.buffers_numel * p.param_bytes, *frozen_base(w, p),
        swapped_base(w, p, swapped), stub_bytes(w, p),
    )  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """Several parts of one model: ``sizes`` [N], ``moments`` [J, N], storages [S, N].

    A part with fewer storages than others is padded with storages whose count is zero.
    ``recomputed`` [N]: whether the layers of each part are checkpointed.
    """

    sizes: PartSizes
    moments: Moments
    storage_bytes: Array
    storage_count: Array
    recomputed: NDArray[np.bool_]

    def sizes_at(self, part: NDArray[np.intp]) -> PartSizes:
        """The sizes of each configuration's part; ``part`` [C] is its index."""
        if len(self.storage_bytes[0]) == 1:
            return self.sizes
        return PartSizes(*np.array(self.sizes)[:, part])


def holds_checkpoint_inputs(strategy: Strategy) -> bool:
    """Whether inputs of checkpoints stay until backward ends, beside a frozen base.

    FSDP 1 reshards a unit of frozen parameters by a hook on the unit's inputs
    (torch/distributed/fsdp/_runtime_utils.py, _register_post_backward_reshard_only_hook), which is
    removed when backward ends (_finalize_params). The hook has the node that adds up the input's
    gradient (torch/autograd/graph.py, register_multi_grad_hook), and that node has the input, where
    it is a leaf: the detached input of a reentrant checkpoint.
    """
    program = strategy.program
    hooked = program.fsdp.holds_checkpoint_inputs and program.recompute.reentrant
    return hooked and strategy.zero_stage >= 2


def joined_moments(parts: Sequence[Moments]) -> Moments:
    """Moments of several workloads, arrays [J, workloads]; shorter lists repeat their first row."""
    table = [[getattr(m, f.name) for f in fields(Moments)] for m in parts]
    longest = max(len(columns[0]) for columns in table)
    rows = [np.where(np.arange(longest) < len(c[0]), np.arange(longest), 0) for c in table]
    return Moments(
        *(
            np.stack([column[row] for column, row in zip(of, rows, strict=True)], axis=1)
            for of in zip(*table, strict=True)
        )
    )


def parts_of(
    workloads: tuple[Workload, ...], strategy: Strategy, recomputed: tuple[bool, ...] = ()
) -> Parts:
    """The inputs of ``memory_of``, for one part of a model or several.

    ``recomputed``: as in ``Parts``; empty: for all as the strategy says.
    """
    program = strategy.program
    return _parts(
        workloads, strategy.precision,
        recomputed or (strategy.recompute == "full",) * len(workloads),
        tuple(blocks_ahead(w, strategy) for w in workloads), outer_layers_stay(strategy),
        program.zero3.tensors_at_once, program.fsdp.queued_numel, strategy.offload.blocks,
        holds_checkpoint_inputs(strategy),
    )  # fmt: skip


@lru_cache(maxsize=1000)
def _parts(
    workloads: tuple[Workload, ...], p: Precision, recomputed: tuple[bool, ...],
    ahead: tuple[int, ...], root: bool, tensors: int, queued: float, swapped: int, stay: bool,
) -> Parts:  # fmt: skip
    saved = [saved_activations(w, p, r) for w, r in zip(workloads, recomputed, strict=True)]
    sizes = [_sizes(w, p, a, swapped) for w, a in zip(workloads, saved, strict=True)]
    stored = np.zeros((2, max([1, *(len(a.storages) for a in saved)]), len(saved)))
    for n, a in enumerate(saved):
        stored[:, : len(a.storages), n] = list(a.storages), list(a.storages.values())
    walks = [
        Walked(w, again, n, stay and frozen_base(w, p)[0] > 0.0)
        for w, again, n in zip(workloads, recomputed, ahead, strict=True)
    ]
    moments = joined_moments(moments_of(walks, p, root, tensors, queued))
    of_parts = PartSizes(*np.array(sizes, dtype=np.float64).T)
    return Parts(of_parts, moments, stored[0], stored[1], np.array(recomputed))
