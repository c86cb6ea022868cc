"""The moments of a step at which memory may peak, op by op, as coefficients.

# J moments, I block instances. Bytes at a moment = batch (held + working + staying) + gradients x
# grads + 16-bit width x cast + gathered parameters + unsharded gradients of the current block + a
# gradient made in forward. A moment that another one reaches or exceeds in every coefficient is
# never the peak; it is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same, dataclass
from simcore.memory.walk import SAVED, WORKING, held_at_ticks
from simcore.step.transients import saved_bytes
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Candidates for the memory peak; arrays [J], or [J, workloads] of several workloads.

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
        found: Array = self.gradients + before[waiting] - before
        return found


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


def _corners(bases: Array, order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Whether each instance may have its block's peak [I]: where the step to the next one changes.

    Bytes are convex in the columns, so on a straight line one of the ends has most. ``order`` [I]:
    the block of each instance.
    """
    alike = np.argsort(order, kind="stable")  # the instances of a block one after another
    block, table = order[alike], bases[alike]
    turns = np.ones(len(order), dtype=bool)
    turns[1:-1] = (np.diff(table, 2, axis=0) != 0.0).any(axis=1) | (block[:-2] != block[2:])
    found = np.empty(len(order), dtype=bool)
    found[alike] = turns
    return found


def _before(sizes: Array) -> Array:
    """For each instance, the sum of the sizes before it [I]."""
    return np.concatenate([[0.0], np.cumsum(sizes)[:-1]])


@lru_cache(maxsize=2000)
def _across(block: Same[Block], p: Precision) -> tuple[float, float, float]:
    """Bytes per sample that a block saves, those with recompute, and elements of its copies."""
    saved = saved_bytes(block.it.saved, p), saved_bytes(block.it.kept_input, p)
    return (*saved, sum(op.gemm_weight for op in block.it.ops))


def _staying(inputs: Array) -> Array:
    """Bytes per sample that stay at each instance's backward where checkpoints' inputs do [I].

    ``inputs``: of each instance's checkpoint, 0 without one. Of all later ones the input stays, and
    its gradient too, but for that of the next one, which is in work.
    """
    later = np.cumsum(inputs[::-1])[::-1] - inputs
    found: Array = later + np.append(later[1:], 0.0)
    return found


def candidates(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False,
    tensors: int = 0, queued: float = 0.0, stay: bool = False,
) -> Array:  # fmt: skip
    """Moments of all instances, forward's and then backward's from the last; rows of ``Moments``.

    Only instances that can have the peak are included (``_corners``). ``ahead``, ``root``,
    ``tensors``, ``queued``: see ``gathering_of``. ``stay``: inputs of checkpoints and their
    gradients stay until backward ends (``Fsdp.holds_checkpoint_inputs``).
    """
    order = np.array(workload.order)
    n = len(order)
    redone = np.array([recompute and b.recomputable for b in workload.blocks])
    saved, kept, copies = np.array([_across(Same(b), p) for b in workload.blocks])[order].T
    again = redone[order]
    numels = np.array([float(b.numel) for b in workload.blocks])[order]
    gathers = gathering_of(workload, p, ahead, root, tensors, queued)
    held = _before(np.where(again, kept, saved)) + kept * again
    forward, backward = bases = np.zeros((2, n, len(fields(Moments))))
    bases[:, :, _HELD] = held
    forward[:, _CAST] = _before(copies)
    forward[:, _WINDOW] = gathers.windows(1)
    forward[:, _FORWARD] = 1.0
    # autocast drops its copies when forward ends; backward holds those that were saved
    backward[:, _GRADS] = np.cumsum(numels[::-1])[::-1] - numels
    backward[:, _CAST] = _before(copies * ~again)
    backward[:, _WINDOW] = gathers.windows(-1)
    backward[:, _WHOLE] = gathers.whole_gradients()
    if stay:
        backward[:, _STAYING] = _staying(kept * again)
    in_forward, in_backward = (np.flatnonzero(_corners(each, order)) for each in bases)
    moments: list[tuple[NDArray[np.intp], Array, NDArray[np.intp]]] = []
    for b in dict.fromkeys(workload.order):
        block, recomputed = Same(workload.blocks[b]), bool(redone[b])
        early = in_forward[order[in_forward] == b]
        late = in_backward[order[in_backward] == b]
        place = n + 2 * (n - 1 - late)
        passes = [(early, early, not recomputed, False, False)]
        if recomputed:
            passes.append((n + late, place, True, True, False))
        passes.append((n + late, place + 1, True, recomputed, True))
        for bases_at, places, pins, repeats, backwards in passes:
            ticks = _ticks(block, p, pins=pins, again=repeats, backward=backwards)
            times = len(ticks)
            moments.append(
                (
                    np.repeat(bases_at, times),
                    np.tile(ticks, (len(places), 1)),
                    np.repeat(places, times),
                )
            )
    at, ticks, places = (np.concatenate(column) for column in zip(*moments, strict=True))
    found = bases.reshape(2 * n, -1)[at]
    found[:, : ticks.shape[1]] += ticks
    in_order: Array = found[np.argsort(places, kind="stable")]
    return in_order


@lru_cache(maxsize=1000)
def moments_of(
    workload: Workload, p: Precision, recompute: bool, ahead: int, root: bool = False,
    tensors: int = 0, queued: float = 0.0, stay: bool = False,
) -> Moments:  # fmt: skip
    """The moments that can be the peak for some batch, number of ranks and strategy.

    Parameters as in ``candidates``.
    """
    table = candidates(workload, p, recompute, ahead, root, tensors, queued, stay)
    table[:, 2] /= max(float(workload.trainable_numel), 1.0)
    table = table[_undominated(_compared(table))]
    return Moments(*(np.ascontiguousarray(column) for column in table.T))


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


#: Up to this many rows are compared all at once.
_AT_ONCE = 160
#: Whether a row comes before another one [by, which].
_EARLIER = np.triu(np.ones((_AT_ONCE, _AT_ONCE), dtype=bool), 1)


def _undominated(rows: Array) -> NDArray[np.intp]:
    """Indices of rows that no other row reaches or exceeds in every column."""
    if len(rows) == 1:
        return np.zeros(1, dtype=np.intp)
    left = np.argsort(-rows[:, 0], kind="stable")
    columns = np.ascontiguousarray(rows[left].T)
    if len(left) <= _AT_ONCE:
        reached = (columns[:, :, None] >= columns[:, None, :]).all(axis=0)  # [by, which]
        earlier = _EARLIER[: len(left), : len(left)]
        undominated: NDArray[np.intp] = left[~(reached & earlier).any(axis=0)]
        return undominated
    kept: list[np.intp] = []
    while len(left):  # no row exceeds the first; rows that it reaches or exceeds are dropped
        kept.append(left[0])
        beyond = (columns > columns[:, :1]).any(axis=0)
        left, columns = left[beyond], columns[:, beyond]
    return np.array(kept)
