"""Recurrent layers as cuDNN runs them: one product over all steps, then one product per step."""

from __future__ import annotations

from typing import Any

from simcore.workload.graph import RECURRENT, Affine, Kernel, Op
from simcore.workload.saved import Saved

_GATES = 4
#: Tensors of a step's size that its pointwise part moves, forward and backward: gates, cell, its
#: tanh, output and their gradients.
POINTWISE = (11.0, 14.0)


def lstm(
    name: str,
    steps: int,
    k: int,
    hidden: int,
    *,
    save_input: bool = True,
    input_grad: bool = True,
) -> Op:
    """LSTM of one direction over ``steps`` positions per sample, ``k`` inputs, ``hidden`` wide.

    Products with the input run over all positions at once. Products with the state run once per
    step, with as many rows as the batch, and read the whole weight each time; their pointwise part
    is one kernel per step. Saves gates, cell, its tanh and output (7 · hidden per position), and
    the input.
    """
    inner, state = float(_GATES * hidden * k), float(_GATES * hidden * hidden)
    flop_in, flop_state = 2.0 * steps * inner, 2.0 * steps * state
    wide: dict[str, Any] = {"n": Affine(_GATES * hidden), "k": Affine(k)}
    of_input = Kernel(
        kind=RECURRENT, flop=flop_in, low=steps * (k + _GATES * hidden), weight=inner,
        m=Affine(0, steps), **wide,
    )  # fmt: skip

    def step(n: int, depth: int) -> Kernel:
        return Kernel(
            kind=RECURRENT, flop=flop_state, low=steps * 5.0 * hidden, weight=steps * state,
            m=Affine(0, 1), n=Affine(n), k=Affine(depth), launches=float(steps),
        )  # fmt: skip

    def pointwise(elems: float) -> Kernel:
        return Kernel(kind=RECURRENT, low=steps * elems * hidden, launches=float(steps))

    bwd = [
        pointwise(POINTWISE[1]),
        step(hidden, _GATES * hidden),
        Kernel(
            kind=RECURRENT, flop=flop_state, low=steps * 5.0 * hidden, weight=state,
            m=Affine(hidden), n=Affine(_GATES * hidden), k=Affine(0, steps),
        ),
        Kernel(
            kind=RECURRENT, flop=flop_in, low=steps * (k + 4.0 * hidden), weight=inner,
            m=Affine(k), n=Affine(_GATES * hidden), k=Affine(0, steps),
        ),
        Kernel(kind="reduction", low=steps * 4.0 * hidden, weight=8.0 * hidden),
    ]  # fmt: skip
    if input_grad:
        bwd.append(
            Kernel(
                kind=RECURRENT, flop=flop_in, low=steps * (k + 4.0 * hidden), weight=inner,
                m=Affine(0, steps), n=Affine(k), k=Affine(_GATES * hidden),
            )
        )  # fmt: skip
    kept = steps * hidden * 7.0 + steps * k * save_input
    return Op(
        name=name,
        fwd=(of_input, step(_GATES * hidden, hidden), pointwise(POINTWISE[0])),
        bwd=tuple(bwd),
        saved=Saved(low=kept),
        gemm_weight=inner + state,
    )
