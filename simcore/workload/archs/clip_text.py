"""The text tower of CLIP (Radford et al. 2021), frozen; it encodes the pooled caption of Flux.

Operator by operator as Hugging Face's CLIPTextModel runs it with fused attention.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.workload import ops
from simcore.workload.archs import FROZEN_ARCHS
from simcore.workload.graph import Frozen, Kernel, Op
from simcore.workload.saved import NOTHING


def _layer(tokens: int, width: int, inner: int, heads: int) -> list[Op]:
    rows, elems = float(tokens), float(tokens) * width
    quick_gelu = Kernel(kind="elementwise", low=7 * rows * inner, launches=3.0)
    return [
        ops.layer_norm("norm1", rows, width),
        *(ops.linear(part, rows, width, width, bias=True) for part in "qkv"),
        ops.sdpa("attention", 1, heads, heads, tokens, tokens, width // heads, causal=True),
        ops.linear("out", rows, width, width, bias=True),
        ops.binary("residual1", elems),
        ops.layer_norm("norm2", rows, width),
        ops.linear("fc1", rows, width, inner, bias=True),
        Op(name="gelu", fwd=(quick_gelu,)),
        ops.linear("fc2", rows, inner, width, bias=True),
        ops.binary("residual2", elems),
    ]


@FROZEN_ARCHS.register("clip_text_encoder")
def clip_text_encoder(
    *, name: str, tokens: int = 77, layers: int = 12, width: int = 768, inner: int = 3072,
    heads: int = 12, vocab: int = 49408, positions: int = 77,
) -> Frozen:  # fmt: skip
    """The encoder of one caption of ``tokens`` tokens per sample, padding included."""
    if not 1 <= tokens <= positions:
        raise ValueError(f"tokens={tokens} is not within 1..{positions}")
    per_layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    numel = layers * per_layer + (vocab + positions) * width + 2 * width
    elems = float(tokens) * width
    all_ops = [
        ops.embedding("tokens", tokens, width, vocab),
        ops.binary("positions", elems),
        *_layer(tokens, width, inner, heads) * layers,
        ops.layer_norm("final_norm", tokens, width),
    ]
    return Frozen(
        name=name,
        resident_numel=numel,
        ops=tuple(replace(op, bwd=(), saved=NOTHING) for op in all_ops),
        # Within the GELU its input and two intermediates are live, and the residual and its norm.
        transient_low=3.0 * tokens * inner + 2 * elems,
        bytes_per_param=2.0,
    )
