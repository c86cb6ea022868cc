"""Streams of which a layer computes the first alone (AltUp), and a narrow branch beside attention.

Gemma 3n (Google DeepMind 2025); op by op as transformers runs it (modeling_gemma3n.py,
Gemma3nTextAltUp and Gemma3nTextLaurelBlock).
"""

from __future__ import annotations

from simcore.base.record import replace
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_settings import Streams
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved


def _other_streams(body: Body, s: Streams, name: str, seq: int, hidden: int, reads: str) -> None:
    """Add a square product for each further stream, brought to the first stream's magnitude.

    The magnitude is the root of the mean of squares, and the result a product and a division, each
    of which saves what it divides.
    """
    elems = float(seq * hidden)
    for i in range(1, s.streams):
        read = reads if reads == "x" else f"{reads}{i}"
        body.linear(f"{name}{i}", seq, hidden, hidden, reads=read)
    more = s.streams - 1.0
    fwd = (
        Kernel(kind="elementwise", low=6 * more * elems, launches=6 * more),
        Kernel(kind="reduction", low=more * elems, launches=more),
    )
    bwd = (
        Kernel(kind="elementwise", low=14 * more * elems, launches=8 * more),
        Kernel(kind="reduction", low=4 * more * elems, launches=2 * more),
    )
    body.add(
        Op(name=f"{name}.magnitude", fwd=fwd, bwd=bwd, saved=Saved(low=2 * more * elems)),
        ops.accumulate(f"{name}.forks", elems, times=more, high=True),
        ops.copy(f"{name}.stack", s.streams * elems),
    )


def begin(body: Body, s: Streams, seq: int, hidden: int) -> None:
    """Add the streams with which the first layer begins."""
    _other_streams(body, s, "streams.project", seq, hidden, "x")


def end(body: Body, s: Streams, seq: int, hidden: int) -> None:
    """Add the mean of the streams that the last norm reads."""
    _other_streams(body, s, "streams.unembed", seq, hidden, "stream")
    elems = float(seq * hidden)
    fwd, bwd = (Kernel(kind=k, low=(s.streams + 1) * elems) for k in ("reduction", "elementwise"))
    body.add(Op(name="streams.mean", fwd=(fwd,), bwd=(bwd,)))


def _router(
    body: Body, s: Streams, name: str, seq: int, hidden: int, outputs: int, norm: str, reads: str
) -> None:  # fmt: skip
    """Add a token's coefficients: norm, narrow product, tanh in fp32, and a product of the result.

    Weights of both routers of a layer are the same: ``predict`` adds norm and first product.
    """
    rows, n = float(seq), s.streams
    first = name == "predict"
    body.norm(f"{name}.norm", seq, hidden, norm, reads=reads, own=first)
    body.add(ops.scale(f"{name}.norm.scale", rows * hidden))
    body.linear(f"{name}.router", seq, hidden, n, reads=f"{name}.scaled", weight=first)
    body.add(ops.activation(f"{name}.tanh", rows * n, saves="output", high=True, launches=3.0))
    body.linear(f"{name}.coefs", seq, n, outputs, reads=f"{name}.tanh")


def predicted(body: Body, s: Streams, seq: int, hidden: int, norm: str) -> None:
    """Add the prediction of all streams of a layer: a mix of them by each token's matrix."""
    n, whole = s.streams, float(seq * s.streams * hidden)
    body.kept.add("x")  # which the mix saves
    _router(body, s, "predict", seq, hidden, n * n, norm, "x")
    body.add(
        ops.bmm("predict.mix", float(seq), hidden, n, n, aligned=False),
        ops.binary("predict.residual", whole, grads=0, high=True),
        ops.copy("predict.rows", whole, high=True),
        ops.keep("predicted", whole, high=True),
        ops.accumulate("predict.fork", whole, times=2, high=True),
    )
    body.kept.add("predicted")


def branch(body: Body, s: Streams, seq: int, hidden: int, norm: str) -> None:
    """Add the narrow branch that reads attention's input: its normalised result plus that input."""
    elems = float(seq * hidden)
    body.linear("branch_down", seq, hidden, s.branch_rank, reads="norm1")
    body.linear("branch_up", seq, s.branch_rank, hidden, reads="branch_down")
    body.norm("branch_norm", seq, hidden, norm, narrow=True)
    body.add(
        ops.binary("branch.sum", elems, grads=0, high=True),
        ops.accumulate("branch.fork", elems, times=2, high=True),
    )


def joined(body: Body, seq: int, hidden: int) -> None:
    """Add the sum of the residual, attention and branch, divided by the square root of two."""
    elems = float(seq * hidden)
    body.add(
        replace(ops.binary("attention.residual", elems, grads=0, high=True), role="mixer_sum"),
        ops.binary("branch.residual", elems, grads=0, high=True),
        ops.scale("branch.residual.scale", elems, high=True),
    )


def sparse_gate(body: Body, seq: int, ffn: int) -> None:
    """Add the cut of a gate at its mean plus a multiple of its standard deviation, by token."""
    elems = float(seq * ffn)
    fwd = (
        Kernel(kind="reduction", low=2 * elems, launches=2.0),
        Kernel(kind="elementwise", low=4 * elems, launches=2.0),
    )
    bwd = (
        Kernel(kind="elementwise", low=12 * elems, launches=5.0),
        Kernel(kind="reduction", low=2 * elems, launches=2.0),
    )
    body.add(Op(name="gate.sparse", fwd=fwd, bwd=bwd, saved=Saved(low=elems)))


def corrected(body: Body, s: Streams, seq: int, hidden: int, norm: str) -> None:
    """Add the correction of all streams by what the layer made of the first one."""
    n, elems = s.streams, float(seq * hidden)
    whole = n * elems
    _router(body, s, "correct", seq, hidden, n, norm, "")
    body.add(
        ops.binary("correct.innovation", elems, grads=0, high=True),
        ops.copy("correct.repeat", whole, high=True),
        ops.binary("correct.weighed", whole, broadcast=float(seq * n), saves=whole, grads=2,
                   high=True),
        ops.binary("correct.residual", whole, grads=0, high=True),
        ops.accumulate("correct.fork", elems, times=2, high=True),
        ops.copy("correct.first", elems, high=True),
        ops.binary("correct.scale", elems, broadcast=float(hidden), saves=elems, grads=2,
                   high=True),
    )  # fmt: skip
    body.param("correct.scale", hidden)
