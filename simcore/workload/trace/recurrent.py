"""The kernels of a fused LSTM: products of all time steps at once, and one product a time step.

As ``ops.recurrent`` has them: cuDNN multiplies the input of all steps in one product; the state of
a step is known only after the step before, so that its product and its pointwise part are kernels
of their own, with as many rows as the batch, which read the whole weight each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from simcore.workload.graph import RECURRENT
from simcore.workload.ops.recurrent import POINTWISE
from simcore.workload.trace.record import KernelRecord, Piece

#: torch's operators of one layer and direction, and of all of them.
ONE_LAYER, ALL_LAYERS = "mkldnn_rnn_layer", "_cudnn_rnn"
Of = Callable[[Any], Piece]


def is_recurrent(name: str, args: Any) -> bool:
    """Whether an op runs fused LSTM layers."""
    several = name.startswith(ALL_LAYERS) and isinstance(args[2], int)
    return several or name.startswith(ONE_LAYER)


def recurrent_kernels(name: str, args: Any, of: Of) -> tuple[KernelRecord, ...]:
    """The kernels of fused LSTM layers; ``of(tensor)`` returns a tensor's ``Piece``.

    ``args``: the input [time, batch, width] and, of one layer, the weights of input and state; of
    all layers, the weights of all and their number a layer.
    """
    x, backward = args[0], name.endswith("backward")
    if name.startswith(ONE_LAYER):
        return tuple(_layer(x, x.shape[-1], args[1], args[2], backward, of))
    weights, each = args[1:3]
    return tuple(
        kernel for at in range(0, len(weights), each)
        for kernel in _layer(x, weights[at].shape[1], weights[at], weights[at + 1], backward, of)
    )  # fmt: skip


def _layer(
    x: Any, width: int, of_input: Any, of_state: Any, backward: bool, of: Of
) -> Iterator[KernelRecord]:
    """One layer and direction over all time steps."""
    steps, batch = x.shape[:2]
    gates, hidden = of_state.shape
    rows = steps * batch
    inner, state = (2 * rows * math.prod(w.shape) for w in (of_input, of_state))
    entry = of(x)

    def sized(units: int) -> Piece:
        return entry._replace(numel=rows * units)

    def product(
        flop: int, reads: tuple[Piece, ...], write: Piece, m: int, n: int, k: int
    ) -> KernelRecord:
        return KernelRecord(RECURRENT, flop, reads, (write,), (m, n, k, 1))

    weight = of(of_state)
    each_step = weight._replace(numel=steps * weight.numel)
    sides = (batch, hidden, gates) if backward else (batch, gates, hidden)
    state_steps = product(state, (each_step, sized(hidden)), sized(gates), *sides)
    pointwise = KernelRecord(RECURRENT, 0, (sized(int(POINTWISE[backward]) * hidden),), ())
    by_step = state_steps._replace(launches=steps), pointwise._replace(launches=steps)
    whole = (of(of_input), sized(width))
    if not backward:
        yield product(inner, whole, sized(gates), rows, gates, width)
        yield from by_step
        return
    yield from by_step
    yield product(state, (sized(hidden), sized(gates)), weight, hidden, gates, rows)
    yield product(inner, whole, sized(gates), width, gates, rows)
    yield product(inner, whole, sized(gates), rows, width, gates)
    yield KernelRecord("reduction", 0, (sized(gates),), ())
