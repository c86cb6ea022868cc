"""Fused scaled-dot-product attention (flash): scores never reach device memory."""

from __future__ import annotations

from simcore.workload.graph import Affine, Kernel, Op, Saved


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
    geometry = {
        "m": Affine(seq_q), "n": Affine(head_dim), "k": Affine(seq_kv),
        "groups": Affine(0, batch * heads),
    }  # fmt: skip
    fwd = Kernel(kind="attention", flop=flop, low=2 * q + kv, **geometry)
    bwd = Kernel(kind="attention", flop=2.5 * flop, low=4 * q + 2 * kv, launches=3.0, **geometry)
    saved = Saved(low=q + (q + kv) * save_qkv, raw_bytes=4.0 * batch * heads * seq_q)
    return Op(name=name, fwd=(fwd,), bwd=(bwd,), saved=saved)
