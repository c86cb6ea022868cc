"""Memory of the fullest rank: bytes by term, at the moment of the step when most memory is held.

# C configs, J ops. The moments compared: forward of the frozen networks, forward and backward of
# each op (everything saved until then, its working set, the gradients made until then:
# memory.moments), the optimizer step (all gradients, temporaries, no activations), and set-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray, distinct_columns
from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.memory.parts import (
    CUBLAS_WORKSPACE_BYTES,
    Group,
    Parts,
    PartSizes,
    communicator_bytes,
    early_bytes,
    frozen_away,
    hands_stubs,
    parts_of,
)
from simcore.memory.result import MIN_LARGE_BYTES, ROUND_LARGE_BYTES
from simcore.step.parallel import PARALLELISMS, PLACES, Holdings
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload


@dataclass(frozen=True)
class Memory:
    """Bytes by term, arrays [C]. The terms add up to ``device``.

    ``cached``: what the caching allocator is expected to have reserved, i.e. ``reserved`` plus the
    holes between blocks and the flat buffers of the update, which fit in no block that activations
    leave free. Where memory is short the allocator returns most of the holes. ``needed``:
    ``device`` plus the holes in segments with live blocks, which it cannot return; this decides
    what fits.
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
        """The same for a part of the configuration axis."""
        terms = {name: term[index] for name, term in self.terms.items()}
        arrays = (getattr(self, f.name)[index] for f in fields(self) if f.name != "terms")
        return Memory(terms, *arrays)


#: Name of each value of ``Memory.moment``.
MOMENTS = ("frozen forward", "backward", "optimizer step", "set-up", "forward")

#: Terms that are allocated and freed within a step, and so leave holes between blocks.
LOOSE = ("activations", "working_set", "autocast_weights", "gathered_parameters")


def loose_bytes(terms: Mapping[str, Array] | Mapping[str, float]) -> float:
    """Bytes of the ``LOOSE`` terms, of one configuration or of the first one."""
    return sum(float(np.ravel(terms.get(t, 0.0))[0]) for t in LOOSE)


#: Terms outside the framework's allocator.
OUTSIDE = ("nccl_buffers", "cuda_context")
#: Term of the rounding inside the allocator.
ROUNDING = "allocator_rounding"


class RankState(NamedTuple):
    """What a rank holds at any op of a step, and what its update makes; arrays [C].

    ``terms``: bytes by term that stay over the step; ``early``: all gradients exist from the start
    of a step; ``whole_sums``: bytes of unsharded sums that exist from the start instead, and of
    which backward makes shards one after another; ``gradients``: bytes of those that exist at once,
    one tensor's where each is updated as soon as backward has made it; ``fetches``: parameters come
    from other ranks or the host; ``shards``: ranks that share what is sharded. In the update:
    ``temporaries`` of the optimizer; ``wide``: fp32 copies of 16-bit gradients; ``joined``: the
    shard's gradients as one flat tensor; ``buckets``: of a reduction that begins when
    backward has ended.
    """

    terms: dict[str, Array]
    holdings: Holdings
    early: NDArray[np.bool_]
    whole_sums: Array
    gradients: Array
    fetches: NDArray[np.bool_]
    shards: Array
    temporaries: Array
    wide: Array
    joined: Array
    buckets: Array

    @property
    def copies(self) -> Array:
        """Bytes of the update's copies, less what the temporaries take the place of."""
        return self.wide + np.maximum(self.joined - self.temporaries, 0.0)


def widens_after_backward(strategy: Strategy) -> bool:
    """Whether 16-bit gradients are added to their fp32 sums when backward has made them all."""
    sums = strategy.precision.main_grads and strategy.zero_stage < 3
    return sums and strategy.program.gradients.narrow_beside_fp32_sums


