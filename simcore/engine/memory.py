"""Memory of the fullest rank: terms in bytes, at the moment of the step when most is held.

# C configs, I block instances. Three moments compete: the frozen networks' forward, each
# instance's backward (everything saved so far, its working set, the gradients made so far),
# and the optimizer step (all gradients, temporaries, no activations).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import MIB
from simcore.step.kernels import COMPUTE_KINDS
from simcore.step.parallel import PARALLELISMS
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Kernel, Saved, Workload

Array = NDArray[np.float64]

#: cuBLAS workspace that PyTorch reserves a handle: CUBLAS_WORKSPACE_CONFIG default
#: ":4096:2:16:8", i.e. 2 x 4096 KiB + 8 x 16 KiB (docs.pytorch.org, notes/randomness).
CUBLAS_WORKSPACE_BYTES = 2 * 4 * MIB + MIB // 8
#: NCCL_BUFFSIZE default, one Simple buffer of one connection of one channel (NCCL user guide).
NCCL_BUFFER_BYTES = 4 * MIB
#: Ring neighbour plus up to three tree neighbours.
NCCL_CONNECTIONS = 4
#: Channels that NCCL opens: 24 on NVSwitch systems, 2 to 4 over PCIe, 2 a network port.
NCCL_CHANNELS_NVLINK = 24
NCCL_CHANNELS_PCIE = 4
NCCL_CHANNELS_NETWORK = 4
#: The caching allocator rounds blocks above 10 MiB up to 2 MiB (c10/cuda/CUDACachingAllocator).
ALLOCATOR_LARGE_BYTES = 10 * MIB
ALLOCATOR_ROUND_BYTES = 2 * MIB


@dataclass(frozen=True)
class ActivationProfile:
    """Bytes per sample over the instances of a backward pass; arrays [I], last block first.

    ``held`` is what is pinned when instance i's backward begins, ``working`` what it adds,
    ``grads_done`` the fraction of all gradients that exist by then.
    """

    held: Array
    working: Array
    grads_done: Array
    storage_bytes: Array
    storage_count: Array
    transient_frozen: float
    resident_frozen: float
    cast_numel: float


def _bytes(saved: Saved, p: Precision) -> float:
    return saved.low * p.low_bytes + saved.high * p.high_bytes + saved.raw_bytes


def _kernel_bytes(kernel: Kernel, p: Precision) -> float:
    moved = kernel.low * p.low_bytes + kernel.high * p.high_bytes
    # An elementwise backward reads what forward saved besides the two gradients it holds.
    return moved if kernel.kind in COMPUTE_KINDS else moved * 2 / 3


def _working_bytes(block: Block, p: Precision) -> float:
    return max((_kernel_bytes(k, p) for op in block.ops for k in op.bwd), default=0.0)


@lru_cache(maxsize=256)
def activation_profile(workload: Workload, p: Precision, recompute: bool) -> ActivationProfile:
    """What the step pins, instance by instance, for one precision and recompute policy."""
    blocks = list(workload.instances())
    saved = [_bytes(b.saved, p) for b in blocks]
    again = [recompute and b.recomputable for b in blocks]
    kept = [_bytes(b.boundary, p) if r else s for b, s, r in zip(blocks, saved, again, strict=True)]
    before = np.cumsum(kept)
    own = np.array([s if r else 0.0 for s, r in zip(saved, again, strict=True)])
    working = np.array([_working_bytes(b, p) for b in blocks]) + own
    numel = np.array([float(b.numel) for b in blocks])
    total = max(numel.sum(), 1.0)
    after = (numel.sum() - np.cumsum(numel)) / total
    storages: dict[float, float] = {}
    for block, r in zip(blocks, again, strict=True):
        sizes = [block.boundary] if r else [op.saved for op in block.ops]
        for size in sizes:
            if n := _bytes(size, p):
                storages[n] = storages.get(n, 0.0) + 1.0
    frozen_width = [
        f.bytes_per_param if f.bytes_per_param is not None else p.param_bytes
        for f in workload.frozen
    ]
    return ActivationProfile(
        held=before[::-1].copy(),
        working=working[::-1].copy(),
        grads_done=after[::-1].copy(),
        storage_bytes=np.array(list(storages) or [0.0]),
        storage_count=np.array(list(storages.values()) or [0.0]),
        transient_frozen=max((f.transient_low * p.low_bytes for f in workload.frozen), default=0.0),
        resident_frozen=sum(
            f.resident_numel * w for f, w in zip(workload.frozen, frozen_width, strict=True)
        )
        + workload.buffers_numel * p.param_bytes,
        cast_numel=sum(op.gemm_weight for b in blocks for op in b.ops),
    )


@dataclass(frozen=True)
class Memory:
    """Bytes by term, arrays [C]. The terms add up to ``device``."""

    terms: dict[str, Array]
    allocated: Array
    reserved: Array
    device: Array
    host: Array
    nvme: Array
    moment: NDArray[np.intp]


#: What each value of ``Memory.moment`` means.
MOMENTS = ("frozen forward", "backward", "optimizer step")

#: Terms that live outside the framework's allocator, and the rounding inside it.
OUTSIDE = ("nccl_buffers", "cuda_context")
ROUNDING = "allocator_rounding"


def memory_of(
    workload: Workload,
    strategy: Strategy,
    micro_batch: Array,
    grad_accum: Array,
    n_ranks: Array,
    n_nodes: Array,
    *,
    nvlink: bool,
    cuda_context_bytes: float,
) -> Memory:
    """Peak memory of the fullest rank for every configuration (all inputs [C])."""
    p = strategy.precision
    acts = activation_profile(workload, p, strategy.recompute == "full")
    held = PARALLELISMS[strategy.parallelism].holdings(workload, strategy, n_ranks)
    shards = PARALLELISMS[strategy.parallelism].shard_degree(strategy, n_ranks)
    one = np.ones_like(micro_batch)

    # The instance of backward at which most is held; gradients exist in full when they
    # accumulate over micro-steps, else as far as backward has come.
    early = grad_accum > 1
    batches, which = np.unique(micro_batch, return_inverse=True)
    live = (acts.held + acts.working)[:, None] * batches
    grads_then = np.where(early, 1.0, acts.grads_done[:, None])  # [I, C]
    if len(batches) == 1 and len(micro_batch) > 1:
        total = live + grads_then * held.gradients
    else:
        total = live[:, which] + grads_then * held.gradients
    at = total.argmax(axis=0)
    grads_backward = np.take_along_axis(grads_then, at[None, :], axis=0)[0] * held.gradients

    state = {
        "parameters": held.parameters,
        "optimizer_state": held.optimizer_state,
        "ema": held.ema,
        "gradient_buckets": held.buckets,
        "gathered_parameters": held.gathered,
        "replicas": held.replicas,
        "frozen_models": one * acts.resident_frozen,
    }
    cast = one * acts.cast_numel * p.cast_bytes
    temporaries = (
        4.0 * strategy.optimizer.temporary_elems * workload.trainable_numel / shards
        * (strategy.step_impl == "foreach" and strategy.offload.optimizer == "none")
    )  # fmt: skip
    zero = 0 * one
    moments = (
        {
            "gradients": np.where(early, held.gradients, 0.0),
            "activations": zero,
            "autocast_weights": zero,
            "working_set": acts.transient_frozen * micro_batch,
        },
        {
            "gradients": grads_backward,
            "activations": acts.held[at] * micro_batch,
            "autocast_weights": cast,
            "working_set": acts.working[at] * micro_batch,
        },
        {
            "gradients": held.gradients,
            "activations": zero,
            "autocast_weights": zero,
            "working_set": one * temporaries,
        },
    )
    sums = np.stack([sum(m.values(), zero) for m in moments])
    moment = sums.argmax(axis=0)
    terms = dict(state)
    for key in moments[0]:
        terms[key] = np.choose(moment, [one * m[key] for m in moments])
    terms["workspace"] = one * CUBLAS_WORKSPACE_BYTES
    allocated = sum(terms.values(), zero)

    size = acts.storage_bytes[:, None] * batches
    waste = np.where(
        size > ALLOCATOR_LARGE_BYTES, -size % ALLOCATOR_ROUND_BYTES, 0.0
    )  # [storages, batches]
    terms[ROUNDING] = (acts.storage_count @ waste)[which] * (moment == 1)
    channels = NCCL_CHANNELS_NVLINK if nvlink else NCCL_CHANNELS_PCIE
    connection = NCCL_CONNECTIONS * NCCL_BUFFER_BYTES
    uses_nccl = (n_ranks > 1) * 1.0
    terms["nccl_buffers"] = connection * (
        channels * uses_nccl * (n_ranks > n_nodes) + NCCL_CHANNELS_NETWORK * (n_nodes > 1)
    )
    terms["cuda_context"] = one * cuda_context_bytes
    reserved = allocated + terms[ROUNDING]
    device = reserved + terms["nccl_buffers"] + terms["cuda_context"]
    return Memory(terms, allocated, reserved, device, held.host, held.nvme, moment)
