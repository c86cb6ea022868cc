"""Zamba2 (Glorioso et al. 2024, arXiv 2411.15242): Mamba-2 layers with shared transformer blocks.

As transformers runs it (models/zamba2/modeling_zamba2.py). Some layers come after a transformer
block that they share. A shared block reads the layer's input joined with the embedding, twice as
wide. Its depths differ in low-rank products that are added to the block's own and in one product
after the block.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.base.record import dataclass
from simcore.base.units import INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, check_names, settings_by_part
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_attention import FLASH, AttentionShape, attention
from simcore.workload.archs.lm_mixers import MixerShape, mamba
from simcore.workload.archs.lm_mlp import gate_product
from simcore.workload.archs.lm_settings import Attention
from simcore.workload.graph import Block, Workload
from simcore.workload.saved import Saved

_NORMS = ("rmsnorm", "rmsnorm_eager")


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """Sizes that layers share; ``rank``: of the products that each depth of a shared block has."""

    attention: AttentionShape
    mixer: MixerShape
    hidden: int
    ffn: int
    rank: int
    adapted: bool
    norm: str

    @property
    def seq(self) -> int:
        return self.mixer.seq

    @property
    def elems(self) -> float:
        return float(self.seq * self.hidden)


def _depth_product(body: Body, s: _Shape, name: str, k: int, n: int, reads: str) -> None:
    """Add a low-rank product of one depth to that of the shared block."""
    rows = float(s.seq)
    body.linear(f"{name}.adapter_a", rows, k, s.rank, reads=reads)
    body.linear(f"{name}.adapter_b", rows, s.rank, n, reads=f"{name}.adapter_a")
    body.add(
        ops.binary(f"{name}.adapter_sum", rows * n, grads=0),
        ops.accumulate(f"{name}.adapter_fork", rows * k),
    )


def _shared(body: Body, s: _Shape) -> None:
    """Add the transformer block and the product after it; the result is added to Mamba's input."""
    wide, rows = 2 * s.hidden, float(s.seq)
    # The embedding's gradients of all depths are summed.
    body.add(ops.copy("shared.cat", 2 * s.elems, as_it_lies=True),
             ops.accumulate("shared.fork", s.elems, times=2))  # fmt: skip
    body.norm("attention.norm", rows, wide, s.norm, reads="shared.cat")
    attention(body, s.attention, "attention.norm")
    if s.adapted:
        for part in "qkv":
            _depth_product(body, s, part, wide, wide, "attention.norm")
    body.norm("mlp.norm", rows, s.hidden, s.norm, narrow=True)
    body.linear("gate_up", rows, s.hidden, 2 * s.ffn, reads="mlp.norm")
    _depth_product(body, s, "gate_up", s.hidden, 2 * s.ffn, "mlp.norm")
    body.add(*gate_product("geglu", rows * s.ffn, halves=True))
    body.linear("down", rows, s.ffn, s.hidden, reads="product")
    body.linear("shared.linear", rows, s.hidden, s.hidden, reads="down")
    body.add(ops.residual("shared.residual", s.elems))


def _layer(s: _Shape, name: str, shared: bool) -> Block:
    body = Body()
    if shared:
        _shared(body, s)
    body.norm("norm1", float(s.seq), s.hidden, s.norm, reads="" if shared else "x")
    mamba(body, s.mixer, "norm1")
    body.add(
        ops.residual("mixer.residual", s.elems),
        ops.accumulate("mixer.fork", s.elems, high=True, casts=s.elems),
    )
    return body.block(name, boundary=Saved(high=s.elems), recomputable=True)


def _own(name: str) -> bool:
    """Whether a parameter of a layer with a shared block belongs to its depth alone."""
    shared = {"attention.norm", "q", "k", "v", "attention.out", "mlp.norm", "gate_up", "down"}
    return name.removesuffix(".weight") not in shared


def _repeated_layer(layer: Block) -> Block:
    """The layer at a further depth; its gradients of the shared block are added to the first's."""
    own = tuple(p for p in layer.params if _own(p.name))
    sums = ops.grad_only(
        "shared", 0.0, weight=3.0 * (layer.numel - sum(p.numel for p in own)),
        launches=len(layer.params) - len(own),
    )  # fmt: skip
    body = tuple(op if _own(op.name) else replace(op, gemm_weight=0.0) for op in layer.ops)
    return replace(layer, name="layer shared again", ops=(*body, sums), params=own)


