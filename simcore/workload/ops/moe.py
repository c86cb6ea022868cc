"""Mixture of experts: router, dispatch of tokens, products grouped by expert, combination.

The experts of a rank share its rows evenly: tokens * top_k rows where routing is balanced and drops
nothing, otherwise as many as the caller states. All experts' weights are read in each step, which
is so when there are more rows than experts.
"""

from __future__ import annotations

from simcore.workload.graph import NONE, Affine, Kernel, Op
from simcore.workload.saved import Saved

#: Host work of a launch in a C++ loop, relative to that of a kernel that Megatron-Core's modules
#: issue: 8.6 us for one expert's product on Grace (TransformerEngine issue 2897: 64 experts of two
#: products, 1.2 ms forward and 2.1 ms backward) over 114 us (runtime.yaml).
LOOPED_ISSUE = 0.075
#: Kernel issues of host work during which the device is idle in a layer's forward, where the host
#: reads the number of each expert's rows from the device and then issues the experts' kernels: some
#: whatever their number, some for each expert in four loops (casts and products of both matrices).
#: A layer of DeepSeek-V3 on GB200 in MXFP8, attention and routing as a graph, 8 experts a rank
#: (NVIDIA/Megatron-LM, branch dev, docs/discussions/deepseek-v3-gb200-optimization, image7): gaps
#: of 1.4 ms before dispatch, permutation, casts, products and combination, 8 issues of 174 us.
#: The same guide expects at least 10 % of a step from a device that never waits.
IDLE_ISSUES, IDLE_ISSUES_AN_EXPERT = 5.6, 4.0 * LOOPED_ISSUE
#: Rows of a tile of products grouped by expert: those of torch's kernel on Hopper, 128 x 256
#: (aten/src/ATen/native/cuda/GroupMM.cu, dispatch_bf16_grouped_kernel_on_tile_size).
TILE_ROWS = 128.0


def route(
    name: str, tokens: float, experts: int, top_k: int, groups: int = 1, top_groups: int = 1
) -> Op:
    """Scores to probabilities, the ``top_k`` experts of each token, and their normalised weights.

    If only experts of ``top_groups`` of a token's ``groups`` may be chosen, the best scores of each
    group are summed, and scores of the other groups are masked (Megatron-Core, moe_utils.py,
    group_limited_topk; DeepSeek-V3's own inference/model.py, Gate). Saves the probabilities (fp32)
    and, for each choice, its index (int64) and weight.
    """
    scores, chosen = tokens * experts, tokens * top_k
    fwd: tuple[Kernel, ...] = (
        Kernel(kind="softmax", high=2 * scores),
        Kernel(kind="gather", high=scores + chosen, raw_bytes=8.0 * chosen),
        Kernel(kind="reduction", high=chosen + tokens),
        Kernel(kind="elementwise", high=2 * chosen),
    )
    if top_groups < groups:
        best = tokens * groups
        fwd = (
            fwd[0],
            Kernel(kind="gather", high=scores + 2 * best),
            Kernel(kind="reduction", high=3 * best),
            Kernel(kind="gather", high=best + tokens * top_groups),
            Kernel(kind="elementwise", high=2 * best, launches=2.0),
            Kernel(kind="elementwise", high=2 * scores, raw_bytes=scores),
            *fwd[1:],
        )
    bwd = (
        Kernel(kind="elementwise", high=6 * chosen, launches=3.0),
        Kernel(kind="gather", high=scores + chosen, raw_bytes=8.0 * chosen),
        Kernel(kind="softmax", high=3 * scores),
    )
    return Op(
        name=name,
        fwd=fwd,
        bwd=bwd,
        saved=Saved(raw_bytes=4.0 * scores + (8.0 + 4.0 + 4.0) * chosen + 4.0 * tokens),
    )