def rank_state(
    sizes: PartSizes, strategy: Strategy, grad_accum: Array, n_ranks: Array, expert_ranks: float
) -> RankState:
    """What a rank with a part of a model of these ``sizes`` holds.

    All gradients exist from the start where they accumulate over micro-steps, are main-gradient
    buffers or stay between steps; otherwise they appear as backward proceeds. An optimizer of fp32
    master weights takes fp32 gradients, so 16-bit gradients are copied first: tensor by tensor
    where each rank updates everything (apex.amp O2, _process_optimizer.py; Megatron-LM,
    optimizer.py, _copy_model_grads_to_main_grads) and from main gradients
    (core/optimizer/distrib_optimizer.py). ZeRO joins its shard's gradients into one flat tensor and
    copies that (DeepSpeed, runtime/zero/stage_1_and_2.py, step).
    """
    p, program = strategy.precision, strategy.program
    parallel = PARALLELISMS[strategy.parallelism]
    held = parallel.holdings(sizes, strategy, n_ranks, expert_ranks)
    shards = parallel.shard_degree(strategy, n_ranks)
    one = np.ones_like(grad_accum)
    zero = 0.0 * one
    after_backward = program.gradients.buckets_after_backward
    away = frozen_away((sizes.base, sizes.routed_base), shards, expert_ranks)
    away = away * (strategy.zero_stage >= 3)
    if strategy.offload.params != "none":  # every parameter is offloaded, trained or not
        place = PLACES[strategy.offload.params]
        held = replace(held, **{place: getattr(held, place) + sizes.base - away})
        away = one * sizes.base
    if strategy.optimizer.paged and strategy.offload.optimizer == "none":
        each = strategy.optimizer.state_bytes
        masters = 0.0 if strategy.wide_shards else p.master_bytes
        pages = held.optimizer_state * (each / (each + masters))
        held = replace(held, optimizer_state=held.optimizer_state - pages, host=held.host + pages)
    if strategy.offload.blocks:
        held = replace(held, host=held.host + sizes.swapped_base)
        away = away + sizes.swapped_base
    terms = {
        "parameters": held.parameters,
        "optimizer_state": held.optimizer_state,
        "ema": held.ema,
        "gradient_buckets": zero if after_backward else held.buckets,
        "replicas": held.replicas,
        "frozen_models": sizes.resident_frozen - away,
        "gradient_stubs": one * sizes.stubs if hands_stubs(strategy) else zero,
    }
    temporaries = wide = joined = zero
    if strategy.step_impl == "foreach" and strategy.offload.optimizer == "none":
        elems = strategy.optimizer.temporary_elems * sizes.trainable_numel
        temporaries = one * (FP32_BYTES * elems / shards)
    if strategy.widens_gradients:
        state_bytes = strategy.optimizer.state_bytes * (not strategy.optimizer.paged)
        updated = held.optimizer_state / (p.master_bytes + state_bytes)
        wide = updated * FP32_BYTES
        joins = strategy.zero_stage > 0 and program.gradients.shard_joined_before_widening
        joined = updated * p.grad_bytes * (joins and not p.main_grads)
    kept_whole = program.fsdp.reduces_last_micro_step and strategy.zero_stage >= 2
    gradients = held.gradients * one
    if strategy.updates_in_backward:
        largest = sizes.largest_param_numel / np.maximum(sizes.trainable_numel, 1.0)
        gradients, temporaries = gradients * largest, temporaries * largest
        wide, joined = wide * largest, zero
    return RankState(
        terms=terms,
        holdings=held,
        early=(grad_accum > 1) | strategy.early_grads | strategy.updates_in_backward,
        whole_sums=sizes.trainable_numel * p.grad_bytes * (grad_accum > 1) * one * kept_whole,
        gradients=gradients,
        fetches=(n_ranks > 1) | (strategy.offload.params != "none"),
        shards=shards,
        temporaries=temporaries,
        wide=wide,
        joined=joined,
        buckets=held.buckets if after_backward else zero,
    )


class InStep(NamedTuple):
    """Memory of forward and backward, for every configuration; arrays [C].

    ``op``: index in ``Moments`` of the op with most memory; ``terms``: bytes by term at that op.
    ``rounding``: bytes that the allocator rounds a micro-batch's saved tensors up by. ``streams``:
    sum of what each of FSDP's streams (compute, gather, reduction) allocates at its own peak.
    ``loose``: most bytes that come and go within the step and leave holes between blocks, at any
    op; ``stuck``: those that leave holes in segments with live blocks.
    """

    op: NDArray[np.intp]
    terms: dict[str, Array]
    rounding: Array
    streams: Array
    loose: Array
    stuck: Array


