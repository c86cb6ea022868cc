"""Several residual streams: what a part of a layer reads of them, and how its result enters them.

Manifold-constrained hyper-connections (DeepSeek-AI 2025, arXiv 2512.24880; transformers,
DeepseekV4HyperConnection and HYV4HyperConnection).
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_settings import Streams
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved

#: Kernels on a token's few weights in tensor operations: products, sums, sigmoids and casts of the
#: three kinds, and the parts of a round of normalisation (a sum, the constant, the division).
_KERNELS, _KERNELS_OF_A_ROUND = 12.0, 6.0


def _weights(name: str, elems: float, rounds: int, fused: bool) -> Op:
    """Sigmoids of a token's weights, and the matrix of streams normalised in ``rounds``; fp32.

    Backward of a round has twice the kernels of forward. ``fused``: one kernel each way.
    """
    launches = 1.0 if fused else _KERNELS + _KERNELS_OF_A_ROUND * rounds
    moved = 8.0 * elems  # read and written, in fp32
    fwd = Kernel(kind="elementwise", raw_bytes=moved * launches, launches=launches)
    bwd = Kernel(
        kind="elementwise", raw_bytes=2 * moved * launches, launches=max(1.0, 2 * launches)
    )
    kept = 4.0 * elems * (1.0 if fused else 1.0 + 2.0 * rounds)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=kept))


def _mixed(name: str, seq: int, width: int, streams: int) -> Op:
    """The streams, which their weighted sum saves, times each token's matrix."""
    batch = float(seq)
    return ops.bmm(name, batch, streams, width, streams, aligned=False, save_right=False)


def collapse(body: Body, s: Streams, name: str, seq: int, width: int, norm: str) -> str:
    """Add the weights of a part and the sum of streams that it reads; returns that sum's name.

    The streams of a token, joined and normalised without a weight, pass a narrow product in fp32.
    """
    n, fused = s.streams, body.fused
    outputs = (2 + n * bool(s.stream_rounds)) * n
    whole = float(seq * n * width)
    body.norm(f"{name}.norm", seq, n * width, norm, weight=False)
    body.linear(f"{name}.weights", seq, n * width, outputs, reads=f"{name}.norm", wide=True)
    body.param(f"{name}.base", outputs)
    body.param(f"{name}.scale", 3 if s.stream_rounds else 2)
    body.add(
        _weights(f"{name}.matrix", float(seq * outputs), s.stream_rounds, fused),
        ops.binary(
            f"{name}.weighed", whole, broadcast=float(seq * n), saves=whole, grads=2, high=True
        ),
    )
    if not fused:
        body.add(_summed(f"{name}.sum", whole, float(seq * width)))
    body.add(ops.accumulate(f"{name}.fork", whole, times=2, high=True))
    return f"{name}.sum"


def _summed(name: str, whole: float, out: float) -> Op:
    """The sum over streams; its gradient is spread over them as it is read."""
    return Op(name=name, fwd=(Kernel(kind="reduction", high=whole, low=out),), bwd=())


def expand(body: Body, s: Streams, name: str, seq: int, width: int) -> None:
    """Add the part's result, weighted, to each stream, after the streams have been mixed."""
    n = s.streams
    whole = float(seq * n * width)
    if s.stream_rounds:
        body.add(_mixed(f"{name}.mixed", seq, width, n))
    body.add(
        ops.binary(f"{name}.spread", whole, broadcast=float(seq * n), saves=whole / n, grads=2),
        ops.binary(f"{name}.residual", whole, grads=0, high=True),
    )


def spread_embedding(body: Body, s: Streams, elems: float) -> None:
    """Add the copies of the embedding with which all streams begin; gradients are summed."""
    whole = s.streams * elems
    copied = Kernel(kind="copy", high=elems + whole)
    body.add(
        Op(name="streams.begin", fwd=(copied,), bwd=(Kernel(kind="reduction", high=whole + elems),))
    )


def head(body: Body, s: Streams, seq: int, width: int, norm: str) -> None:
    """Add the weighted sum of the streams that the last norm reads."""
    n, whole = s.streams, float(seq * s.streams * width)
    body.norm("streams.norm", seq, n * width, norm, weight=False)
    body.linear("streams.weights", seq, n * width, n, reads="streams.norm", wide=True)
    body.param("streams.base", n)
    body.param("streams.scale", 1)
    body.add(
        _weights("streams.matrix", float(seq * n), 0, body.fused),
        ops.binary(
            "streams.weighed", whole, broadcast=float(seq * n), saves=whole, grads=2, high=True
        ),
        _summed("streams.sum", whole, float(seq * width)),
        ops.accumulate("streams.fork", whole, high=True),
    )
