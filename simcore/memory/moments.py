"""Which tensors of a block live when, and the moments of a step at which memory may peak.

One walk over the ops of a step says which tensors begin and end at each op (``tensors_of``).
From it come the closed form of the peak (``moments_of``) and the events that are replayed through
the allocator (``memory.events``). The ticks of a block of n ops are 0 to n - 1 in forward and n to
2 n - 1 in backward, which runs the last op first. A tick has four parts: tensors that the op works
on begin; those that it is done with end; the gradients of its parameters begin; what forward saved
for it ends.

The closed form and the events differ on purpose in these points:

- The closed form counts everything of a tick at once, so that its peak is the higher one, by at
  most an op's operands; the events have the four parts in their order.
- The closed form knows parameters that DeepSpeed leaves gathered (``live_numel``) and micro-batches
  that wait in a pipeline; the events are of one micro-batch of a rank whose model is not divided.
- Sizes of the closed form are exact; the events' are rounded to whole bytes.
- The events' first update makes the optimizer's state among freed activations, as PyTorch does.

# n ops of a block, T tensors; J moments, I block instances
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same, dataclass
from simcore.step.transients import backward_bytes, output_bytes, saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Op, Workload, weight_grad_numel

Array = NDArray[np.float64]

#: Kinds of tensors, in the order of the columns of ``held``: activations that forward saves for
#: backward and other results and operands (bytes per sample); and in elements: gradients of
#: parameters, 16-bit copies of weights, stand-ins for gradients outside the layers, gradients that
#: forward makes.
SAVED, WORKING, GRADIENT, COPY, STUB, EARLY = range(6)
#: Memory term of each kind.
TERMS = ("activations", "working_set", "gradients", "autocast_weights", "working_set",
         "working_set")  # fmt: skip


class Tensor(NamedTuple):
    """A tensor that exists from tick ``begin`` to tick ``end`` of its block, both included.

    ``size``: in the unit of its ``kind``; ``op``: name of the op, or of the parameter, it is for;
    ``late``: it ends in the last part of its last tick, not in the second.
    """

    kind: int
    size: float
    op: str
    begin: int
    end: int
    late: bool = False


def gradients_after(block: Block) -> tuple[int, ...]:
    """For each op, how many parameter tensors, from the last, have a gradient after its backward.

    Tensors are assigned to ops in definition order, in proportion to the elements that each op's
    kernels move whatever the batch. Where no op has any, all gradients appear after the block.
    """
    weights = [max((k.weight for k in (*op.fwd, *op.bwd)), default=0.0) for op in block.ops]
    total, numel = sum(weights), max(block.numel, 1)
    if not total:
        return (0,) * len(block.ops)
    ends = np.cumsum([float(q.numel) for q in block.params]) / numel
    before = np.cumsum(weights)[:-1] / total  # share of the ops before the second, third ...
    counts = (ends > before[:, None] * (1 + 1e-9)).sum(axis=1)
    return (len(block.params), *counts.tolist())


def shared_with_input(block: Block, p: Precision) -> float:
    """Bytes of the kept input that a recomputed block would otherwise count as saved again."""
    kept = saved_bytes(block.kept_input, p)
    saving = (pieces for op in block.ops if (pieces := storages(op.saved, p)))
    return kept if kept in next(saving, ()) else 0.0


def takes_input(op: Op, before: float, pieces: Sequence[float]) -> bool:
    """Whether a saved storage (``pieces``) is the op's input, a tensor of ``before`` bytes.

    A storage as large as the input or the output is taken to be that tensor; where both have its
    size it is the input, but for softmax and the loss, which save their result.
    """
    saves_result = op.saves_result or (bool(op.fwd) and op.fwd[-1].kind == "softmax")
    return bool(before) and before in pieces and (op.in_place or op.sink or not saves_result)


def _forward(block: Block, p: Precision, pins: bool, shared: float) -> list[Tensor]:
    """Tensors that begin in forward; ``carried`` is the output that no op has saved so far."""
    made: list[Tensor] = []
    n, carried = len(block.ops), -1
    for j, op in enumerate(block.ops):
        back = 2 * n - 1 - j
        made.append(Tensor(COPY, op.gemm_weight, op.name, j, back, late=True))
        made.append(Tensor(EARLY, op.grad_early, op.name, j, j))
        made.append(Tensor(WORKING, saved_bytes(op.beside, p), f"{op.name} beside", j, j))
        pieces = list(storages(op.saved, p)) if pins else []
        out = 0.0 if op.in_place else output_bytes(op, p)
        before = made[carried].size if carried >= 0 else 0.0
        if takes_input(op, before, pieces):
            pieces.remove(before)
            made[carried] = made[carried]._replace(kind=SAVED, end=back, late=True)
            carried = -1
        saves_output = out in pieces
        if shared in pieces:  # exists already: the block's input
            pieces.remove(shared)
            shared = 0.0
        made += [Tensor(SAVED, size, op.name, j, back, late=True) for size in pieces]
        if out and carried >= 0:
            made[carried] = made[carried]._replace(end=j)
        if out:
            carried = -1
        if out and not saves_output:
            carried = len(made)
            made.append(Tensor(WORKING, out, op.name, j, n - 1))
    return made


def _backward(block: Block, p: Precision) -> list[Tensor]:
    """Tensors that begin in backward; ``incoming`` is the gradient that the op before made."""
    n, incoming, last = len(block.ops), -1, 2 * len(block.ops) - 1
    made = [Tensor(WORKING, size, "recomputed", n, last) for size in storages(block.recomputed, p)]
    counts, params = gradients_after(block), block.params[::-1]
    done = 0
    for j in range(n - 1, -1, -1):
        op, tick = block.ops[j], last - j
        held, handed_on = backward_bytes(op, p)
        both = 2 * saved_bytes(op.beside, p)
        made.append(Tensor(WORKING, both, f"{op.name} beside backward", tick, tick))
        if held:
            waits = made[incoming].size if incoming >= 0 else 0.0
            summed = waits > held - handed_on  # a gradient of several branches, freed before
            if incoming >= 0:
                made[incoming] = made[incoming]._replace(end=tick - summed, late=summed)
            scratch = held - handed_on - waits * (not summed)
            made.append(Tensor(WORKING, scratch, f"{op.name} backward", tick, tick))
            incoming = len(made)
            made.append(Tensor(WORKING, handed_on, f"{op.name} gradient", tick, last))
        if not block.recomputable:
            made.append(Tensor(STUB, weight_grad_numel(op), op.name, tick, tick))
        made += [Tensor(GRADIENT, q.numel, q.name, tick, 2 * n) for q in params[done : counts[j]]]
        done = max(done, counts[j])
    return made + [Tensor(GRADIENT, q.numel, q.name, 2 * n, 2 * n) for q in params[done:]]


@lru_cache(maxsize=2000)
def tensors_of(block: Same[Block], p: Precision, *, pins: bool, again: bool) -> tuple[Tensor, ...]:
    """Tensors of a block's forward and backward in the order in which they begin.

    ``pins``: its ops save tensors for backward, else it is a checkpoint, of which only the forward
    is meaningful. ``again``: the forward runs a second time, with the block's input kept: what it
    saves is part of the working set. Cached: stages and jobs of one model have blocks in common.
    """
    shared = shared_with_input(block.it, p) if again else 0.0
    made = _forward(block.it, p, pins, shared)
    made += _backward(block.it, p) if pins else []
    if again:
        made = [t._replace(kind=WORKING) if t.kind == SAVED else t for t in made]
    return tuple(t for t in made if t.size)


class Tick(NamedTuple):
    """What begins and ends at a tick, in this order; indices into ``tensors_of`` the block."""

    begin: list[int]
    done: list[int]
    gradients: list[int]
    late: list[int]


@lru_cache(maxsize=2000)
def ticks_of(block: Same[Block], p: Precision, *, pins: bool, again: bool) -> tuple[Tick, ...]:
    """The walk over a block: its 2 n ticks, and one more for gradients that no op has made.

    Gradients end with the optimizer step, outside the walk.
    """
    ticks = tuple(Tick([], [], [], []) for _ in range(2 * len(block.it.ops) + 1))
    for k, t in enumerate(tensors_of(block, p, pins=pins, again=again)):
        if t.kind == GRADIENT:
            ticks[t.begin].gradients.append(k)
        else:
            ticks[t.begin].begin.append(k)
            (ticks[t.end].late if t.late else ticks[t.end].done).append(k)
    return ticks


@lru_cache(maxsize=2000)
def held_at_ticks(block: Same[Block], p: Precision, *, pins: bool, again: bool) -> Array:
    """Amount of each kind of tensor of a block that exists at each tick [2 n, kinds]."""
    tensors = tensors_of(block, p, pins=pins, again=again)
    held = np.zeros((2 * len(block.it.ops), len(TERMS)))
    for t in tensors:
        held[t.begin : t.end + 1, t.kind] += t.size
    return held


@dataclass(frozen=True)
class Moments:
    """Candidates for the memory peak; arrays [J], or [J, workloads] of several workloads.

    Bytes at a moment = batch (held + working + staying) + gradients x grads + 16-bit width x cast +
    gathered parameters + unsharded gradients of the current block + a gradient made in forward. A
    moment that another one reaches or exceeds in every coefficient is never the peak, and is
    dropped.

    ``held``, ``working``, ``staying``: bytes per sample, the last of what stays until backward ends
    on several ranks (``Fsdp.holds_checkpoint_inputs``). ``grads``: fraction of all gradients that
    exist. The others are elements: ``cast``: 16-bit copies; ``stub``: gradient of the current op
    outside the layers; ``early``: a gradient made in forward; ``window``: parameters of the blocks
    gathered by ZeRO-3; ``whole``: gradients of the current block. ``forward``: 1 where the moment
    is in forward, else 0.
    """

    held: Array
    working: Array
    grads: Array
    cast: Array
    stub: Array
    early: Array
    window: Array
    whole: Array
    forward: Array
    staying: Array


#: Columns of arrays of moments.
_HELD, _WORKING, _GRADS, _CAST, _STUB, _EARLY_MADE, _WINDOW, _WHOLE, _FORWARD, _STAYING = range(10)


class Gathering(NamedTuple):
    """What ZeRO-3 gathers for each block instance, and what it has before it reduces; elements.

    ``parameters`` [I]: gathered for the instance and for up to ``ahead`` instances before it;
    ``step``: gathered for the whole step; ``gradients`` [I]: whole, in the instance's backward;
    ``queued``: of other instances, wait for their reduction at most.
    """

    parameters: Array
    step: float
    gradients: Array
    ahead: int
    queued: float

    def windows(self, direction: int) -> Array:
        """Parameters of each instance and of those fetched ahead of it [I].

        ``direction``: 1 in forward, -1 in backward.
        """
        found = self.parameters[::direction].copy()
        for k in range(1, min(self.ahead, len(found) - 1) + 1):
            found[:-k] += self.parameters[::direction][k:]
        return self.step + found[::direction]

    def whole_gradients(self) -> Array:
        """Whole gradients in each instance's backward, with those that wait [I].

        The reductions that have waited longest are awaited first (``Fsdp.queued_numel``).
        """
        if not self.queued:
            return self.gradients
        before = np.cumsum(self.gradients)  # of each instance and of those before it
        waiting = np.searchsorted(before, before + self.queued, side="right") - 1
        return self.gradients + before[waiting] - before


def gathering_of(
    workload: Workload, p: Precision, ahead: int, root: bool, tensors: int, queued: float = 0.0
) -> Gathering:
    """What ZeRO-3 gathers at a time.

    ``ahead``: blocks fetched ahead. ``root``: parameters outside the repeated layers are gathered
    together, for the whole step. ``tensors``: a block's parameters are gathered one by one, with so
    many held at a time (0: all of the block). ``queued``: see ``Gathering``. The frozen base of
    adapters is counted in elements of the weights' width.
    """
    order = list(workload.order)
    numel = np.array([float(b.numel) for b in workload.blocks])[order]
    base = np.array([b.base_bytes(p.base_bytes) / p.param_bytes for b in workload.blocks])[order]
    if tensors:
        largest = np.array([float(b.largest_param_numel) for b in workload.blocks])[order]
        whole, gradients, ahead = base + tensors * largest, largest, 0
    else:
        whole, gradients = base + numel, numel
    apart = np.array([not root or workload.blocks[b].recomputable for b in order])
    return Gathering(whole * apart, float(whole[~apart].sum()), gradients, ahead, queued)


@lru_cache(maxsize=4000)
def _ticks(block: Same[Block], p: Precision, *, pins: bool, again: bool, backward: bool) -> Array:
    """Candidate moments of one pass of a block, relative to its begin [J, kinds of tensors]."""
    held = held_at_ticks(block, p, pins=pins, again=again)
    half = len(held) // 2
    held = held[half:] if backward else held[:half]
    if not len(held):
        return np.zeros((1, held.shape[1]))
    return held[_undominated(_compared(held))]


def _compared(table: Array) -> Array:
    """The columns of moments (as in ``Moments``) that decide which one is the peak."""
    held = table[:, SAVED] + table[:, WORKING]
    return np.column_stack([held, table[:, WORKING + 1 : 8], table[:, 9:]])


def _corners(bases: Array, kinds: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each instance may have its block's peak [N, I]: where the step to the next changes.

    Bytes are convex in the columns, so on a straight line one of the ends has most. ``kinds``
    [N, I]: the block of each instance; another one than all of them after a part's last instance.
    """
    alike = np.argsort(kinds, axis=1, kind="stable")  # the instances of a block one after another
    block = np.take_along_axis(kinds, alike, axis=1)
    table = np.take_along_axis(bases, alike[:, :, None], axis=1)
    turns = np.ones(kinds.shape, dtype=bool)
    turns[:, 1:-1] = (np.diff(table, 2, axis=1) != 0.0).any(axis=2)
    turns[:, 1:-1] |= block[:, :-2] != block[:, 2:]
    found = np.empty(kinds.shape, dtype=bool)
    np.put_along_axis(found, alike, turns, axis=1)
    return found


