"""The moments of a step at which memory may peak, op by op, as numbers to scale and add.

# J moments. Bytes at a moment = batch (held + working) + gradients x grads + 16-bit width x cast
# + gathered parameters + whole gradients of the block in work. Moments that another one exceeds
# in every respect can never be the peak and are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.transients import backward_bytes, output_bytes, saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Op, Workload

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
    takes = bool(before) and before in pieces and not saves_result
    if takes:
        pieces.remove(before)
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

    ``grads``, ``cast``, ``window``, ``whole`` are elements: gradients that exist, 16-bit copies,
    parameters of the blocks gathered by ZeRO-3, gradients of the block in work.
    """

    held: float
    working: float
    grads: float
    cast: float
    window: float
    whole: float
    forward: bool
    instance: int


@dataclass(frozen=True)
class Moments:
    """Candidates for the peak; arrays [J]. ``grads`` is the fraction of all gradients."""

    held: Array
    working: Array
    grads: Array
    cast: Array
    window: Array
    whole: Array
    forward: NDArray[np.bool_]


def _window(numels: list[int], at: int, step: int, ahead: int) -> float:
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


def _forward(
    block: Block, base: Moment, p: Precision, *, pins: bool, held: bool, copies: bool = True
) -> Iterator[Moment]:
    """Moments of one block's forward on top of ``base``; pinned bytes as held or as working."""
    pinned, before, cast = 0.0, 0.0, 0.0
    for op in block.ops:
        now = passing(op, before, p, pins=pins)
        pinned += saved_bytes(op.saved, p) * pins
        cast += op.gemm_weight * copies
        yield base._replace(
            held=base.held + pinned * held,
            working=base.working + pinned * (not held) + now.extra,
            cast=base.cast + cast,
        )
        before = now.next_input


def all_moments(workload: Workload, p: Precision, recompute: bool, ahead: int) -> Iterator[Moment]:
    """Every op of forward, then every op of backward from the last to the first."""
    blocks = list(workload.instances())
    numels = [b.numel for b in blocks]
    casts = [sum(op.gemm_weight for op in b.ops) for b in blocks]
    again = [recompute and b.recomputable for b in blocks]
    kept = [
        saved_bytes(b.boundary if r else b.saved, p) for b, r in zip(blocks, again, strict=True)
    ]
    before = cast = 0.0
    for i, block in enumerate(blocks):
        own = kept[i] if again[i] else 0.0
        base = Moment(before + own, 0.0, 0.0, cast, _window(numels, i, 1, ahead), 0.0, True, i)
        yield from _forward(block, base, p, pins=not again[i], held=True)
        before, cast = before + kept[i], cast + casts[i]
    # autocast forgets its copies when forward ends; backward holds those that it saved
    cast = sum(c for c, r in zip(casts, again, strict=True) if not r)
    grads = 0.0
    for i in range(len(blocks) - 1, -1, -1):
        block = blocks[i]
        below = before - kept[i]
        window = _window(numels, i, -1, ahead)
        shared = shared_with_input(block, p) if again[i] else 0.0
        base = Moment(before if again[i] else below, -shared, grads, cast, window,
                      float(numels[i]), False, i)  # fmt: skip
        if again[i]:
            yield from _forward(block, base, p, pins=True, held=False)
            cast += casts[i]
        pinned, copies = saved_bytes(block.saved, p), cast
        made = gradients_after(block)
        from_last = np.cumsum([0, *(q.numel for q in block.params[::-1])])
        for j in range(len(block.ops) - 1, -1, -1):
            op = block.ops[j]
            held, working = (0.0, pinned) if again[i] else (pinned, 0.0)
            yield base._replace(
                held=base.held + held,
                working=base.working + working + backward_bytes(op, p).held,
                grads=grads + float(from_last[made[j]]),
                cast=copies,
            )
            pinned -= saved_bytes(op.saved, p)
            copies -= op.gemm_weight
        before, cast, grads = below, cast - casts[i], grads + numels[i]


@lru_cache(maxsize=256)
def moments_of(workload: Workload, p: Precision, recompute: bool, ahead: int) -> Moments:
    """The moments that can be the peak for some batch, number of ranks and strategy."""
    found = list(all_moments(workload, p, recompute, ahead))
    table = np.array([m[:6] for m in found])
    live = table[:, 0] + table[:, 1]
    total = max(float(workload.trainable_numel), 1.0)
    table[:, 2] /= total
    keep = _undominated(np.column_stack([live, table[:, 2:]]))
    table = table[keep]
    held, working, grads, cast, window, whole = (np.ascontiguousarray(c) for c in table.T)
    forward = np.array([m.forward for m in found])[keep]
    return Moments(held, working, grads, cast, window, whole, forward)


def _undominated(rows: Array) -> NDArray[np.intp]:
    """Indices of rows that no other row reaches in every column."""
    order = np.argsort(-rows[:, 0], kind="stable")
    kept: list[int] = []
    best = np.empty((0, rows.shape[1]))
    for i in order:
        if len(best) and bool((best >= rows[i]).all(axis=1).any()):
            continue
        kept.append(int(i))
        best = np.vstack([best, rows[i]])
    return np.array(kept)
