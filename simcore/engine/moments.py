"""The moments of a step at which memory may peak, op by op, as numbers to scale and add.

# J moments. Bytes at a moment = batch (held + working) + gradients x grads + 16-bit width x cast
# + gathered parameters + whole gradients of the block in work + a gradient made in forward.
# Moments that another one exceeds in every respect can never be the peak and are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.same import Same
from simcore.engine.transients import backward_bytes, output_bytes, saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Op, Workload, weight_grad_numel

Array = NDArray[np.float64]


class Passing(NamedTuple):
    """What an op's forward holds besides what it pins; bytes per sample.

    ``takes_input``: it pins the tensor that the op before wrote; ``pins_output``: its own.
    """

    extra: float
    out: float
    takes_input: bool
    pins_output: bool
    next_input: float


def passing(op: Op, before: float, p: Precision, *, pins: bool) -> Passing:
    """Forward of one op whose input is a tensor of ``before`` bytes that nobody pins (or 0).

    A storage that is saved and as large as the input or the output is that very tensor, where
    both are as large the input; softmax and loss save their result.
    ``pins=False``: under a checkpoint, where nothing is saved.
    """
    pieces = list(storages(op.saved, p)) if pins else []
    out = output_bytes(op, p)
    saves_result = op.saves_result or (bool(op.fwd) and op.fwd[-1].kind == "softmax")
    takes = bool(before) and before in pieces and (op.in_place or op.sink or not saves_result)
    if takes:
        pieces.remove(before)
    if op.in_place:
        out = 0.0
    keeps = bool(out) and out in pieces
    extra = (0.0 if takes else before) + (0.0 if keeps else out)
    if keeps:
        following = 0.0
    elif out:
        following = out
    else:
        following = 0.0 if takes else before
    return Passing(extra, out, takes, keeps, following)


def gradients_after(block: Block) -> tuple[int, ...]:
    """How many parameter tensors, from the last, have a gradient once op j's backward ran.

    Tensors are dealt to ops in definition order, by the elements that each op's kernels move
    whatever the batch. Where no op says so they all appear only after the block.
    """
    weights = [max((k.weight for k in (*op.fwd, *op.bwd)), default=0.0) for op in block.ops]
    total, numel = sum(weights), max(block.numel, 1)
    n = len(block.params)
    if not total:
        return (0,) * len(block.ops)
    ends, passed = [], 0.0
    for param in block.params:
        passed += param.numel
        ends.append(passed / numel)
    counts, done = [], 0.0
    for weight in weights:  # share of the elements whose ops stand before op j
        share = done / total
        counts.append(sum(end > share * (1 + 1e-9) for end in ends))
        done += weight
    counts[0] = n
    return tuple(counts)


@dataclass(frozen=True)
class Moments:
    """Candidates for the peak; arrays [J]: bytes per sample held and working, and elements.

    Of several workloads together [J, workloads].

    ``grads`` is the fraction of all gradients that exist. ``cast``: 16-bit copies; ``window``:
    parameters of the blocks gathered by ZeRO-3; ``whole``: gradients of the block in work;
    ``stub``: the gradient of the op in work outside the layers; ``early``: of a gradient that
    forward makes; ``forward``: whether it is a moment of forward.
    """

    held: Array
    working: Array
    grads: Array
    cast: Array
    window: Array
    whole: Array
    stub: Array
    early: Array
    forward: NDArray[np.bool_]


def shared_with_input(block: Block, p: Precision) -> float:
    """Bytes that a recomputed block saves anew although they are its kept input."""
    kept = saved_bytes(block.kept_input, p)
    for op in block.ops:
        if pieces := storages(op.saved, p):
            return kept if kept in pieces else 0.0
    return 0.0


class _Rows(NamedTuple):
    """Moments of one block relative to its begin; arrays, one row a moment that may be a peak."""

    pinned: Array
    extra: Array
    grads: Array
    cast: Array
    stub: Array
    early: Array


def _rows(found: Sequence[tuple[float, ...]]) -> _Rows:
    table = np.array(found or [(0.0,) * len(_Rows._fields)])
    table = table[_undominated(np.column_stack([table[:, 0] + table[:, 1], table[:, 2:]]))]
    return _Rows(*table.T)


class _Passes(NamedTuple):
    """What one block does to memory beside its moments of forward: those of backward, and sizes.

    ``saved``: bytes per sample that an instance pins; ``copies``: 16-bit elements of its weights;
    ``gathered``: elements that sharded ranks gather of it.
    """

    backward: _Rows
    saved: float
    kept: float
    shared: float
    copies: float
    numel: int
    gathered: float


@lru_cache(maxsize=1000)
def _passes(block: Same[Block], p: Precision) -> _Passes:
    """Cached by block: stages of a pipeline and jobs of one model have theirs in common."""
    b = block.it
    return _Passes(
        backward=_backward(b, p),
        saved=saved_bytes(b.saved, p),
        kept=saved_bytes(b.kept_input, p),
        shared=shared_with_input(b, p),
        copies=sum(op.gemm_weight for op in b.ops),
        numel=b.numel,
        # the frozen base of adapters too, as elements of the weights
        gathered=b.numel + b.base_bytes(p.base_bytes) / p.param_bytes,
    )


@lru_cache(maxsize=2000)
def _forward(block: Same[Block], p: Precision, *, pins: bool) -> _Rows:
    """Forward of one block, op by op; where it ``pins``, with what it saves."""
    pinned = before = cast = 0.0
    found = []
    for op in block.it.ops:
        now = passing(op, before, p, pins=pins)
        pinned += saved_bytes(op.saved, p) * pins
        cast += op.gemm_weight
        found.append((pinned, now.extra, 0.0, cast, 0.0, op.grad_early))
        before = now.next_input
    return _rows(found)


def _backward(block: Block, p: Precision) -> _Rows:
    """Backward of one block; gradients and copies are those of the block itself."""
    pinned, cast = saved_bytes(block.saved, p), sum(op.gemm_weight for op in block.ops)
    made, again = gradients_after(block), saved_bytes(block.remade, p)
    from_last = np.cumsum([0, *(q.numel for q in block.params[::-1])])
    found = []
    for j in range(len(block.ops) - 1, -1, -1):
        op = block.ops[j]
        stub = 0.0 if block.recomputable else weight_grad_numel(op)
        held = backward_bytes(op, p).held + again
        found.append((pinned, held, float(from_last[made[j]]), cast, stub, 0.0))
        pinned -= saved_bytes(op.saved, p)
        cast -= op.gemm_weight
    return _rows(found)


def _compared(table: Array) -> Array:
    """What decides of moments (columns as in ``Moments``) which one is the peak."""
    return np.column_stack([table[:, 0] + table[:, 1], table[:, 2:8]])


def _on_top(rows: _Rows, bases: Array, *, pinned_is_work: bool) -> Array:
    """Rows on top of what is held when each of a block's instances begins, [I x rows, 9]."""
    made = np.repeat(bases[:, None, :], len(rows.pinned), axis=1)
    work = 1 if pinned_is_work else 0
    for column, of in ((work, rows.pinned), (1, rows.extra), (2, rows.grads), (3, rows.cast),
                       (6, rows.stub), (7, rows.early)):  # fmt: skip
        made[:, :, column] += of
    return made.reshape(-1, made.shape[2])