def _before(sizes: Array) -> Array:
    """For each instance, the sum of the sizes before it [N, I]."""
    found = np.zeros(sizes.shape)
    np.cumsum(sizes[:, :-1], axis=1, out=found[:, 1:])
    return found


def _after(sizes: Array) -> Array:
    """For each instance, the sum of the sizes after it [N, I]."""
    return np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1] - sizes


@lru_cache(maxsize=2000)
def _across(block: Same[Block], p: Precision) -> tuple[float, float, float]:
    """Bytes per sample that a block saves, those with recompute, and elements of its copies."""
    saved = saved_bytes(block.it.saved, p), saved_bytes(block.it.kept_input, p)
    return (*saved, sum(op.gemm_weight for op in block.it.ops))


def _staying(inputs: Array) -> Array:
    """Bytes per sample that stay at each instance's backward where checkpoints' inputs do [N, I].

    ``inputs``: of each instance's checkpoint, 0 without one. Of all later ones the input stays, and
    its gradient too, but for that of the next one, which is in work.
    """
    found = _after(inputs)
    found[:, :-1] += found[:, 1:].copy()
    return found


class Walked(NamedTuple):
    """A part of a model whose moments are looked for.

    ``recompute``: its layers are checkpointed. ``ahead``: see ``gathering_of``. ``stay``: inputs of
    checkpoints and their gradients stay until backward ends (``Fsdp.holds_checkpoint_inputs``).
    """

    workload: Workload
    recompute: bool
    ahead: int
    stay: bool = False

    @property
    def redone(self) -> list[bool]:
        """Whether each block is recomputed."""
        return [self.recompute and b.recomputable for b in self.workload.blocks]