def _in_step(
    parts: Parts,
    strategy: Strategy,
    part: NDArray[np.intp],
    micro_batch: Array,
    state: RankState,
) -> InStep:
    """The largest memory of forward and backward.

    Holes are of the op with most tensors that come and go, which need not be the op with most
    memory: segments with holes remain until the step's end.
    """
    p, ops = strategy.precision, parts.moments
    gradients, unsent = state.gradients * np.ones_like(micro_batch), state.whole_sums
    # The op depends on few values: configurations that agree in these are evaluated once.
    early = state.early & (unsent == 0.0)
    first, of = distinct_columns(
        (part, micro_batch, early, np.where(early, 0.0, gradients), unsent, state.fetches)
    )
    parts_then = part[first]
    some, kinds = distinct_columns((parts_then, micro_batch[first]))
    batches, kind_parts = micro_batch[first][some], parts_then[some]
    grads_then = np.where(early[first], 1.0, ops.grads[:, parts_then])  # [J, first]
    stub = ops.stub * (p.param_bytes * hands_stubs(strategy)) + ops.early * early_bytes(p)
    fixed = ops.cast * p.cast_bytes + stub
    live = (ops.held + ops.working)[:, kind_parts] * batches + fixed[:, kind_parts]
    staying = (ops.staying[:, kind_parts] * batches)[:, kinds] * state.fetches[first]
    sums = (1.0 - ops.grads[:, parts_then]) * unsent[first]
    loose = stuck = live
    if parts.recomputed.any():
        # Inputs of recomputed layers have equal sizes and are freed a layer at a time: no holes.
        # Large blocks hold the loss's tensors, next to which inputs take freed blocks.
        again = parts.recomputed[kind_parts]
        working = ops.working[:, kind_parts] * batches + fixed[:, kind_parts]
        more = np.maximum(ops.held[:, kind_parts] - parts.sizes_at(kind_parts).inputs, 0.0)
        loose = np.where(again, working, live)
        stuck = np.where(again, working + more * batches, live)
    total = live[:, kinds] + staying + grads_then * gradients[first] + sums
    gathered = np.zeros((len(ops.held), 1))
    if strategy.zero_stage >= 3:
        numel = parts.sizes.trainable_numel + parts.sizes.base / p.param_bytes
        stays = np.minimum(strategy.program.zero3.live_numel, numel)
        grad_bytes = p.grad_bytes + p.param_bytes * strategy.program.fsdp.flat_copies
        wide = np.maximum(ops.window, stays) * p.param_bytes + ops.whole * grad_bytes
        gathered = wide[:, parts_then] * state.fetches[first]
        total = total + gathered
    fullest = total.argmax(axis=0)
    columns, op = np.arange(len(fullest)), fullest[of]
    at = op, part
    made = grads_then[fullest, columns][of] * gradients + sums[fullest, columns][of]
    size = parts.storage_bytes[:, kind_parts] * batches
    waste = np.where(size > MIN_LARGE_BYTES, -size % ROUND_LARGE_BYTES, 0.0)
    wasted = (parts.storage_count[:, kind_parts] * waste).sum(axis=0)  # [kinds]
    terms = {
        "gradients": made,
        "activations": ops.held[at] * micro_batch + staying[fullest, columns][of],
        "autocast_weights": ops.cast[at] * p.cast_bytes,
        "gathered_parameters": gathered[fullest, columns * (gathered.shape[1] > 1)][of],
        "working_set": ops.working[at] * micro_batch + stub[at],
    }
    streams = (live[:, kinds] + staying).max(axis=0) + gathered.max(axis=0)
    streams = streams + np.maximum(gradients[first], unsent[first])
    # gradients that stay, half of it, lie between what layers work with and free
    come_and_go = (of_op[:, kinds] + 0.5 * staying + gathered for of_op in (loose, stuck))
    holes = [of_op.max(axis=0)[of] for of_op in come_and_go]
    return InStep(op, terms, wasted[kinds][of], streams[of], *holes)


def _flat_buffer_bytes(state: RankState, strategy: Strategy, sizes: PartSizes) -> Array:
    """Bytes of the update's flat buffers, each too large for a block that activations leave free.

    The norm's is reused where it is large enough. Another is a gradient's copy for its fp32 sum.
    """
    wide, joined, main_grads = state.wide, state.joined, strategy.precision.main_grads
    if widens_after_backward(strategy):
        return 1.0 * sizes.largest_param_numel * FP32_BYTES
    if strategy.zero_stage == 0 or strategy.offload.optimizer != "none":
        return 0.0 * wide
    # of the largest gradient whose norm a rank computes, at most those of its shard
    numel = np.minimum(sizes.largest_param_numel, sizes.trainable_numel / state.shards)
    has_norm = strategy.zero_stage < 3 and not main_grads
    norm = strategy.program.gradients.norm_copy_bytes * numel * has_norm
    inside = np.where(joined <= norm, joined, 0.0)
    alone = np.where(wide <= norm - inside, 0.0, wide) * (not main_grads)
    found: Array = norm + joined - inside + alone
    return found


