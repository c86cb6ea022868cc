"""The moments of a step at which memory may peak, op by op, as coefficients.

# J moments. Bytes at a moment = batch (held + working) + gradients x grads + 16-bit width x cast
# + gathered parameters + unsharded gradients of the current block + a gradient made in forward.
# A moment that another one reaches or exceeds in every coefficient is never the peak; it is
# dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.same import Same
from simcore.step.transients import backward_bytes, output_bytes, saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Op, Workload, weight_grad_numel

Array = NDArray[np.float64]


class Passing(NamedTuple):
    """Tensors around an op's forward other than those it saves; bytes per sample.

    ``extra``: held besides the saved tensors; ``out``: its output. ``takes_input``: it saves the
    tensor that the op before wrote; ``pins_output``: it saves its own output. ``next_input``: input
    of the next op that nothing has saved.
    """

    extra: float
    out: float
    takes_input: bool
    pins_output: bool
    next_input: float


def passing(op: Op, before: float, p: Precision, *, pins: bool) -> Passing:
    """Forward of one op whose input is a tensor of ``before`` bytes that no op has saved (or 0).

    A saved storage as large as the input or the output is taken to be that tensor; where both have
    its size it is the input, but for softmax and the loss, which save their result.
    ``pins=False``: inside a checkpoint, where nothing is saved.
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
    """For each op, how many parameter tensors, from the last, have a gradient after its backward.

    Tensors are assigned to ops in definition order, in proportion to the elements that each op's
    kernels move whatever the batch. Where no op has any, all gradients appear after the block.
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
    for weight in weights:  # share of the elements that belong to ops before op j
        share = done / total
        counts.append(sum(end > share * (1 + 1e-9) for end in ends))
        done += weight
    counts[0] = n
    return tuple(counts)


@dataclass(frozen=True)
class Moments:
    """Candidates for the memory peak; arrays [J], or [J, workloads] of several workloads.

    ``held``, ``working``: bytes per sample. ``grads``: fraction of all gradients that exist. The
    others are elements: ``cast``: 16-bit copies; ``window``: parameters of the blocks gathered by
    ZeRO-3; ``whole``: gradients of the current block; ``stub``: gradient of the current op outside
    the layers; ``early``: a gradient made in forward. ``forward``: whether the moment is in
    forward.
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
    """Bytes of the kept input that a recomputed block would otherwise count as saved again."""
    kept = saved_bytes(block.kept_input, p)
    for op in block.ops:
        if pieces := storages(op.saved, p):
            return kept if kept in pieces else 0.0
    return 0.0


class _Rows(NamedTuple):
    """Candidate moments of one block, relative to its begin; arrays with one row a moment."""

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
    """Candidate moments of one block's backward, and sizes of the block.

    ``saved``: bytes per sample that an instance saves; ``kept``: those under recompute; ``shared``:
    see ``shared_with_input``; ``copies``: elements of its weights' 16-bit copies; ``gathered``:
    elements that sharded ranks gather.
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
    """Cached by block: pipeline stages and jobs of one model have blocks in common."""
    b = block.it
    return _Passes(
        backward=_backward(b, p),
        saved=saved_bytes(b.saved, p),
        kept=saved_bytes(b.kept_input, p),
        shared=shared_with_input(b, p),
        copies=sum(op.gemm_weight for op in b.ops),
        numel=b.numel,
        # includes the frozen base of adapters, in elements of the weights' width
        gathered=b.numel + b.base_bytes(p.base_bytes) / p.param_bytes,
    )


@lru_cache(maxsize=2000)
def _forward(block: Same[Block], p: Precision, *, pins: bool) -> _Rows:
    """Forward of one block, op by op; with ``pins``, including what it saves."""
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
    """Backward of one block; gradients and copies are the block's own."""
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
    """The columns of moments (as in ``Moments``) that decide which one is the peak."""
    return np.column_stack([table[:, 0] + table[:, 1], table[:, 2:8]])


