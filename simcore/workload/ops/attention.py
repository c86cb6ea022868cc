"""Attention: fused (flash, scores never reach device memory) and written out (eager)."""

from __future__ import annotations

from typing import Any, Literal

from simcore.workload.graph import Affine, Kernel, Op, Saved
from simcore.workload.ops.gemm import bmm
from simcore.workload.ops.norm import softmax
from simcore.workload.ops.pointwise import binary, copy, dropout, scale


def sdpa(
    name: str,
    batch: float,
    heads: int,
    kv_heads: int,
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    *,
    causal: bool = False,
    save_qkv: bool = True,
) -> Op:
    """Flash attention over ``batch`` sequences a sample (Dao 2022).

    Forward 4·Sq·Skv·d FLOP a head, backward 2.5 times that (five products for two); a causal
    mask halves both. Saves q, k, v, the output and one fp32 log-sum-exp a query row.
    """
    flop = 4.0 * batch * heads * seq_q * seq_kv * head_dim * (0.5 if causal else 1.0)
    q = batch * heads * seq_q * head_dim
    kv = 2.0 * batch * kv_heads * seq_kv * head_dim
    geometry: dict[str, Any] = {
        "m": Affine(seq_q), "n": Affine(head_dim), "k": Affine(seq_kv),
        "groups": Affine(0, batch * heads),
    }  # fmt: skip
    fwd = Kernel(kind="attention", flop=flop, low=2 * q + kv, **geometry)
    bwd = Kernel(kind="attention", flop=2.5 * flop, low=4 * q + 2 * kv, launches=3.0, **geometry)
    saved = Saved(low=q + (q + kv) * save_qkv, raw_bytes=4.0 * batch * heads * seq_q)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved)


def attention_eager(
    name: str,
    heads: int,
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    *,
    mask: Literal["none", "add", "where"] = "none",
    drop: bool = False,
) -> tuple[Op, ...]:
    """Attention written out for one sequence a sample: matmul, scale, mask, softmax, matmul.

    q, k and v come as permuted views: matmul copies them, and the copies are what it saves.
    An additive mask is fp32, so under autocast its sum is too. Without dropout the
    probabilities that the second product saves are the softmax's output, counted there.
    """
    scores = float(heads) * seq_q * seq_kv
    q, kv = float(heads) * seq_q * head_dim, float(heads) * seq_kv * head_dim
    parts = [copy(f"{name}.q", q), copy(f"{name}.k", kv), copy(f"{name}.v", kv)]
    parts += [bmm(f"{name}.scores", heads, seq_q, seq_kv, head_dim), scale(f"{name}.scale", scores)]
    if mask == "add":
        parts.append(binary(f"{name}.mask", scores, broadcast=seq_kv, grads=0, high=True))
    elif mask == "where":
        masked = Kernel(kind="elementwise", low=2 * scores)
        parts.append(
            Op(name=f"{name}.mask", fwd=(masked, Kernel(kind="elementwise")), bwd=(masked,))
        )
    parts.append(softmax(f"{name}.softmax", scores))
    if drop:
        parts.append(dropout(f"{name}.dropout", scores, high=True))
    parts.append(bmm(f"{name}.context", heads, seq_q, head_dim, seq_kv, save_left=drop))
    parts.append(copy(f"{name}.merge", q))
    return tuple(parts)
