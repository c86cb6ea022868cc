"""Sizes, saved tensors and candidate moments that the memory of parts of a model is computed from.

# C configs, N parts of a model, I block instances, J ops, S saved storages
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.memory.moments import Moments, joined_moments, moments_of
from simcore.step.transients import saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.workload.graph import Frozen, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ActivationProfile:
    """Bytes per sample over the block instances of a backward pass; arrays [I], last block first.

    ``held``: saved bytes when instance i's backward begins; ``kept``: all saved bytes; ``inputs``:
    those that are inputs of recomputed instances; ``storage_bytes``, ``storage_count``: saved
    storages by size.
    """

    held: Array
    kept: float
    inputs: float
    storage_bytes: Array
    storage_count: Array
    transient_frozen: float
    resident_frozen: float
    frozen_base: tuple[float, float]
    cast_numel: float


def frozen_width(net: Frozen, p: Precision) -> float:
    """Bytes per parameter of a frozen network."""
    if net.bytes_per_param is not None:
        return net.bytes_per_param
    return p.param_bytes if net.ops or net.as_trained else p.base_bytes


def frozen_base(workload: Workload, p: Precision) -> tuple[float, float]:
    """Bytes of the adapters' frozen base in the blocks: (all of it, routed experts')."""
    resident = sum(f.resident_numel * frozen_width(f, p) for f in workload.frozen if not f.ops)
    whole = min(sum(b.base_bytes(p.base_bytes) for b in workload.instances()), resident)
    routed = sum(b.routed_base_bytes(p.base_bytes) for b in workload.instances())
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


@lru_cache(maxsize=1000)
def activation_profile(workload: Workload, p: Precision, recompute: bool) -> ActivationProfile:
    """The saved bytes of a step, block by block, for one precision and recompute policy."""
    blocks = list(workload.instances())
    distinct = {id(b): b for b in blocks}
    recomputed = {k: recompute and b.recomputable for k, b in distinct.items()}
    pins = {
        k: saved_bytes(b.kept_input if recomputed[k] else b.saved, p) for k, b in distinct.items()
    }
    before = np.cumsum([pins[id(b)] for b in blocks])
    times = Counter(map(id, blocks))
    sizes: dict[float, float] = {}
    for k, block in distinct.items():
        for part in [block.kept_input] if recomputed[k] else [op.saved for op in block.ops]:
            for n in storages(part, p):
                sizes[n] = sizes.get(n, 0.0) + times[k]
    return ActivationProfile(
        held=before[::-1].copy(),
        kept=float(before[-1]),
        inputs=float(sum(pins[id(b)] for b in blocks if recomputed[id(b)])),
        storage_bytes=np.array(list(sizes) or [0.0]),
        storage_count=np.array(list(sizes.values()) or [0.0]),
        transient_frozen=max((f.transient_low * p.low_bytes for f in workload.frozen), default=0.0),
        resident_frozen=sum(f.resident_numel * frozen_width(f, p) for f in workload.frozen)
        + workload.buffers_numel * p.param_bytes,
        frozen_base=frozen_base(workload, p),
        cast_numel=workload.gemm_weights[1],
    )


def stub_bytes(workload: Workload, p: Precision) -> float:
    """Bytes of the tensors that stand in for gradients under fused sums into main gradients.

    Autograd gets them in place of a gradient. Transformer Engine keeps one tensor of the weights'
    width for each weight shape (module/base.py, get_dummy_wgrad); Megatron-LM's own head makes a
    new one each time (layers.py).
    """
    return p.main_grads * p.param_bytes * sum(k * n for k, n in workload.layer_weight_shapes)


class PartSizes(NamedTuple):
    """Sizes that the memory of a part of a model is computed from; arrays [N] or [C].

    Element counts are those of ``Workload``; bytes are those of ``ActivationProfile``, of the base
    of adapters (all, and routed experts'), and of ``stub_bytes``.
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
    stubs: Array


@dataclass(frozen=True)
class Parts:
    """Several parts of one model: ``sizes`` [N], ``moments`` [J, N], storages [S, N].

    A part with fewer storages than others is padded with storages whose count is zero.
    """

    sizes: PartSizes
    moments: Moments
    storage_bytes: Array
    storage_count: Array

    def sizes_at(self, part: NDArray[np.intp]) -> PartSizes:
        """The sizes of each configuration's part; ``part`` [C] is its index."""
        if len(self.storage_bytes[0]) == 1:
            return self.sizes
        return PartSizes(*np.array(self.sizes)[:, part])


@lru_cache(maxsize=1000)
def joined_parts(
    workloads: tuple[Workload, ...], p: Precision, recomputed: bool, ahead: int, root: bool,
    tensors: int = 0,
) -> Parts:  # fmt: skip
    """The inputs of ``memory_of``, for one part of a model or several.

    ``recomputed``: layers run forward a second time in backward; ``ahead``, ``root``, ``tensors``
    as in ``moments_of``.
    """
    profiles = [activation_profile(w, p, recomputed) for w in workloads]
    ops = [moments_of(w, p, recomputed, ahead, root, tensors) for w in workloads]
    sizes = [
        (  # in the order of PartSizes
            w.trainable_numel, w.expert_numel, w.layers_numel, w.largest_block_numel,
            w.largest_param_numel, a.kept, a.inputs, a.transient_frozen, a.resident_frozen,
            *a.frozen_base, stub_bytes(w, p),
        )
        for w, a in zip(workloads, profiles, strict=True)
    ]  # fmt: skip
    storages = np.zeros((2, max(len(a.storage_bytes) for a in profiles), len(profiles)))
    for n, a in enumerate(profiles):
        storages[:, : len(a.storage_bytes), n] = a.storage_bytes, a.storage_count
    return Parts(PartSizes(*np.array(sizes, dtype=np.float64).T), joined_moments(ops), *storages)


def norm_copy_numel(workload: PartSizes, shards: Array, *, main_grads: bool) -> Array:
    """Elements of the largest gradient whose norm a rank computes, at most those of its shard."""
    found: Array = np.minimum(workload.largest_param_numel, workload.trainable_numel / shards)
    return found * (not main_grads)