def candidates(
    walks: Sequence[Walked], p: Precision, root: bool = False, tensors: int = 0,
    queued: float = 0.0,
) -> list[Array]:  # fmt: skip
    """Moments of all instances, forward's and then backward's from the last; rows of ``Moments``.

    For each part; only instances that can have the peak are included (``_corners``). ``root``,
    ``tensors``, ``queued``: see ``gathering_of``.
    """
    # K blocks of all parts, and one of nothing after the last instance of shorter parts
    lengths = [len(w.workload.order) for w in walks]
    *firsts, n_kinds = accumulate((len(w.workload.blocks) for w in walks), initial=0)
    kinds = np.full((len(walks), max(lengths)), n_kinds)
    for row, w, first in zip(kinds, walks, firsts, strict=True):
        row[: len(w.workload.order)] = np.array(w.workload.order) + first
    sizes = [
        (*_across(Same(b), p), float(b.numel), again)
        for w in walks
        for b, again in zip(w.workload.blocks, w.redone, strict=True)
    ]
    saved, kept, copies, numels, again = np.moveaxis(np.array([*sizes, (0.0,) * 5])[kinds], 2, 0)
    forward, backward = bases = np.zeros((2, *kinds.shape, len(fields(Moments))))
    bases[..., _HELD] = _before(np.where(again, kept, saved)) + kept * again
    forward[..., _CAST] = _before(copies)
    forward[..., _FORWARD] = 1.0
    # autocast drops its copies when forward ends; backward holds those that were saved
    backward[..., _GRADS] = _after(numels)
    backward[..., _CAST] = _before(copies * (1.0 - again))
    for n, (w, length) in enumerate(zip(walks, lengths, strict=True)):
        gathers = gathering_of(w.workload, p, w.ahead, root, tensors, queued)
        forward[n, :length, _WINDOW] = gathers.windows(1)
        backward[n, :length, _WINDOW] = gathers.windows(-1)
        backward[n, :length, _WHOLE] = gathers.whole_gradients()
    stay = np.array([[w.stay] for w in walks])
    if stay.any():
        backward[..., _STAYING] = _staying(kept * again) * stay
    nothing = np.zeros((0, len(TERMS)))
    passes = [
        (
            _ticks(Same(b), p, pins=not again, again=False, backward=False),
            _ticks(Same(b), p, pins=True, again=True, backward=False) if again else nothing,
            _ticks(Same(b), p, pins=True, again=again, backward=True),
        )
        for w in walks
        for b, again in zip(w.workload.blocks, w.redone, strict=True)
    ]
    return _in_order(bases, kinds, passes)


