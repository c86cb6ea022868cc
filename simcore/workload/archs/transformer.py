"""Decoder-only language models: GPT-2's layout, and by flags the later ones (rotary positions,
RMSNorm, SwiGLU, grouped-query attention, untied head, no biases).
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.graph import Block, Kernel, Op, Param, Saved, Workload

_INT64_BYTES = 8
_CHOICES = {
    "norm": ("layernorm", "rmsnorm"),
    "mlp": ("gelu", "gelu_new", "swiglu"),
    "positions": ("learned", "rope", "none"),
    "attention": ("flash", "math"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    seq: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    rms: bool
    bias: bool
    fused_qkv: bool
    rope: bool
    mlp: str
    flash: bool
    drop: bool

    @property
    def elems(self) -> float:
        return float(self.seq * self.hidden)

    @property
    def q_dim(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_dim(self) -> int:
        return self.kv_heads * self.head_dim


def _norm(name: str, s: _Shape) -> Op:
    return ops.layer_norm(name, s.seq, s.hidden, rms=s.rms)


def _norm_params(name: str, s: _Shape) -> tuple[Param, ...]:
    weight = Param(f"{name}.weight", s.hidden)
    return (weight,) if s.rms else (weight, Param(f"{name}.bias", s.hidden))


def _linear_params(name: str, k: int, n: int, bias: bool) -> tuple[Param, ...]:
    weight = Param(f"{name}.weight", k * n)
    return (weight, Param(f"{name}.bias", n)) if bias else (weight,)


def _dropout(name: str, elems: float, on: bool, *, high: bool = False) -> tuple[Op, ...]:
    return (ops.dropout(name, elems, high=high),) if on else ()


def _rope(name: str, elems: float) -> Op:
    """``x cos + rotate_half(x) sin``: forward mul, neg (half), cat, mul, add.

    Backward: two products, neg, the two halves each scattered into zeros, two sums. Nothing is
    kept but the cosines and sines of one sequence, shared by all layers.
    """
    fwd = (
        Kernel(kind="elementwise", low=8 * elems, launches=4.0),
        Kernel(kind="copy", low=2 * elems),
    )
    bwd = (
        Kernel(kind="elementwise", low=11 * elems, launches=5.0),
        Kernel(kind="copy", low=5 * elems, launches=4.0),
    )
    return Op(name=name, fwd=fwd, bwd=bwd)


def _attention(s: _Shape) -> tuple[tuple[Op, ...], tuple[Param, ...]]:
    q, kv = float(s.seq * s.q_dim), float(s.seq * s.kv_dim)
    packed = s.q_dim + 2 * s.kv_dim
    body: list[Op] = [_norm("norm1", s)]
    params: list[Param] = [*_norm_params("norm1", s)]
    if s.fused_qkv:
        body.append(ops.linear("qkv", s.seq, s.hidden, packed, bias=s.bias))
        # the gradients of q, k and v are joined
        body.append(ops.grad_only("qkv.cat", 2 * (q + 2 * kv), kind="copy"))
        params += _linear_params("qkv", s.hidden, packed, s.bias)
    else:
        for part, width in (("q", s.q_dim), ("k", s.kv_dim), ("v", s.kv_dim)):
            first = part == "q"
            body.append(ops.linear(part, s.seq, s.hidden, width, bias=s.bias, save_input=first))
            params += _linear_params(part, s.hidden, width, s.bias)
        body.append(ops.accumulate("qkv.forks", s.elems, times=2))
    if s.rope:
        body += [_rope("rope.q", q), _rope("rope.k", kv)]
    if s.flash:
        body.append(
            ops.sdpa("attention", 1, s.heads, s.kv_heads, s.seq, s.seq, s.head_dim, causal=True)
        )
    else:
        if s.kv_heads != s.heads:
            copies = Kernel(kind="copy", low=2 * (kv + q), launches=2.0)
            sums = Kernel(kind="reduction", low=2 * (kv + q), launches=2.0)
            body.append(Op(name="attention.repeat_kv", fwd=(copies,), bwd=(sums,)))
        body += ops.attention_eager(
            "attention", s.heads, s.seq, s.seq, s.head_dim, mask="where", drop=s.drop
        )
    body += [
        ops.linear("attention.out", s.seq, s.q_dim, s.hidden, bias=s.bias, save_input=not s.flash),
        *_dropout("attention.dropout", s.elems, s.drop),
        ops.binary("attention.residual", s.elems, grads=0, high=True),
        ops.accumulate("attention.fork", s.elems, high=True),
    ]
    params += _linear_params("attention.out", s.q_dim, s.hidden, s.bias)
    return tuple(body), tuple(params)


def _gelu_new(elems: float) -> Op:
    """0.5 x (1 + tanh(c (x + a x^3))) in tensor operations, as transformers writes GPT-2's.

    Forward eight kernels (pow, mul, add, mul, tanh, mul, add, mul); backward eleven. Kept: x,
    the tanh and both factors of the last product. (Autocast runs pow in fp32; not modelled.)
    """
    fwd = Kernel(kind="elementwise", low=19 * elems, launches=8.0)
    bwd = Kernel(kind="elementwise", low=28 * elems, launches=11.0)
    return Op(name="gelu_new", fwd=(fwd,), bwd=(bwd,), saved=Saved(low=4 * elems))


def _mlp(s: _Shape) -> tuple[tuple[Op, ...], tuple[Param, ...]]:
    inner = float(s.seq * s.ffn)
    body: list[Op] = [_norm("norm2", s)]
    params: list[Param] = [*_norm_params("norm2", s)]
    if s.mlp == "swiglu":
        body += [
            ops.linear("gate", s.seq, s.hidden, s.ffn, bias=s.bias),
            ops.linear("up", s.seq, s.hidden, s.ffn, bias=s.bias, save_input=False),
            ops.accumulate("mlp.inputs", s.elems),
            ops.activation("silu", inner),
            ops.binary("product", inner, saves=2 * inner, grads=2),
        ]
        params += _linear_params("gate", s.hidden, s.ffn, s.bias)
    else:
        act = _gelu_new(inner) if s.mlp == "gelu_new" else ops.activation("gelu", inner)
        body += [ops.linear("up", s.seq, s.hidden, s.ffn, bias=s.bias), act]
    params += _linear_params("up", s.hidden, s.ffn, s.bias)
    body += [
        ops.linear("down", s.seq, s.ffn, s.hidden, bias=s.bias),
        *_dropout("mlp.dropout", s.elems, s.drop),
        ops.binary("mlp.residual", s.elems, grads=0, high=True),
        ops.accumulate("mlp.fork", s.elems, high=True),
    ]
    params += _linear_params("down", s.ffn, s.hidden, s.bias)
    return tuple(body), tuple(params)


def _embeddings(s: _Shape, vocab: int, table_rows: int) -> Block:
    body: list[Op] = [ops.embedding("tokens", s.seq, s.hidden, vocab)]
    params = [Param("tokens.weight", vocab * s.hidden)]
    if table_rows:
        arange = Kernel(kind="elementwise")
        body += [
            Op(name="position_ids", fwd=(arange,)),
            ops.add_positions("positions", s.seq, s.hidden, table_rows=table_rows),
        ]
        params.append(Param("positions.weight", table_rows * s.hidden))
    elif s.rope:
        # ids, outer product, cos, sin: once for all layers
        body.append(Op(name="rope.table", fwd=(Kernel(kind="elementwise", launches=5.0),)))
    body += _dropout("dropout", s.elems, s.drop, high=True)
    return Block(name="embeddings", ops=tuple(body), params=tuple(params))


def _head(s: _Shape, vocab: int, tied: bool) -> Block:
    body: list[Op] = [_norm("norm", s), ops.linear("head", s.seq, s.hidden, vocab)]
    params = list(_norm_params("norm", s))
    if tied:
        # the shared table's two gradients are summed
        body.append(ops.grad_only("tie", 0.0, weight=3.0 * vocab * s.hidden))
    else:
        params.append(Param("head.weight", vocab * s.hidden))
    body += ops.lm_loss("loss", s.seq, vocab)
    return Block(name="head", ops=tuple(body), params=tuple(params))


def _check(given: dict[str, str]) -> None:
    for key, value in given.items():
        if value not in _CHOICES[key]:
            raise ValueError(f"{key} {value!r} is none of {', '.join(_CHOICES[key])}")


@ARCHS.register("transformer")
def build(
    *,
    name: str,
    sample_unit: str = "sequence",
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int = 0,
    head_dim: int = 0,
    ffn: int = 0,
    vocab: int,
    seq_len: int,
    max_positions: int = 0,
    norm: str = "layernorm",
    mlp: str = "gelu",
    positions: str = "learned",
    bias: bool = True,
    fused_qkv: bool = True,
    tied: bool = True,
    attention: str = "flash",
    dropout: float = 0.0,
) -> Workload:
    """A causal language model over ``seq_len`` tokens with the loss at every position.

    Zeros mean: ``kv_heads`` = heads, ``head_dim`` = hidden / heads, ``ffn`` = 4 hidden,
    ``max_positions`` = seq_len. ``mlp="gelu"`` is one fused kernel, ``gelu_new`` eight.
    """
    _check({"norm": norm, "mlp": mlp, "positions": positions, "attention": attention})
    kv_heads = kv_heads or heads
    if not head_dim and hidden % heads:
        raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}")
    if heads % kv_heads:
        raise ValueError(f"heads {heads} is not a multiple of kv_heads {kv_heads}")
    table_rows = (max_positions or seq_len) if positions == "learned" else 0
    if seq_len < 1 or (table_rows and seq_len > table_rows):
        raise ValueError(f"seq_len {seq_len} is not within 1..{table_rows or 'any'}")
    shape = _Shape(
        seq=seq_len, hidden=hidden, heads=heads, kv_heads=kv_heads,
        head_dim=head_dim or hidden // heads, ffn=ffn or 4 * hidden, rms=norm == "rmsnorm",
        bias=bias, fused_qkv=fused_qkv, rope=positions == "rope", mlp=mlp,
        flash=attention == "flash", drop=dropout > 0,
    )  # fmt: skip
    (attention_ops, attention_params), (mlp_ops, mlp_params) = _attention(shape), _mlp(shape)
    layer = Block(
        name="layer",
        ops=attention_ops + mlp_ops,
        params=attention_params + mlp_params,
        boundary=Saved(high=shape.elems),
        recomputable=True,
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(_embeddings(shape, vocab, table_rows), layer, _head(shape, vocab, tied)),
        order=(0, *[1] * layers, 2),
        input_bytes=2.0 * _INT64_BYTES * seq_len,  # tokens and labels
        tokens_per_sample=seq_len,
    )
