"""A mixture's routing, dispatch and combination in PyTorch's indexing, as transformers writes them.

``integrations/moe.py``, ``grouped_mm_experts_forward`` (5.23), between the router of, for example,
``models/mixtral/modeling_mixtral.py``. Expert numbers are sorted, rows looked up in that order
and, after the products, in the order of tokens. Probabilities are fp32, and so are rows once they
are multiplied by them. Kernels are those of ATen's operators (a dispatch mode lists them), in CUDA.
Their number is that of more than 4,096 rows: fewer are sorted by one kernel (Sort.cpp).
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload.graph import AUXILIARY, Kernel, Op
from simcore.workload.ops.lookup import added_at_indices, radix_sort
from simcore.workload.saved import Saved


def route_looked_up(name: str, tokens: float, experts: int, top_k: int) -> Op:
    """Scores to fp32 probabilities, the ``top_k`` experts of each token, normalised weights.

    Forward: the cast, softmax, two kernels that choose and order (TensorTopK.cpp), the sum, a copy
    and the quotient. Backward: the gradients of quotient and sum, zeros, a copy of them to which
    the chosen ones are written, the softmax's gradient and the cast. Saves as ``moe.route``.
    """
    scores, chosen = FP32_BYTES * tokens * experts, FP32_BYTES * tokens * top_k
    cast = Kernel(kind="elementwise", low=tokens * experts, raw_bytes=scores)
    fwd = (
        cast,
        Kernel(kind="softmax", raw_bytes=2 * scores),
        Kernel(kind="gather", raw_bytes=scores + 5 * chosen),
        Kernel(kind=AUXILIARY, raw_bytes=6 * chosen),
        Kernel(kind="reduction", raw_bytes=chosen + FP32_BYTES * tokens),
        Kernel(kind="elementwise", raw_bytes=4 * chosen, launches=2.0),
    )
    bwd = (
        Kernel(kind="elementwise", raw_bytes=15 * chosen, launches=6.0),
        Kernel(kind="reduction", raw_bytes=chosen + FP32_BYTES * tokens),
        Kernel(kind="elementwise", raw_bytes=scores),
        Kernel(kind=AUXILIARY, raw_bytes=2 * scores),
        Kernel(kind="gather", raw_bytes=4 * chosen),
        Kernel(kind="softmax", raw_bytes=3 * scores),
        cast,
    )
    kept = scores + (INT64_BYTES + 2.0 * FP32_BYTES) * tokens * top_k + FP32_BYTES * tokens
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(raw_bytes=kept))


def dispatch_looked_up(name: str, tokens: float, width: int, copies: float) -> Op:
    """Expert numbers sorted, rows and weights looked up in that order, rows of each expert counted.

    Forward: a range and the sort; the rows' tokens and the cast of the numbers; their histogram and
    its sums, with a clear and a first kernel of CUB; two look-ups. Backward: their gradients.
    """
    rows = tokens * copies
    every = INT64_BYTES * rows
    fwd = (
        Kernel(kind="elementwise", raw_bytes=every),
        radix_sort(rows),
        Kernel(kind="elementwise", raw_bytes=3.5 * every, launches=2.0),
        Kernel(kind="elementwise", raw_bytes=0.5 * every, launches=2.0),
        Kernel(kind=AUXILIARY, launches=2.0),
        Kernel(kind="gather", raw_bytes=2.0 * FP32_BYTES * rows + every),
        Kernel(kind="gather", low=2 * rows * width, raw_bytes=every),
    )
    bwd = (
        *added_at_indices(rows, rows, raw_bytes=FP32_BYTES * rows),
        *added_at_indices(rows, tokens, low=rows * width),
    )
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(raw_bytes=16.0 * rows))


def combine_looked_up(name: str, tokens: float, width: int, copies: float) -> Op:
    """Rows times fp32 weights, looked up in the order of tokens, and summed for each token.

    Forward: the product; a range written to where each row came from; the look-up, the sum and its
    cast. Backward: the cast, a copy for each row, the look-up's gradient, the product's two, of
    which one is cast and the other summed. Saves the experts' outputs and the order.
    """
    rows, low, out = tokens * copies, tokens * copies * width, tokens * width
    wide, every = FP32_BYTES * low, INT64_BYTES * rows
    product = Kernel(kind="elementwise", low=low, raw_bytes=wide + FP32_BYTES * rows, indexed=low)
    fwd = (
        product,
        Kernel(kind="elementwise", raw_bytes=every),
        Kernel(kind="gather", raw_bytes=3.0 * every),
        Kernel(kind="gather", raw_bytes=2.0 * wide + every),
        Kernel(kind="reduction", raw_bytes=wide + FP32_BYTES * out),
        Kernel(kind="elementwise", low=out, raw_bytes=FP32_BYTES * out),
    )
    bwd = (
        Kernel(kind="elementwise", low=out, raw_bytes=FP32_BYTES * out, indexed=out),
        Kernel(kind="copy", raw_bytes=FP32_BYTES * out + wide, indexed=low),
        *added_at_indices(rows, rows, raw_bytes=wide),
        Kernel(kind="elementwise", low=low, raw_bytes=2.0 * wide, indexed=low),
        Kernel(kind="elementwise", raw_bytes=2.0 * wide, indexed=low),
        Kernel(kind="elementwise", low=low, raw_bytes=wide),
        Kernel(kind="reduction", raw_bytes=wide + FP32_BYTES * rows),
    )
    saved = Saved(low=low, raw_bytes=12.0 * rows)
    return Op(name=name, fwd=fwd, bwd=bwd, saved=saved, result=Saved(low=out))
