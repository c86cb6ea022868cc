"""The encoder of T5 v1.1 (Raffel et al. 2020; gated GELU after Shazeer 2020), frozen.

Operator by operator as Hugging Face's T5EncoderModel runs it in half precision: RMSNorm and GELU
are separate elementwise kernels, and attention writes its scores to memory.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.workload import ops
from simcore.workload.archs import FROZEN_ARCHS
from simcore.workload.graph import Frozen, Kernel, Op
from simcore.workload.saved import NOTHING

_POSITION_BUCKETS = 32


def _pointwise(name: str, elems: float, traffic: float, launches: float) -> Op:
    """``launches`` elementwise kernels that together move ``traffic`` times ``elems`` elements."""
    return Op(name=name, fwd=(Kernel(kind="elementwise", low=traffic * elems, launches=launches),))


def _rms_norm(name: str, elems: float) -> Op:
    """Cast, square, mean, add, rsqrt, product, cast, weight; five of them in fp32."""
    return _pointwise(name, elems, 15.0, 8.0)


def _no_overflow(name: str, elems: float) -> Op:
    """In half precision only: search for infinities, choose a bound, clamp."""
    return _pointwise(name, elems, 6.0, 6.0)


def _layer(tokens: int, width: int, inner: int, heads: int, head_dim: int) -> list[Op]:
    rows, elems = float(tokens), float(tokens) * width
    attended = heads * head_dim
    scores = float(heads) * tokens * tokens
    return [
        _rms_norm("attn.norm", elems),
        *(ops.linear(f"attn.{part}", rows, width, attended) for part in "qkv"),
        *(ops.copy(f"attn.{part}.layout", rows * attended) for part in "qkv"),
        ops.bmm("attn.scores", heads, tokens, tokens, head_dim),
        _pointwise("attn.bias", scores, 3.0, 1.0),
        _pointwise("attn.to_float", scores, 3.0, 1.0),
        ops.softmax("attn.softmax", scores),
        _pointwise("attn.to_half", scores, 3.0, 1.0),
        ops.bmm("attn.context", heads, tokens, head_dim, tokens),
        ops.copy("attn.merge", rows * attended),
        ops.linear("attn.o", rows, attended, width),
        ops.binary("attn.residual", elems, grads=0),
        _no_overflow("attn.clamp", elems),
        _rms_norm("ff.norm", elems),
        ops.linear("ff.wi_0", rows, width, inner),
        _pointwise("ff.gelu", rows * inner, 18.0, 8.0),
        ops.linear("ff.wi_1", rows, width, inner),
        ops.binary("ff.gate", rows * inner, grads=0),
        ops.linear("ff.wo", rows, inner, width),
        ops.binary("ff.residual", elems, grads=0),
        _no_overflow("ff.clamp", elems),
    ]


@FROZEN_ARCHS.register("t5_encoder")
def t5_encoder(
    *, name: str, tokens: int = 120, layers: int = 24, width: int = 4096, inner: int = 10240,
    heads: int = 64, head_dim: int = 64, vocab: int = 32128,
) -> Frozen:  # fmt: skip
    """The encoder of one caption of ``tokens`` tokens per sample, padding included."""
    attended = heads * head_dim
    per_layer = 4 * width * attended + 3 * width * inner + 2 * width
    numel = layers * per_layer + vocab * width + _POSITION_BUCKETS * heads + width
    bias = Op(
        name="position_bias",
        fwd=(
            Kernel(kind="elementwise", raw_bytes=16.0 * tokens * tokens, launches=16.0),
            Kernel(kind="gather", low=2.0 * heads * tokens * tokens),
            Kernel(kind="elementwise", low=2.0 * heads * tokens * tokens),
        ),
    )
    body = _layer(tokens, width, inner, heads, head_dim) * layers
    elems = float(tokens) * width
    all_ops = [ops.embedding("shared", tokens, width, vocab), bias, *body,
               _rms_norm("final_norm", elems)]  # fmt: skip
    # Within the GELU its input and three intermediates are live, and the layer's input, the
    # residual, the normalised residual and the position bias.
    transient = 4.0 * tokens * inner + 3 * elems + float(heads) * tokens * tokens
    return Frozen(
        name=name,
        resident_numel=numel,
        ops=tuple(replace(op, bwd=(), saved=NOTHING) for op in all_ops),
        transient_low=transient,
        bytes_per_param=2.0,
    )
