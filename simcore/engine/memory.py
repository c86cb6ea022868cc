"""Memory of the fullest rank: terms in bytes, at the moment of the step when most is held.

# C configs, N parts of a model, I block instances, J ops. The moments that compete: the frozen
# networks' forward, each op's forward and backward (everything saved so far, its working set, the
# gradients made so far: engine.moments), and the optimizer step (all gradients, temporaries, no
# activations).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray, distinct_columns
from simcore.base.units import FP32_BYTES, MIB
from simcore.engine.communicators import Group, communicator_bytes
from simcore.engine.moments import Moments, joined_moments, moments_of
from simcore.engine.transients import saved_bytes, storages
from simcore.step.parallel import PARALLELISMS
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Frozen, Workload

Array = NDArray[np.float64]

#: cuBLAS workspace that PyTorch reserves a handle: CUBLAS_WORKSPACE_CONFIG default
#: ":4096:2:16:8", i.e. 2 x 4096 KiB + 8 x 16 KiB (docs.pytorch.org, notes/randomness), but 32 MiB
#: from Hopper on (parseChosenWorkspaceSize in aten/src/ATen/cuda/CublasHandlePool.cpp).
CUBLAS_HANDLE_BYTES = 2 * 4 * MIB + MIB // 8
CUBLAS_HANDLE_BYTES_HOPPER = 32 * MIB
#: The thread that runs forward has a handle, autograd's thread another.
CUBLAS_HANDLES = 2
CUBLAS_WORKSPACE_BYTES = CUBLAS_HANDLES * CUBLAS_HANDLE_BYTES
#: The caching allocator rounds blocks above 10 MiB up to 2 MiB (c10/cuda/CUDACachingAllocator).
ALLOCATOR_LARGE_BYTES = 10 * MIB
ALLOCATOR_ROUND_BYTES = 2 * MIB


def workspace_bytes(architectures: Iterable[str]) -> float:
    """cuBLAS workspaces of one rank, on the GPU that keeps most."""
    newer = any(a.startswith(("Hopper", "Blackwell")) for a in architectures)
    return float(CUBLAS_HANDLES * (CUBLAS_HANDLE_BYTES_HOPPER if newer else CUBLAS_HANDLE_BYTES))


@dataclass(frozen=True)
class ActivationProfile:
    """Bytes per sample over the instances of a backward pass; arrays [I], last block first.

    ``held`` is what is pinned when instance i's backward begins, ``kept`` what all instances pin
    together, ``inputs`` what of it are inputs of recomputed ones, ``storage_*`` the saved storages
    by size.
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
    """Bytes a parameter of a frozen network."""
    return net.bytes_per_param if net.bytes_per_param is not None else p.param_bytes


def frozen_base(workload: Workload, p: Precision) -> tuple[float, float]:
    """Bytes of adapters' frozen base that lie in the blocks: all of it, and routed experts'."""
    resident = sum(f.resident_numel * frozen_width(f, p) for f in workload.frozen if not f.ops)
    whole = min(sum(b.base_bytes(p.param_bytes) for b in workload.instances()), resident)
    routed = sum(b.routed_base_bytes(p.param_bytes) for b in workload.instances())
    return whole, min(routed, whole)


def frozen_away(
    base: tuple[Array, Array] | tuple[float, float], shards: Array | float, expert_ranks: float
) -> Array:
    """What of a frozen base ZeRO-3 leaves to other ranks, which share it as trained parameters.

    DeepSpeed partitions every parameter, FSDP every one of a wrapped module, trained or not; an
    expert's among the ranks that hold the same experts (``parallel.zero.holdings``).
    """
    whole, routed = base
    of_expert = np.maximum(np.asarray(shards) / expert_ranks, 1.0)
    return (whole - routed) * (1.0 - 1.0 / np.asarray(shards)) + routed * (1.0 - 1.0 / of_expert)


@lru_cache(maxsize=1000)
def activation_profile(workload: Workload, p: Precision, recompute: bool) -> ActivationProfile:
    """What the step pins, instance by instance, for one precision and recompute policy."""
    blocks = list(workload.instances())
    distinct = {id(b): b for b in blocks}
    again = {k: recompute and b.recomputable for k, b in distinct.items()}
    pins = {k: saved_bytes(b.kept_input if again[k] else b.saved, p) for k, b in distinct.items()}
    before = np.cumsum([pins[id(b)] for b in blocks])
    times = Counter(map(id, blocks))
    sizes: dict[float, float] = {}
    for k, block in distinct.items():
        for part in [block.kept_input] if again[k] else [op.saved for op in block.ops]:
            for n in storages(part, p):
                sizes[n] = sizes.get(n, 0.0) + times[k]
    return ActivationProfile(
        held=before[::-1].copy(),
        kept=float(before[-1]),
        inputs=float(sum(pins[id(b)] for b in blocks if again[id(b)])),
        storage_bytes=np.array(list(sizes) or [0.0]),
        storage_count=np.array(list(sizes.values()) or [0.0]),
        transient_frozen=max((f.transient_low * p.low_bytes for f in workload.frozen), default=0.0),
        resident_frozen=sum(f.resident_numel * frozen_width(f, p) for f in workload.frozen)
        + workload.buffers_numel * p.param_bytes,
        frozen_base=frozen_base(workload, p),
        cast_numel=workload.gemm_weights[1],
    )