@dataclass(frozen=True, kw_only=True)
class Zamba:
    """Settings of Zamba2.

    - ``kv_heads``: 0 means as many as ``heads``; ``ffn``: 0 means four times hidden. ``bias``:
      Mamba-2's products have one.
    - ``shared_pattern``: ``s`` a layer after a shared block, ``m`` Mamba-2 alone; ``shared_blocks``
      take turns. ``adapter_rank``: rank of the products that each depth adds to the block's first
      feed-forward product and, with ``adapted_attention``, to q, k and v. ``rotary``: positions are
      rotary.
    - ``ssm_``: Mamba-2 (``ops.SsdShape``).
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0
    ffn: int = 0
    vocab: int = 32000
    seq_len: int = 4096
    shared_pattern: str
    shared_blocks: int = 1
    adapter_rank: int = 128
    adapted_attention: bool = False
    rotary: bool = False
    ssm_heads: int
    ssm_head_dim: int = 64
    ssm_state: int = 64
    ssm_groups: int = 1
    ssm_chunk: int = 256
    conv_kernel: int = 4
    bias: bool = False
    norm: str = "rmsnorm"
    attention: str = "flash"
    loss: str = "eager"

    def __post_init__(self) -> None:
        check_names(norm=(self.norm, _NORMS), attention=(self.attention, (*FLASH, "math")))
        check_names(loss=(self.loss, ("eager", "in_place")))
        if len(self.shared_pattern) != self.layers or set(self.shared_pattern) - {"s", "m"}:
            raise ValueError(f"shared_pattern must be {self.layers} letters s and m")
        if 2 * self.hidden % self.heads:
            raise ValueError(
                f"heads {self.heads} does not divide twice the hidden width {self.hidden}"
            )
        if self.ssm_heads % self.ssm_groups:
            raise ValueError(
                f"ssm_heads {self.ssm_heads} must be a multiple of ssm_groups {self.ssm_groups}"
            )
        if min(self.shared_blocks, self.seq_len) < 1:
            raise ValueError("shared_blocks and seq_len must be at least 1")


@ARCHS.register("zamba2")
@settings_by_part
def build(*, name: str, sample_unit: str = "sequence", z: Zamba) -> Workload:
    """Zamba2 over ``seq_len`` tokens, with the loss at every position."""
    width, seq, hidden = 2 * z.hidden // z.heads, z.seq_len, z.hidden
    s = _Shape(
        attention=AttentionShape(
            seq=seq, hidden=2 * hidden, out=hidden, norm=z.norm, kernel=z.attention,
            rotated=width * z.rotary,
            own=Attention(
                heads=z.heads, kv_heads=z.kv_heads or z.heads, head_dim=width, value_dim=width,
                fused_qkv=False,
            ),
        ),
        mixer=MixerShape(
            seq=seq, hidden=hidden, bias=z.bias, conv_bias=True, apart=False, products=1,
            ssd=ops.SsdShape(
                seq=seq, heads=z.ssm_heads, head_dim=z.ssm_head_dim, state=z.ssm_state,
                groups=z.ssm_groups, chunk=z.ssm_chunk, conv=z.conv_kernel,
            ),
        ),
        hidden=hidden, ffn=z.ffn or 4 * hidden, rank=z.adapter_rank,
        adapted=z.adapted_attention, norm=z.norm,
    )  # fmt: skip
    first = Body(in_layer=False)
    first.embedding("tokens", seq, hidden, z.vocab)
    first.add(ops.copy("tokens.clone", s.elems, as_it_lies=True))
    last = Body(in_layer=False)
    last.norm("norm", seq, hidden, z.norm)
    last.linear("head", seq, hidden, z.vocab, reads="out", weight=False)
    last.add(ops.grad_only("tie", 0.0, weight=3.0 * z.vocab * hidden, role="table_sum"))
    last.add(*(ops.loss_in_place if z.loss == "in_place" else ops.lm_loss)("loss", seq, z.vocab))
    plain, behind = _layer(s, "layer", False), _layer(s, "layer shared", True)
    blocks = [first.block("embeddings"), plain, behind, _repeated_layer(behind), last.block("head")]
    order, depth = [0], 0
    for letter in z.shared_pattern:
        order.append(1 if letter == "m" else 2 + (depth >= z.shared_blocks))
        depth += letter == "s"
    order.append(4)
    used = sorted(set(order))
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=tuple(blocks[i] for i in used),
        order=tuple(used.index(i) for i in order),
        input_bytes=2.0 * INT64_BYTES * seq,
        tokens_per_sample=seq,
    )
