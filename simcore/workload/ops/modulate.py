"""Adaptive layer norm, as diffusion transformers write it in eager PyTorch (Peebles & Xie 2023).

A conditioning tensor of ``cond`` elements a sample is broadcast over ``elems`` elements.
"""

from __future__ import annotations

from simcore.workload.graph import Kernel, Op, Saved


def modulate(name: str, elems: float, cond: float) -> Op:
    """``x * (1 + scale) + shift``: three kernels forward, four backward.

    Saves the normalised ``x`` and the new tensor ``1 + scale``; the sum saves nothing.
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
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(high=elems, low=cond))


def gate(name: str, elems: float, cond: float) -> Op:
    """``gate * x``: saves ``x``; the gate is a view whose storage the caller counts."""
    fwd = (Kernel(kind="elementwise", low=2 * elems + cond, indexed=elems),)
    bwd = (
        Kernel(kind="elementwise", low=2 * elems + cond, indexed=elems),
        Kernel(kind="elementwise", low=3 * elems),
        Kernel(kind="reduction", low=elems + cond),
    )
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(low=elems))