def stub_bytes(workload: Workload, p: Precision) -> float:
    """What fused accumulation into main gradients hands to autograd in place of a gradient.

    Transformer Engine keeps one tensor of the weights' width for each shape of a weight
    (module/base.py, get_dummy_wgrad); Megatron-LM's own head makes one anew (layers.py).
    """
    return p.main_grads * p.param_bytes * sum(k * n for k, n in workload.layer_weight_shapes)


class PartSizes(NamedTuple):
    """What the memory of a part of a model is made of; arrays [N] or [C].

    Elements as ``Workload`` has them; the others as ``ActivationProfile``, with what the base of
    adapters has in all and in routed experts, and ``stub_bytes``.
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
    """Parts of one model beside each other: ``sizes`` [N], ``moments`` [J, N], storages [S, N].

    Where one has fewer storages than others, the rest of them is counted no times.
    """

    sizes: PartSizes
    moments: Moments
    storage_bytes: Array
    storage_count: Array

    def sizes_at(self, part: NDArray[np.intp]) -> PartSizes:
        """The sizes along an axis of which each configuration has one of the parts."""
        if len(self.storage_bytes[0]) == 1:
            return self.sizes
        return PartSizes(*np.array(self.sizes)[:, part])


@lru_cache(maxsize=1000)
def joined_parts(
    workloads: tuple[Workload, ...], p: Precision, again: bool, ahead: int, root: bool
) -> Parts:
    """What ``memory_of`` looks at, of one part of a model or of several.

    ``again``: layers run forward again in backward; ``ahead``, ``root`` as of ``moments_of``.
    """
    profiles = [activation_profile(w, p, again) for w in workloads]
    ops = [moments_of(w, p, again, ahead, root) for w in workloads]
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
    """Elements of the largest gradient whose norm a rank takes: of its shard no more than that."""
    found: Array = np.minimum(workload.largest_param_numel, workload.trainable_numel / shards)
    return found * (not main_grads)


@dataclass(frozen=True)
class Memory:
    """Bytes by term, arrays [C]. The terms add up to ``device``.

    ``cached`` is what the caching allocator is expected to have reserved: ``reserved``, the holes
    between blocks, and flat buffers of the update, for which freed activations leave no room in
    one piece. Where memory is short it gives most of them back: ``needed`` is ``device`` and
    those that lie in segments with live blocks, and decides what fits.
    """

    terms: dict[str, Array]
    allocated: Array
    reserved: Array
    cached: Array
    device: Array
    needed: Array
    host: Array
    nvme: Array
    moment: NDArray[np.intp]

    def take(self, index: NDArray[np.intp] | slice) -> Memory:
        """Of a part of the axis."""
        terms = {name: term[index] for name, term in self.terms.items()}
        arrays = (getattr(self, f.name)[index] for f in fields(self) if f.name != "terms")
        return Memory(terms, *arrays)


#: What each value of ``Memory.moment`` means.
MOMENTS = ("frozen forward", "backward", "optimizer step", "forward")

#: Terms that come and go within a step: what leaves holes between the allocator's blocks.
LOOSE = ("activations", "working_set", "autocast_weights", "gathered_parameters")


def loose_bytes(terms: Mapping[str, Array] | Mapping[str, float]) -> float:
    """What comes and goes within a step, of the terms of one (or the first) configuration."""
    return sum(float(np.ravel(terms.get(t, 0.0))[0]) for t in LOOSE)


#: Terms that live outside the framework's allocator, and the rounding inside it.
OUTSIDE = ("nccl_buffers", "cuda_context")
ROUNDING = "allocator_rounding"


def memory_of(
    whose: Workload | tuple[Workload, ...],
    strategy: Strategy,
    micro_batch: Array,
    grad_accum: Array,
    n_ranks: Array,
    n_nodes: Array,
    *,
    nvlink: bool,
    cuda_context_bytes: float,
    communicators_bytes: Array | None = None,
    cublas_bytes: float = CUBLAS_WORKSPACE_BYTES,
    in_flight: Array | float = 1.0,
    expert_ranks: float = 1.0,
    holes_frac: float = 0.0,
    stuck_frac: float = 0.0,
    part: NDArray[np.intp] | None = None,
) -> Memory:
    """Peak memory of the fullest rank for every configuration (all inputs [C]).

    ``whose``: a part of the model; where there are several, ``part`` [C] says which it is.

    ``in_flight``: micro-batches whose activations a pipeline stage holds, the one in work
    included. ``holes_frac``: holes between the allocator's blocks, over what is not state;
    ``stuck_frac``: those of them that it cannot give back.
    ``communicators_bytes``: what NCCL holds; None: one communicator of all ranks.
    """
    p = strategy.precision
    parts = joined_parts(
        whose if isinstance(whose, tuple) else (whose,), p, strategy.recompute == "full",
        strategy.prefetch_blocks, strategy.software.root_unit,
    )  # fmt: skip
    part = np.zeros(len(micro_batch), dtype=np.intp) if part is None else part
    workload = acts = parts.sizes_at(part)
    held = PARALLELISMS[strategy.parallelism].holdings(workload, strategy, n_ranks, expert_ranks)
    shards = PARALLELISMS[strategy.parallelism].shard_degree(strategy, n_ranks)
    one = np.ones_like(micro_batch)
    zero = 0.0 * one

    # The op at which most is held; gradients exist in full when they accumulate over
    # micro-steps or in main-grad buffers, else as far as backward has come.
    ops = parts.moments
    early = ((grad_accum > 1) | p.main_grads) & (one > 0)
    grads_whole = held.gradients * one
    # Which op that is depends on little: configurations that agree in it are looked at once.
    # Parameters come from other ranks, or from the host they were offloaded to.
    fetches = (n_ranks > 1) | (strategy.offload.params != "none")
    first, of = distinct_columns(
        (part, micro_batch, early, np.where(early, 0.0, grads_whole), fetches)
    )
    parts_then = part[first]
    some, kinds = distinct_columns((parts_then, micro_batch[first]))
    batches, kind_parts = micro_batch[first][some], parts_then[some]
    grads_then = np.where(early[first], 1.0, ops.grads[:, parts_then])  # [J, first]
    waiting = acts.kept * micro_batch * (in_flight - 1.0)
    stubs = p.main_grads and strategy.zero_stage < 3 and strategy.software.weight_stubs
    # A gradient made in forward, beside one piece of it as a product and in fp32 (Liger-Kernel).
    early_bytes = p.param_bytes + p.low_bytes + FP32_BYTES
    stub = ops.stub * (p.param_bytes * stubs) + ops.early * early_bytes
    fixed = ops.cast * p.cast_bytes + stub
    live = (ops.held + ops.working)[:, kind_parts] * batches + fixed[:, kind_parts]
    total = live[:, kinds] + grads_then * grads_whole[first]
    gathered = np.zeros((len(ops.held), 1))
    if strategy.zero_stage >= 3:
        stays = np.minimum(strategy.software.live_numel, parts.sizes.trainable_numel)
        wide = np.maximum(ops.window, stays) * p.param_bytes + ops.whole * p.grad_bytes
        gathered = wide[:, parts_then] * fetches[first]
        total = total + gathered
    at = total.argmax(axis=0)
    columns = np.arange(len(at))
    grads_backward = grads_then[at, columns][of] * held.gradients
    most_gathered = gathered[at, columns * (gathered.shape[1] > 1)][of]
    at = at[of], part

    state = {
        "parameters": held.parameters,
        "optimizer_state": held.optimizer_state,
        "ema": held.ema,
        "gradient_buckets": zero if strategy.software.late_buckets else held.buckets,
        "replicas": held.replicas,
        "frozen_models": acts.resident_frozen
        - frozen_away((acts.base, acts.routed_base), shards, expert_ranks)
        * (strategy.zero_stage >= 3),
        "gradient_stubs": one * acts.stubs if stubs else zero,
    }
    library, temporaries = strategy.software, zero
    if strategy.step_impl == "foreach" and strategy.offload.optimizer == "none":
        elems = strategy.optimizer.temporary_elems * workload.trainable_numel
        temporaries = one * (FP32_BYTES * elems / shards)
    # An optimizer of fp32 masters takes fp32 gradients, so those of 16 bits are copied first:
    # tensor by tensor where each rank updates everything (apex.amp O2, _process_optimizer.py;
    # Megatron-LM, optimizer.py, _copy_model_grads_to_main_grads) and from main gradients
    # (core/optimizer/distrib_optimizer.py); ZeRO joins its shard's into one flat tensor and copies
    # that (DeepSpeed, runtime/zero/stage_1_and_2.py, step).
    wide = joined = copies = zero
    on_device = strategy.offload.optimizer == "none"
    shards_state = strategy.zero_stage > 0 and on_device
    if strategy.widens_gradients:
        updated = held.optimizer_state / (p.master_bytes + strategy.optimizer.state_bytes)
        wide = updated * FP32_BYTES
        joins = strategy.zero_stage > 0 and library.joins_shard and not p.main_grads
        joined = updated * p.grad_bytes * joins
        copies = wide + np.maximum(joined - temporaries, 0.0)
    at_update = {"working_set": temporaries, "gradient_copies": copies}
    buckets_at_peak = zero
    if library.late_buckets:  # buckets of the update are gone before its copies are made
        reducing = held.buckets > temporaries + copies
        buckets_at_peak = held.buckets * reducing
        at_update = {name: made * ~reducing for name, made in at_update.items()}
    moments = (
        {
            "gradients": np.where(early, held.gradients, 0.0),
            "activations": zero,
            "autocast_weights": zero,
            "gathered_parameters": zero,
            "working_set": acts.transient_frozen * micro_batch,
            "gradient_copies": zero,
        },
        {
            "gradients": grads_backward,
            "activations": ops.held[at] * micro_batch + waiting,
            "autocast_weights": ops.cast[at] * p.cast_bytes,
            "gathered_parameters": most_gathered,
            "working_set": ops.working[at] * micro_batch + stub[at],
            "gradient_copies": zero,
        },
        {
            "gradients": held.gradients,
            "activations": zero,
            "autocast_weights": zero,
            "gathered_parameters": zero,
            **at_update,
        },
    )
    sums = np.array([sum((x for x in m.values() if x is not zero), zero) for m in moments])
    sums[2] += buckets_at_peak
    moment: NDArray[np.intp] = sums.argmax(axis=0)
    terms = dict(state)
    same = moment[0] if (moment == moment[0]).all() else None
    for key in moments[0]:
        if same is not None:
            term = moments[same][key]
            terms[key] = term if term is zero else one * term
        else:
            terms[key] = np.choose(moment, [one * m[key] for m in moments])
    if library.late_buckets:
        at_peak = buckets_at_peak * (moment == 2)
        terms["gradient_buckets"] = terms["gradient_buckets"] + at_peak
    terms["workspace"] = one * cublas_bytes
    allocated = sum(terms.values(), zero)

    size = parts.storage_bytes[:, kind_parts] * batches
    waste = np.where(
        size > ALLOCATOR_LARGE_BYTES, -size % ALLOCATOR_ROUND_BYTES, 0.0
    )  # [storages, kinds]
    wasted = (parts.storage_count[:, kind_parts] * waste).sum(axis=0)
    terms[ROUNDING] = wasted[kinds][of] * (moment == 1) * in_flight
    if communicators_bytes is None:
        world = Group(n_ranks, n_ranks / n_nodes)
        communicators_bytes = communicator_bytes(world, nvlink=nvlink, direct=True)
    terms["nccl_buffers"] = communicators_bytes
    terms["cuda_context"] = one * cuda_context_bytes
    reserved = allocated + terms[ROUNDING]
    # Inputs of recomputed layers are of one size and are freed a layer at a time: no holes.
    kept = strategy.recompute == "full"
    loose = sum(moments[1][k] for k in LOOSE if not (kept and k == "activations"))
    # In one piece each, so in no block that activations leave free, but in the one of the norm.
    own = strategy.zero_stage in (1, 2) and shards_state
    fresh = zero
    if shards_state:
        norm = library.norm_bytes * norm_copy_numel(workload, shards, main_grads=p.main_grads) * own
        inside = np.where(joined <= norm, joined, 0.0)
        fresh = norm + joined - inside
        fresh = fresh + np.where(wide <= norm - inside, 0.0, wide) * (not p.main_grads)
    cached = np.maximum(reserved, sum(state.values(), zero) + cublas_bytes + sums[1] + fresh)
    cached = cached + holes_frac * loose
    device = reserved + terms["nccl_buffers"] + terms["cuda_context"]
    moment = np.where((moment == 1) & ops.forward[at], 3, moment)
    stuck = loose
    if kept:  # what the loss keeps is in large blocks, beside which inputs take freed ones' room
        stuck = loose + np.maximum(ops.held[at] - acts.inputs, 0.0) * micro_batch
    needed = device + stuck_frac * stuck
    return Memory(terms, allocated, reserved, cached, device, needed, held.host, held.nvme, moment)
