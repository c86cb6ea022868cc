"""One walk over the ops of a step: which tensors of a block begin and end at each op.

From it come the closed form of the peak (``moments``) and the events that are replayed through the
allocator (``events``). The ticks of a block of n ops are 0 to n - 1 in forward and n to 2 n - 1 in
backward, which runs the last op first. A tick has four parts: tensors that the op works on begin;
those that it is done with end; the gradients of its parameters begin; what forward saved for it
ends.

The closed form and the events differ on purpose in these points:

- The closed form counts everything of a tick at once, so that its peak is the higher one, by at
  most an op's operands; the events have the four parts in their order.
- The closed form knows parameters that DeepSpeed leaves gathered (``live_numel``) and micro-batches
  that wait in a pipeline; the events are of one micro-batch of a rank whose model is not divided.
- Sizes of the closed form are exact; the events' are rounded to whole bytes.
- The events' first update makes the optimizer's state among freed activations, as PyTorch does.

# n ops of a block, T tensors
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.record import Same
from simcore.step.transients import backward_bytes, output_bytes, saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.workload.graph import Block, Op, weight_grad_numel

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
    made = [Tensor(WORKING, size, "recomputed", n, last) for size in storages(block.remade, p)]
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