def _corners(bases: Array) -> NDArray[np.intp]:
    """Of a block's instances those that may have the peak: where steps from one to the next change.

    Bytes are convex in the columns, so that on a straight line an end has most.
    """
    if len(bases) == 1:
        return np.zeros(1, dtype=np.intp)
    turns = np.ones(len(bases), dtype=bool)
    turns[1:-1] = (np.diff(bases, 2, axis=0) != 0.0).any(axis=1)
    at = np.flatnonzero(turns)
    found: NDArray[np.intp] = np.sort(at[_undominated(_compared(bases[at]))])
    return found


def _windows(apart: Array, step: int, ahead: int) -> Array:
    """Parameters of each instance's block and of those fetched ahead of it [I]."""
    found, n = apart.copy(), len(apart)
    for k in range(1, min(ahead, n - 1) + 1):
        if step > 0:
            found[:-k] += apart[k:]
        else:
            found[k:] += apart[:-k]
    return found


def _before(sizes: Array) -> Array:
    """The sum of what stands before each [I]."""
    return np.concatenate([[0.0], np.cumsum(sizes)[:-1]])


def candidates(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False,
    tensors: int = 0,
) -> Array:  # fmt: skip
    """Moments of all instances, forward's and then backward's from the last; rows of ``Moments``.

    Of a block's instances only those are looked at that can have the peak (``_corners``).
    ``root``: parameters outside the repeated layers are gathered all at once, for the whole step.
    ``tensors``: a block's parameters are gathered one by one, and so many held at a time (0: all).
    """
    kinds = [_passes(Same(b), p) for b in workload.blocks]
    redone = [recompute and b.recomputable for b in workload.blocks]
    order = np.array(workload.order)
    pinned = [k.kept if again else k.saved for k, again in zip(kinds, redone, strict=True)]
    size, again, copies = (
        np.array(x, dtype=float)[order] for x in (pinned, redone, [k.copies for k in kinds])
    )
    numels = np.array([float(k.numel) for k in kinds])[order]
    whole = np.array([k.gathered for k in kinds])[order]
    made_whole = numels
    if tensors:
        largest = np.array([float(b.largest_param_numel) for b in workload.blocks])[order]
        whole, made_whole, ahead = whole - numels + tensors * largest, largest, 0
    apart = whole.copy()
    if root:
        apart[[not workload.blocks[b].recomputable for b in workload.order]] = 0.0
    rest = float(whole.sum() - apart.sum())
    shared = np.array([k.shared for k in kinds])[order] * again
    zero, one = np.zeros(len(order)), np.ones(len(order))

    held = _before(size)
    forward = np.stack([held + size * again, zero, zero, _before(copies),
                        rest + _windows(apart, 1, ahead), zero, zero, zero, one],
                       axis=1)  # fmt: skip
    # autocast forgets its copies when forward ends; backward holds those that it saved
    cast = np.cumsum(copies * (1.0 - again)) - copies * (1.0 - again)
    above = np.cumsum(numels[::-1])[::-1] - numels
    backward = np.stack([held + size * again, -shared, above, cast,
                         rest + _windows(apart, -1, ahead), made_whole, zero, zero, zero],
                        axis=1)  # fmt: skip
    made, at = [], []
    n = len(order)
    for b in sorted(set(workload.order)):
        here = np.flatnonzero(order == b)
        kind, kept, block = kinds[b], redone[b], Same(workload.blocks[b])
        first, last = forward[here], backward[here[::-1]]
        place = n + 2 * (n - 1 - here[::-1])
        parts = [(_forward(block, p, pins=not kept), first, here, False)]
        if kept:
            parts.append((_forward(block, p, pins=True), last, place, True))
        parts.append((kind.backward, last, place + 1, kept))
        for rows, bases, places, work in parts:
            left = _corners(bases)
            made.append(_on_top(rows, bases[left], pinned_is_work=work))
            at.append(np.repeat(places[left], len(rows.pinned)))
    found: Array = np.concatenate(made)[np.argsort(np.concatenate(at), kind="stable")]
    return found


