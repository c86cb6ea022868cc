"""Attention to a window and to compressed keys, which are the values too (DeepSeek-V4).

transformers, modeling_deepseek_v4.py: DeepseekV4Attention and its two compressors. One head of keys
serves all heads of queries; several tokens' keys are summed to one entry, by weights that a softmax
gives each channel.
"""

from __future__ import annotations

import math

from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import FLASH, AttentionShape, eager_attention, rope
from simcore.workload.archs.lm_settings import Compressed
from simcore.workload.graph import Affine, Kernel, Op
from simcore.workload.saved import Saved

#: Letters of ``Compressed.compress_pattern``: a window alone, entries of many tokens, entries of
#: few tokens that an indexer selects.
KINDS = "whs"


def compressed_attention(
    body: Body, s: AttentionShape, c: Compressed, letter: str, reads: str, window: int
) -> None:
    """Add attention of one layer with its output products; ``letter``: one of ``KINDS``."""
    rows, heads, dim = float(s.seq), s.own.heads, s.own.head_dim
    turned, kept = rows * s.rotated, rows * (dim - s.rotated)
    body.param("sinks", heads)
    body.linear("q_a", rows, s.hidden, s.own.q_rank, bias=s.qkv_bias, reads=reads)
    body.norm("q_a_norm", rows, s.own.q_rank, s.norm, narrow=True)
    body.linear("q_b", rows, s.own.q_rank, s.q_dim, reads="q_a_norm")
    body.norm("q_norm", rows * heads, dim, s.norm, weight=False, narrow=True)
    body.linear("kv", rows, s.hidden, dim, bias=s.qkv_bias, reads=reads)
    body.norm("kv_norm", rows, dim, s.norm, narrow=True)
    body.add(
        rope("rope.q", turned * heads, kept * heads),
        rope("rope.k", turned, kept),
        ops.accumulate("kv.fork", rows * dim),
        ops.accumulate(
            "qkv.forks", rows * s.hidden, times=1 if letter == "w" else 3, high=reads in body.high
        ),
    )
    rate = {"w": 0, "h": c.heavy_rate, "s": c.sparse_rate}[letter]
    entries = s.seq // rate if rate else 0
    if rate:
        _compress(body, s, rate, entries, twice=letter == "s", reads=reads)
    if letter == "s":
        _index(body, s, rate, entries)
    selected = s.indexer.index_top if letter == "s" else 0
    if s.kernel in FLASH:
        pairs = _pairs(s.seq, window, rate, selected)
        body.add(
            ops.sdpa(
                "attention", 1, heads, 1, s.seq, s.seq, dim, causal=True, kind=FLASH[s.kernel],
                window=_as_window(s.seq, pairs), drop=s.drop,
            )
        )  # fmt: skip
    else:
        eager_attention(body, s, s.seq + entries)
    body.add(rope("rope.out", turned * heads, kept * heads))  # undone at the place of the query
    groups, each = c.out_groups, s.out_dim // c.out_groups
    body.add(
        ops.grouped_linear(
            "attention.group_out", rows * groups, each, c.out_rank, groups,
            weight_grad=body.trains, joint=True,
        )
    )  # fmt: skip
    body.param("attention.group_out.weight", groups * each * c.out_rank)
    body.linear(
        "attention.out", rows, groups * c.out_rank, s.hidden, bias=s.out_bias, reads="context"
    )


def _pool(name: str, rows: float, width: float, entries: float, out: float) -> Op:
    """``rows x width`` keys summed to ``entries x out`` by a softmax in fp32 over tokens."""
    given, result = rows * width, entries * out
    fwd = (
        Kernel(kind="elementwise", low=3 * given),  # the gate and its bias by position
        Kernel(kind="copy", low=4 * given, launches=2.0),
        Kernel(kind="softmax", low=given, raw_bytes=4.0 * given),
        Kernel(kind="elementwise", low=4 * given, launches=2.0),
        Kernel(kind="reduction", low=given + result),
    )
    bwd = (
        Kernel(kind="elementwise", low=5 * given, launches=2.0),
        Kernel(kind="softmax", low=given, raw_bytes=8.0 * given),
        Kernel(kind="copy", low=4 * given, launches=2.0),
        Kernel(kind="reduction", low=given),
    )
    # the product's two factors, and the softmax's result
    return Op(name=name, fwd=fwd, bwd=bwd, saved=Saved(low=2 * given, raw_bytes=4.0 * given))


def _compress(
    body: Body, s: AttentionShape, rate: int, entries: int, *, twice: bool, reads: str
) -> None:
    """Add the compressor; ``twice``: an entry has the tokens of its own and of the one before."""
    rows, dim = float(s.seq), s.own.head_dim
    width = dim * (1 + twice)
    body.linear("compress.kv", rows, s.hidden, width, reads=reads)
    body.linear("compress.gate", rows, s.hidden, width, reads=reads)
    body.param("compress.bias", rate * width)
    body.add(_pool("compress.pool", rows, width, entries, dim))
    body.norm("compress.norm", entries, dim, s.norm, narrow=True)
    body.add(
        rope("compress.rope", float(entries * s.rotated), float(entries * (dim - s.rotated))),
        ops.copy("compress.joined", rows * dim + entries * dim),
    )


def _index(body: Body, s: AttentionShape, rate: int, entries: int) -> None:
    """Add the indexer with a compressor of its own, which run forward alone, without gradients.

    Scores of all pairs of which the causal half is computed, as of ``lm_attention``'s indexer.
    """
    x, rows = s.indexer, float(s.seq)
    heads, dim = x.index_heads, x.index_dim
    parts = (("kv", s.hidden, 2 * dim), ("gate", s.hidden, 2 * dim),
             ("q", s.own.q_rank, heads * dim), ("weights", s.hidden, heads))  # fmt: skip
    for part, width, out in parts:
        product = ops.linear(f"index.{part}", rows, width, out, input_grad=False, weight_grad=False)
        body.add(Op(name=product.name, fwd=product.fwd))
        body.param(f"index.{part}.weight", width * out)
    body.param("index.bias", rate * 2 * dim)
    body.param("index.norm.weight", dim)
    pairs, queries = rows * entries, rows * heads * dim
    scores = Kernel(
        kind="gemm", flop=pairs * heads * dim, low=queries + entries * dim, raw_bytes=2.0 * pairs,
        m=Affine(0, rows * heads), n=Affine(entries), k=Affine(dim),
    )  # fmt: skip
    body.add(
        Op(name="index.pool", fwd=_pool("", rows, 2 * dim, entries, dim).fwd),
        Op(name="index.rope", fwd=rope("", queries).fwd),
        Op(name="index.scores", fwd=(scores,)),
        Op(name="index.top", fwd=(Kernel(kind="reduction", raw_bytes=2.0 * pairs, launches=2.0),)),
    )


def _pairs(seq: int, window: int, rate: int, selected: int) -> float:
    """Pairs of a query and a key or entry that attention computes."""
    near = min(window, seq)
    pairs = near * (seq - near / 2.0)
    if not rate:
        return pairs
    # a query sees one entry for each ``rate`` tokens before it, at most ``selected``
    most = min(seq // rate, selected or seq)
    return pairs + most * (seq - rate * most / 2.0)


def _as_window(seq: int, pairs: float) -> int:
    """The window w that has as many pairs: w (seq - w / 2)."""
    return max(1, round(seq - math.sqrt(max(0.0, float(seq) ** 2 - 2.0 * pairs))))
