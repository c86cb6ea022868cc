"""Table look-ups and the loss at the end."""

from __future__ import annotations

from simcore.workload.graph import Kernel, Op, Saved


def embedding(name: str, tokens: float, dim: int, vocab: int) -> Op:
    """Gather forward, dense scatter-add backward over the whole table; saves int64 indices."""
    rows = tokens * dim
    fwd = Kernel(kind="gather", high=2 * rows, raw_bytes=8.0 * tokens)
    bwd = Kernel(kind="gather", high=2 * rows, raw_bytes=8.0 * tokens, weight=float(vocab) * dim)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=8.0 * tokens))


def cross_entropy(name: str, rows: float, classes: int, *, upcast: bool = False) -> Op:
    """log-softmax and negative log likelihood in fp32; saves the log-probabilities.

    ``upcast``: the script casts the logits to fp32 itself, so that they are fp32 in pure 16-bit
    training too.
    """
    elems = rows * classes
    fwd = Kernel(kind="softmax", high=2 * elems, raw_bytes=8.0 * rows, launches=2.0)
    bwd = Kernel(kind="softmax", high=3 * elems, raw_bytes=8.0 * rows, launches=2.0)
    saved = Saved(high=elems * (not upcast), raw_bytes=8.0 * rows + 4.0 * elems * upcast)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved)


def add_positions(name: str, rows: float, dim: int, *, table_rows: int = 0) -> Op:
    """``x[rows, dim] + p[rows, dim]``, one ``p`` for the whole batch.

    ``table_rows``: ``p`` is looked up in a trained table of so many rows; 0: ``p`` itself is the
    parameter. Backward sums over the batch, then scatters into the table.
    """
    elems, weight = rows * dim, float(rows * dim)
    fwd = [Kernel(kind="elementwise", high=2 * elems, weight=weight)]
    bwd = [Kernel(kind="reduction", high=elems, weight=weight)]
    if table_rows:
        fwd.insert(0, Kernel(kind="gather", weight=2 * weight))
        bwd.append(Kernel(kind="gather", weight=weight + float(table_rows) * dim))
    return Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd))


def lm_loss(name: str, rows: float, vocab: int, *, upcast: bool = False) -> tuple[Op, ...]:
    """Loss over a vocabulary: the logits, their copy, log-softmax and likelihood, the seed.

    The training step holds the model's output, so the logits themselves (low) stay until
    backward ends beside the log-probabilities (high). The copy is the fp32 cast under autocast;
    in fp32 training it is the shift by one position (``logits[:, :-1].contiguous()``).
    ``upcast`` as for ``cross_entropy``.
    """
    elems = rows * vocab
    copy = Kernel(kind="copy", low=elems, high=elems)
    held = Op(name=f"{name}.logits", fwd=(copy,), bwd=(copy,), saved=Saved(low=elems))
    return held, cross_entropy(name, rows, vocab, upcast=upcast), loss_seed()


def loss_seed() -> Op:
    """``ones_like(loss)``: the launch with which backward starts."""
    return Op(name="loss_seed", fwd=(), bwd=(Kernel(kind="elementwise"),))