@lru_cache(maxsize=1000)
def moments_of(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False,
    tensors: int = 0,
) -> Moments:  # fmt: skip
    """The moments that can be the peak for some batch, number of ranks and strategy."""
    table = candidates(workload, p, recompute, ahead, root, tensors)
    table[:, 2] /= max(float(workload.trainable_numel), 1.0)
    table = table[_undominated(_compared(table))]
    held, working, grads, cast, window, whole, stub, early, forward = (
        np.ascontiguousarray(c) for c in table.T
    )
    return Moments(held, working, grads, cast, window, whole, stub, early, forward > 0)


def joined_moments(parts: Sequence[Moments]) -> Moments:
    """Moments of several workloads, arrays [J, workloads]: a shorter list has its first again."""
    table = [[getattr(m, f.name) for f in fields(Moments)] for m in parts]
    longest = max(len(columns[0]) for columns in table)
    rows = [np.arange(longest) % longest for _ in table]
    for row, columns in zip(rows, table, strict=True):
        row[len(columns[0]) :] = 0
    return Moments(
        *(
            np.stack([column[row] for column, row in zip(of, rows, strict=True)], axis=1)
            for of in zip(*table, strict=True)
        )
    )


#: Up to so many rows each is compared with each, at once.
_AT_ONCE = 160


def _undominated(rows: Array) -> NDArray[np.intp]:
    """Indices of rows that no other row reaches in every column."""
    if len(rows) == 1:
        return np.zeros(1, dtype=np.intp)
    left = np.argsort(-rows[:, 0], kind="stable")
    columns = np.ascontiguousarray(rows[left].T)
    if len(left) <= _AT_ONCE:
        reached = (columns[:, :, None] >= columns[:, None, :]).all(axis=0)  # [by, which]
        undominated: NDArray[np.intp] = left[~np.triu(reached, 1).any(axis=0)]
        return undominated
    kept: list[np.intp] = []
    while len(left):  # the first is reached by none; what it reaches goes with it
        kept.append(left[0])
        beyond = (columns > columns[:, :1]).any(axis=0)
        left, columns = left[beyond], columns[:, beyond]
    return np.array(kept)
