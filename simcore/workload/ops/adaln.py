"""Adaptive layer norm in eager PyTorch, as in diffusion transformers (Peebles & Xie 2023).

A conditioning tensor of ``cond`` elements per sample is broadcast over ``elems`` elements.
"""

from __future__ import annotations

from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved


def modulate(name: str, elems: float, cond: float, *, graded: bool = True) -> Op:
    """``x * (1 + scale) + shift``: three kernels forward, four backward.

    Saves the normalised ``x`` and the new tensor ``1 + scale``; the sum saves nothing.
    ``graded=False``: scale and shift have no gradient, so ``x`` is not saved and backward computes
    only its gradient.
    """
    fwd = (
        Kernel(kind="elementwise", low=2 * cond),
        Kernel(kind="elementwise", high=2 * elems, low=cond, indexed=elems),
        Kernel(kind="elementwise", high=2 * elems, low=cond, indexed=elems),
    )
    bwd = (
        Kernel(kind="reduction", high=elems, low=cond),  # shift
        Kernel(kind="elementwise", high=2 * elems, low=cond, indexed=elems),
        Kernel(kind="elementwise", high=3 * elems),
        Kernel(kind="reduction", high=elems, low=cond),  # scale
    )
    if not graded:
        return Op(name=name, fwd=fwd, bwd=bwd[1:2], saved=Saved(low=cond))
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(high=elems, low=cond))


def gate(name: str, elems: float, cond: float, *, graded: bool = True) -> Op:
    """``gate * x``: saves ``x``; the gate is a view whose storage the caller counts.

    ``graded=False``: the gate has no gradient, so ``x`` is not saved.
    """
    fwd = (Kernel(kind="elementwise", low=2 * elems + cond, indexed=elems),)
    bwd = (
        Kernel(kind="elementwise", low=2 * elems + cond, indexed=elems),
        Kernel(kind="elementwise", low=3 * elems),
        Kernel(kind="reduction", low=elems + cond),
    )
    if not graded:
        return Op(name=name, fwd=fwd, bwd=bwd[:1])
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(low=elems))