def dispatch(
    name: str, tokens: float, width: int, copies: float, *, fused: bool = False,
    awaited_experts: int | None = None,
) -> Op:  # fmt: skip
    """Rows sorted by expert and copied, ``copies`` per token; backward sums the copies.

    ``fused``: a kernel sums a token's rows in registers (Transformer Engine's moe_unpermute), where
    index_add reads and writes the sum for each row. ``awaited_experts``: experts whose kernels the
    host issues one by one once it has read their numbers of rows; None: it does not wait for these.
    """
    rows = tokens * copies
    awaited = NONE
    if awaited_experts is not None:
        awaited = Affine(IDLE_ISSUES + IDLE_ISSUES_AN_EXPERT * awaited_experts)
    sort = Kernel(kind="elementwise", raw_bytes=48.0 * rows, launches=3.0, awaited=awaited)
    fwd = (sort, Kernel(kind="gather", low=2 * rows * width, raw_bytes=8.0 * rows))
    moved = (2 if fused else 3) * rows * width
    bwd = (Kernel(kind="gather", low=moved, raw_bytes=8.0 * rows),)
    # The token that each row came from, and which of the token's choices it was.
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(raw_bytes=16.0 * rows))


def grouped_linear(
    name: str,
    rows: float,
    k: int,
    n: int,
    experts: int,
    *,
    save_input: bool = True,
    weight_grad: bool = True,
    joint: bool = False,
    looped: bool = False,
    edge_rows: int = 0,
) -> Op:
    """``rows`` rows per sample in ``experts`` equal groups, each multiplied by its own ``[k, n]``.

    Each group is a separate launch, as in Transformer Engine's GroupedLinear and in models that
    loop over their experts; the launches run in parallel. ``joint``: one launch for all groups.
    ``looped``: a C++ loop issues them, as in GroupedLinear, not Python. ``edge_rows``: rows of a
    tile; one that lies across the edge of two groups is computed for both. Otherwise each group
    begins a tile and has as many rows as were routed to it, so that its last tile is half empty on
    average: the fixed part of ``m``.
    """
    launches = 1.0 if joint else float(experts)
    issues = 1.0 + LOOPED_ISSUE * launches if looped else None
    flop, weight = 2.0 * rows * k * n, float(experts) * k * n
    at_edges = edge_rows * (experts - 1) / experts
    each = Affine(at_edges or TILE_ROWS / 2.0 * (experts > 1), rows / experts)

    def product(m: Affine, cols: Affine, depth: Affine, cast: float) -> Kernel:
        return Kernel(
            kind="gemm", flop=flop, low=rows * (k + n), weight=weight,
            m=m, n=cols, k=depth, groups=Affine(experts),
            launches=launches, cast=cast, issues=issues,
        )  # fmt: skip

    bwd = [product(each, Affine(k), Affine(n), rows * n)]
    if weight_grad:
        bwd.append(product(Affine(k), Affine(n), Affine(at_edges, rows / experts), 0.0))
    return Op(
        name=name,
        fwd=(product(each, Affine(n), Affine(k), rows * k),),
        bwd=tuple(bwd),
        saved=Saved(matmul=rows * k * (save_input and weight_grad)),
        gemm_weight=weight * weight_grad,
    )


def regroup(name: str, rows: float, width: int) -> Op:
    """Rows copied into another order, forward and backward.

    A plain all-to-all delivers rows ordered by sender; they are brought into the order of experts,
    or back.
    """
    kernel = Kernel(kind="gather", low=2 * rows * width, raw_bytes=8.0 * rows)
    return Op(name=name, fwd=(kernel,), bwd=(kernel,))


def combine(name: str, tokens: float, width: int, copies: float, *, weighed: bool = True) -> Op:
    """Each row multiplied by its weight and added into its token; saves the experts' outputs.

    ``weighed=False``: the rows are already weighted (Megatron-Core multiplies in the experts'
    activation: experts.py, weighted_bias_swiglu_impl). One kernel then sums a token's rows, as the
    fused one of ``dispatch`` does (SimuMax measured equal times for both), and saves no rows.
    """
    rows, out = tokens * copies, tokens * width
    spread = Kernel(kind="gather", low=2 * rows * width, raw_bytes=8.0 * rows)
    if not weighed:
        return Op(name=name, fwd=(spread,), bwd=(spread,), saved=Saved(raw_bytes=12.0 * rows))
    summed = Kernel(kind="gather", low=3 * rows * width + out, raw_bytes=8.0 * rows)
    elems = rows * width  # a weight is broadcast over its row
    fwd = (Kernel(kind="elementwise", low=2 * elems, high=rows, indexed=elems), summed)
    bwd = (
        spread,
        Kernel(kind="elementwise", low=5 * elems, high=rows, launches=2.0, indexed=elems),
        Kernel(kind="reduction", low=rows * width, high=rows),
    )
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(low=rows * width, raw_bytes=12.0 * rows))
