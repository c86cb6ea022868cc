"""The moments of a step at which memory may peak, op by op, as numbers to scale and add.

# J moments. Bytes at a moment = batch (held + working) + gradients x grads + 16-bit width x cast
# + gathered parameters + whole gradients of the block in work + a gradient made in forward.
# Moments that another one exceeds in every respect can never be the peak and are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
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
    saves_result = bool(op.fwd) and op.fwd[-1].kind == "softmax"
    takes = bool(before) and before in pieces and (op.in_place or not saves_result)
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


class Moment(NamedTuple):
    """One candidate: bytes per sample held and working, and what scales with parameters.

    ``grads``, ``cast``, ``window``, ``whole``, ``stub`` are elements: gradients that exist, 16-bit
    copies, parameters of the blocks gathered by ZeRO-3, gradients of the block in work, the
    gradient of the op in work outside the layers; ``early``: of a gradient that forward makes.
    """

    held: float
    working: float
    grads: float
    cast: float
    window: float
    whole: float
    stub: float
    early: float
    forward: bool


@dataclass(frozen=True)
class Moments:
    """Candidates for the peak; arrays [J]. ``grads`` is the fraction of all gradients."""

    held: Array
    working: Array
    grads: Array
    cast: Array
    window: Array
    whole: Array
    stub: Array
    early: Array
    forward: NDArray[np.bool_]


def _window(numels: list[float], at: int, step: int, ahead: int) -> float:
    """Parameters of a block and of those fetched ahead of it."""
    return float(sum(numels[k] for k in range(at, at + step * (ahead + 1), step)
                     if 0 <= k < len(numels)))  # fmt: skip


def shared_with_input(block: Block, p: Precision) -> float:
    """Bytes that a recomputed block saves anew although they are its kept input."""
    kept = saved_bytes(block.boundary, p)
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


def _forward(block: Block, p: Precision, *, pins: bool) -> _Rows:
    """Forward of one block, op by op."""
    pinned = before = cast = 0.0
    found = []
    for op in block.ops:
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


def _table(rows: _Rows, bases: list[Moment], *, pinned_is_work: bool) -> Array:
    """Rows on top of what is held when each of a block's instances begins, [I x rows, 9]."""
    n = len(rows.pinned)
    made = np.repeat(np.array(bases, dtype=float), n, axis=0)
    work = 1 if pinned_is_work else 0
    for column, of in ((work, rows.pinned), (1, rows.extra), (2, rows.grads), (3, rows.cast),
                       (6, rows.stub), (7, rows.early)):  # fmt: skip
        made[:, column] += np.tile(of, len(bases))
    return made


class _Stacked:
    """Moments of instances in the order added; those of equal blocks are made together."""

    def __init__(self) -> None:
        self.parts: dict[tuple[int, bool], tuple[_Rows, list[Moment], list[int]]] = {}
        self.n = 0

    def add(self, rows: _Rows, base: Moment, *, pinned_is_work: bool) -> None:
        """One instance whose moments are ``rows`` on top of ``base``."""
        _, bases, at = self.parts.setdefault((id(rows), pinned_is_work), (rows, [], []))
        bases.append(base)
        at.append(self.n)
        self.n += 1

    def table(self) -> Array:
        """All of them; columns as in ``Moment``."""
        made = [_table(rows, bases, pinned_is_work=work)
                for (_, work), (rows, bases, _) in self.parts.items()]  # fmt: skip
        at = [np.repeat(at, len(rows.pinned)) for rows, _, at in self.parts.values()]
        found: Array = np.concatenate(made)[np.argsort(np.concatenate(at), kind="stable")]
        return found


def all_moments(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False
) -> Array:
    """Forward's blocks, then backward's from the last to the first; rows of ``Moment``.

    ``root``: parameters outside the repeated layers are gathered all at once, for the whole step.
    """
    blocks = list(workload.instances())
    distinct = {id(b): b for b in workload.blocks}
    again = {k: recompute and b.recomputable for k, b in distinct.items()}
    plain = {k: _forward(b, p, pins=not again[k]) for k, b in distinct.items()}
    anew = {k: _forward(b, p, pins=True) for k, b in distinct.items() if again[k]}
    back = {k: _backward(b, p) for k, b in distinct.items()}
    size = {k: saved_bytes(b.boundary if again[k] else b.saved, p) for k, b in distinct.items()}
    copies = {k: sum(op.gemm_weight for op in b.ops) for k, b in distinct.items()}
    shared = {k: shared_with_input(b, p) for k, b in distinct.items() if again[k]}
    numels = [b.numel for b in blocks]
    # What is gathered of a block, the frozen base of adapters too, as elements of its weights.
    whole = [b.numel + b.base_bytes(p.param_bytes) / p.param_bytes for b in blocks]
    apart = [0 if root and not b.recomputable else n for b, n in zip(blocks, whole, strict=True)]
    rest = float(sum(whole) - sum(apart))
    keys = [id(b) for b in blocks]
    found = _Stacked()
    before = cast = 0.0
    for i, k in enumerate(keys):
        there = rest + _window(apart, i, 1, ahead)
        base = Moment(before + size[k] * again[k], 0.0, 0.0, cast, there, 0.0, 0.0, 0.0, True)
        found.add(plain[k], base, pinned_is_work=False)
        before, cast = before + size[k], cast + copies[k]
    # autocast forgets its copies when forward ends; backward holds those that it saved
    cast = float(sum(copies[k] for k in keys if not again[k]))
    grads = 0.0
    for i in range(len(keys) - 1, -1, -1):
        k, below = keys[i], before - size[keys[i]]
        if not again[k]:
            cast -= copies[k]
        there = rest + _window(apart, i, -1, ahead)
        base = Moment(before if again[k] else below, -shared.get(k, 0.0), grads, cast, there,
                      float(numels[i]), 0.0, 0.0, False)  # fmt: skip
        if again[k]:
            found.add(anew[k], base, pinned_is_work=True)
        found.add(back[k], base, pinned_is_work=again[k])
        before, grads = below, grads + numels[i]
    return found.table()


@lru_cache(maxsize=256)
def moments_of(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False
) -> Moments:
    """The moments that can be the peak for some batch, number of ranks and strategy."""
    table = all_moments(workload, p, recompute, ahead, root)
    table[:, 2] /= max(float(workload.trainable_numel), 1.0)
    table = table[_undominated(np.column_stack([table[:, 0] + table[:, 1], table[:, 2:8]]))]
    held, working, grads, cast, window, whole, stub, early, forward = (
        np.ascontiguousarray(c) for c in table.T
    )
    return Moments(held, working, grads, cast, window, whole, stub, early, forward > 0)


def _undominated(rows: Array) -> NDArray[np.intp]:
    """Indices of rows that no other row reaches in every column."""
    left = np.argsort(-rows[:, 0], kind="stable")
    columns = np.ascontiguousarray(rows[left].T)
    kept: list[np.intp] = []
    while len(left):  # the first is reached by none; what it reaches goes with it
        kept.append(left[0])
        beyond = (columns > columns[:, :1]).any(axis=0)
        left, columns = left[beyond], columns[:, beyond]
    return np.array(kept)