def _moments(
    sizes: PartSizes, state: RankState, step: InStep, micro_batch: Array, strategy: Strategy
) -> tuple[dict[str, Array], ...]:
    """Bytes by term that exist at the first four of ``MOMENTS`` beside ``RankState.terms``.

    With one micro-batch in flight. In set-up a model that is whole before it is sharded exists
    instead of these terms.
    """
    copies = state.copies
    # The update's buckets are freed before its copies are made: one or the other is the peak.
    reducing = state.buckets > state.temporaries + copies
    frozen = {
        "gradients": np.where(state.early, np.maximum(state.gradients, state.whole_sums), 0.0),
        "working_set": sizes.transient_frozen * micro_batch,
    }
    update = {
        "gradients": state.gradients,
        "working_set": state.temporaries * ~reducing,
        "gradient_copies": copies * ~reducing,
        "gradient_buckets": state.buckets * reducing,
    }
    backward = dict(step.terms)
    if widens_after_backward(strategy):
        # all gradients exist, and nothing of this micro-batch beside the copy of one of them
        copy = FP32_BYTES * sizes.largest_param_numel
        then = {"gradients": state.gradients, "working_set": copy}
        later = sum(then.values()) > sum(backward.values())
        backward = {k: np.where(later, then.get(k, 0.0), t) for k, t in backward.items()}
    set_up = {}
    if strategy.zero_stage >= 3 and strategy.program.zero3.whole_at_first:
        whole = {
            "parameters": sizes.trainable_numel * strategy.precision.param_bytes,
            "frozen_models": sizes.resident_frozen,
        }
        set_up = {name: whole.get(name, 0.0) - term for name, term in state.terms.items()}
    return frozen, backward, update, set_up


class Peak(NamedTuple):
    """What a rank's peak follows from, whatever the number of micro-batches in flight; arrays [C].

    ``stays``: bytes that the device holds in every step. ``frozen``, ``backward``, ``update``,
    ``set_up``: what is added at the first four of ``MOMENTS``, with one micro-batch in flight; each
    further one adds ``waiting``. ``rounding``: bytes that the allocator rounds a micro-batch's
    tensors up by. ``stuck``: holes in segments with live blocks, to which each further micro-batch
    adds ``waiting_stuck``.
    """

    stays: Array
    frozen: Array
    backward: Array
    update: Array
    set_up: Array
    waiting: Array
    rounding: Array
    stuck: Array
    waiting_stuck: Array

    def moment(self, in_flight: Array | float) -> NDArray[np.intp]:
        """The first index of ``MOMENTS`` with most memory [C]."""
        backward = self.backward + self.waiting * (in_flight - 1.0)
        at = np.array([self.frozen, backward, self.update, self.set_up])
        found: NDArray[np.intp] = at.argmax(axis=0)
        return found

    def device(self, in_flight: Array | float) -> Array:
        """``Memory.device`` [C]."""
        backward = self.backward + self.waiting * (in_flight - 1.0)
        others = np.maximum(np.maximum(self.frozen, self.update), self.set_up)
        most = np.maximum(others, backward)
        rounds = (backward > self.frozen) & (backward >= others)
        found: Array = self.stays + most + self.rounding * rounds * in_flight
        return found

    def beyond(self, in_flight: Array | float) -> Array:
        """What ``Memory.needed`` is above ``Memory.device`` [C]."""
        return self.stuck + self.waiting_stuck * (in_flight - 1.0)


class Found(NamedTuple):
    """A rank's peak, and what it was computed from; ``beside``: bytes by term of no tensor."""

    parts: Parts
    part: NDArray[np.intp]
    sizes: PartSizes
    state: RankState
    step: InStep
    moments: tuple[dict[str, Array], ...]
    beside: dict[str, Array]
    peak: Peak


@dataclass(frozen=True)
class RankJob:
    """What ranks compute and with how many others, for every configuration (arrays [C]).

    ``whose``: a part of the model, or several, of which ``part`` gives each configuration's.
    ``recomputed``: whether the layers of each part are checkpointed; empty: as the strategy says.
    ``communicators_bytes``: NCCL's buffers; None stands for one communicator of all ranks.
    ``stuck_frac``: holes between the allocator's blocks that it cannot return to the device, over
    what comes and goes in a step; 0: there are none.
    """

    whose: Workload | tuple[Workload, ...]
    strategy: Strategy
    micro_batch: Array
    grad_accum: Array
    n_ranks: Array
    n_nodes: Array
    nvlink: bool
    cuda_context_bytes: float
    communicators_bytes: Array | None = None
    cublas_bytes: Array | float = CUBLAS_WORKSPACE_BYTES
    expert_ranks: float = 1.0
    stuck_frac: Array | float = 0.0
    part: NDArray[np.intp] | None = None
    recomputed: tuple[bool, ...] = ()