def _in_order(
    bases: Array, kinds: NDArray[np.intp], passes: Sequence[Sequence[Array]]
) -> list[Array]:
    """The moments of each part in the order of the step.

    ``bases`` [2, N, I, columns]: what an instance begins with, in forward and backward; ``passes``:
    candidate moments of each block's forward, of the one that runs again, and of its backward.
    """
    lengths = np.array([[len(ticks) for ticks in of_pass] for of_pass in zip(*passes, strict=True)])
    begins = (np.cumsum(lengths) - lengths.ravel()).reshape(lengths.shape)
    ticks = np.concatenate(
        [of_block for of_pass in zip(*passes, strict=True) for of_block in of_pass]
    )
    early, late = (np.nonzero(_corners(each, kinds) & (kinds < len(passes))) for each in bases)
    n = kinds.shape[1]
    later = n + 2 * (n - 1 - late[1])  # two passes, from the last instance to the first
    rows = []
    for direction, which, at, place in (
        (0, 0, early, early[1]), (1, 1, late, later), (1, 2, late, later + 1),
    ):  # fmt: skip
        base = np.ravel_multi_index(at, kinds.shape) + direction * kinds.size
        rows.append((at[0], place, base, begins[which][kinds[at]], lengths[which][kinds[at]]))
    part, place, base, begin, length = np.concatenate(rows, axis=1)
    order = np.lexsort((place, part))
    base, begin, length = base[order], begin[order], length[order]
    ends = np.cumsum(length)
    found = bases.reshape(2 * kinds.size, -1)[np.repeat(base, length)]
    found[:, : ticks.shape[1]] += ticks[
        np.repeat(begin - (ends - length), length) + np.arange(ends[-1])
    ]
    last = np.searchsorted(part[order], np.arange(1, len(kinds)))  # of the part before
    return np.split(found, ends[last - 1])