def _on_top(rows: _Rows, bases: Array, *, pinned_is_work: bool) -> Array:
    """Rows added to what is held when each instance of a block begins, [I x rows, 9]."""
    made = np.repeat(bases[:, None, :], len(rows.pinned), axis=1)
    work = 1 if pinned_is_work else 0
    for column, of in ((work, rows.pinned), (1, rows.extra), (2, rows.grads), (3, rows.cast),
                       (6, rows.stub), (7, rows.early)):  # fmt: skip
        made[:, :, column] += of
    return made.reshape(-1, made.shape[2])


def _corners(bases: Array) -> NDArray[np.intp]:
    """Indices of a block's instances that may have the peak: where the step to the next changes.

    Bytes are convex in the columns, so on a straight line one of the ends has most.
    """
    if len(bases) == 1:
        return np.zeros(1, dtype=np.intp)
    turns = np.ones(len(bases), dtype=bool)
    turns[1:-1] = (np.diff(bases, 2, axis=0) != 0.0).any(axis=1)
    at = np.flatnonzero(turns)
    found: NDArray[np.intp] = np.sort(at[_undominated(_compared(bases[at]))])
    return found


def _windows(apart: Array, step: int, ahead: int) -> Array:
    """Parameters of each instance's block and of the blocks fetched ahead of it [I]."""
    found, n = apart.copy(), len(apart)
    for k in range(1, min(ahead, n - 1) + 1):
        if step > 0:
            found[:-k] += apart[k:]
        else:
            found[k:] += apart[:-k]
    return found


def _before(sizes: Array) -> Array:
    """For each instance, the sum of the sizes before it [I]."""
    return np.concatenate([[0.0], np.cumsum(sizes)[:-1]])


def candidates(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False,
    tensors: int = 0,
) -> Array:  # fmt: skip
    """Moments of all instances, forward's and then backward's from the last; rows of ``Moments``.

    Only instances that can have the peak are included (``_corners``). ``ahead``: blocks fetched
    ahead. ``root``: parameters outside the repeated layers are gathered together, for the whole
    step. ``tensors``: a block's parameters are gathered one by one, with so many held at a time (0:
    all of the block).
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
    # autocast drops its copies when forward ends; backward holds those that were saved
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
    """The moments that can be the peak for some batch, number of ranks and strategy.

    Parameters as in ``candidates``.
    """
    table = candidates(workload, p, recompute, ahead, root, tensors)
    table[:, 2] /= max(float(workload.trainable_numel), 1.0)
    table = table[_undominated(_compared(table))]
    held, working, grads, cast, window, whole, stub, early, forward = (
        np.ascontiguousarray(c) for c in table.T
    )
    return Moments(held, working, grads, cast, window, whole, stub, early, forward > 0)


def joined_moments(parts: Sequence[Moments]) -> Moments:
    """Moments of several workloads, arrays [J, workloads]; shorter lists repeat their first row."""
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


#: Up to this many rows are compared all at once.
_AT_ONCE = 160


def _undominated(rows: Array) -> NDArray[np.intp]:
    """Indices of rows that no other row reaches or exceeds in every column."""
    if len(rows) == 1:
        return np.zeros(1, dtype=np.intp)
    left = np.argsort(-rows[:, 0], kind="stable")
    columns = np.ascontiguousarray(rows[left].T)
    if len(left) <= _AT_ONCE:
        reached = (columns[:, :, None] >= columns[:, None, :]).all(axis=0)  # [by, which]
        undominated: NDArray[np.intp] = left[~np.triu(reached, 1).any(axis=0)]
        return undominated
    kept: list[np.intp] = []
    while len(left):  # no row exceeds the first; rows that it reaches or exceeds are dropped
        kept.append(left[0])
        beyond = (columns > columns[:, :1]).any(axis=0)
        left, columns = left[beyond], columns[:, beyond]
    return np.array(kept)