def peak_of(job: RankJob) -> Found:
    """The peak of the fullest rank for every configuration."""
    strategy, micro_batch = job.strategy, job.micro_batch
    one = np.ones_like(micro_batch)
    zero = 0.0 * one
    whose = job.whose if isinstance(job.whose, tuple) else (job.whose,)
    parts = parts_of(whose, strategy, job.recomputed)
    part = np.zeros(len(micro_batch), dtype=np.intp) if job.part is None else job.part
    communicators_bytes = job.communicators_bytes
    if communicators_bytes is None:
        world = Group(job.n_ranks, job.n_ranks / job.n_nodes)
        communicators_bytes = communicator_bytes(world, nvlink=job.nvlink, direct=True)
    beside = {
        "workspace": one * job.cublas_bytes,
        "nccl_buffers": communicators_bytes,
        "cuda_context": one * job.cuda_context_bytes,
    }
    sizes = parts.sizes_at(part)
    state = rank_state(sizes, strategy, job.grad_accum * one, job.n_ranks, job.expert_ranks)
    step = _in_step(parts, strategy, part, micro_batch, state)
    moments = _moments(sizes, state, step, micro_batch, strategy)
    waiting = sizes.kept * micro_batch
    frozen, backward, update, set_up = (sum(m.values(), zero) for m in moments)
    peak = Peak(
        stays=sum(state.terms.values(), zero) + sum(beside.values()),
        frozen=frozen,
        backward=backward,
        update=update,
        set_up=set_up,
        waiting=waiting,
        rounding=step.rounding,
        stuck=job.stuck_frac * step.stuck + (job.stuck_frac > 0) * sizes.rests * micro_batch,
        waiting_stuck=job.stuck_frac * waiting * ~parts.recomputed[part],
    )
    return Found(parts, part, sizes, state, step, moments, beside, peak)


def memory_of(job: RankJob, *, in_flight: Array | float = 1.0, holes_frac: float = 0.0) -> Memory:
    """Peak memory of the fullest rank for every configuration.

    ``in_flight``: micro-batches whose activations a pipeline stage holds [C], including the one
    being computed. ``holes_frac``: holes between the allocator's blocks over what comes and goes in
    a step.
    """
    parts, part, sizes, state, step, moments, beside, peak = peak_of(job)
    strategy, one = job.strategy, np.ones_like(job.micro_batch)
    zero, moment, waiting = 0.0 * one, peak.moment(in_flight), peak.waiting * (in_flight - 1.0)
    moments[1]["activations"] = moments[1]["activations"] + waiting
    terms = {name: term * one for name, term in state.terms.items()}
    for name in dict.fromkeys(key for m in moments for key in m):
        there = np.array([m.get(name, zero) * one for m in moments])
        terms[name] = terms.get(name, zero) + there[moment, np.arange(len(moment))]
    terms["workspace"] = beside["workspace"]
    allocated = sum(terms.values(), zero)
    terms[ROUNDING] = step.rounding * (moment == 1) * in_flight
    reserved = allocated + terms[ROUNDING]
    terms |= beside
    in_step = sum(step.terms.values(), waiting)
    waiting = waiting * ~parts.recomputed[part]  # which leave holes
    fresh = _flat_buffer_bytes(state, strategy, sizes)
    # Blocks belong to the stream that allocated them, so each stream's own peak counts.
    flat = sizes.largest_block_numel * strategy.precision.param_bytes  # a unit is copied out of it
    streams = step.streams + flat * strategy.program.fsdp.flat_copies
    in_step = np.where(strategy.reduces_apart & (job.n_ranks > 1), streams, in_step)
    stays = sum(state.terms.values(), zero)
    cached = np.maximum(reserved, stays + job.cublas_bytes + in_step + fresh)
    cached = cached + holes_frac * (step.loose + waiting)
    device = peak.device(in_flight)
    needed = device + peak.beyond(in_flight)
    in_forward = parts.moments.forward[step.op, part] > 0
    moment = np.where((moment == 1) & in_forward, len(MOMENTS) - 1, moment)
    return Memory(
        terms,
        allocated,
        reserved,
        cached,
        device,
        needed,
        state.holdings.host,
        state.holdings.nvme,
        moment,
    )