def moments_of(
    walks: Sequence[Walked], p: Precision, root: bool, tensors: int, queued: float
) -> list[Moments]:
    """The moments that can be the peak for some batch, number of ranks and strategy, of each part.

    Parameters as in ``candidates``.
    """
    found = []
    for w, table in zip(walks, candidates(walks, p, root, tensors, queued), strict=True):
        table[:, _GRADS] /= max(float(w.workload.trainable_numel), 1.0)
        few = table[_undominated(_compared(table))]
        found.append(Moments(*(np.ascontiguousarray(column) for column in few.T)))
    return found


#: Up to this many rows are compared all at once.
_AT_ONCE = 160
#: Whether a row comes before another one [by, which].
_EARLIER = np.triu(np.ones((_AT_ONCE, _AT_ONCE), dtype=bool), 1)


def _undominated(rows: Array) -> NDArray[np.intp]:
    """Indices of rows: for each row one of them reaches or exceeds it in every column."""
    if len(rows) == 1:
        return np.zeros(1, dtype=np.intp)
    left = np.argsort(-rows[:, 0], kind="stable")
    columns = np.ascontiguousarray(rows[left].T)
    if len(left) <= _AT_ONCE:
        reached = (columns[:, :, None] >= columns[:, None, :]).all(axis=0)  # [by, which]
        earlier = _EARLIER[: len(left), : len(left)]
        return left[~(reached & earlier).any(axis=0)]
    kept: list[np.intp] = []
    while len(left):  # no row exceeds the first; rows that it reaches or exceeds are dropped
        kept.append(left[0])
        beyond = (columns > columns[:, :1]).any(axis=0)
        left, columns = left[beyond], columns[:, beyond]
    return np.array(kept)
