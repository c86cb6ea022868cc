"""Table look-ups and the loss at the end."""

from __future__ import annotations

from simcore.workload.graph import Kernel, Op, Saved


def embedding(name: str, tokens: float, dim: int, vocab: int) -> Op:
    """Gather forward, dense scatter-add backward over the whole table; saves int64 indices."""
    rows = tokens * dim
    fwd = Kernel(kind="gather", high=2 * rows, raw_bytes=8.0 * tokens)
    bwd = Kernel(kind="gather", high=2 * rows, raw_bytes=8.0 * tokens, weight=float(vocab) * dim)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=8.0 * tokens))


def cross_entropy(name: str, rows: float, classes: int) -> Op:
    """log-softmax and negative log likelihood in fp32; saves the log-probabilities."""
    elems = rows * classes
    fwd = Kernel(kind="softmax", high=2 * elems, raw_bytes=8.0 * rows, launches=2.0)
    bwd = Kernel(kind="softmax", high=3 * elems, raw_bytes=8.0 * rows, launches=2.0)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(high=elems, raw_bytes=8.0 * rows))
