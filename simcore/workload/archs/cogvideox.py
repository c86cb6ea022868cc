"""CogVideoX (Yang et al. 2024): caption and clip as one sequence with separate modulations.

Operators follow diffusers' ``CogVideoXTransformer3DModel``: both streams share all products and
norms, but have separate shifts, scales and gates. Latents and text encodings are inputs.
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.modulated import (
    ENCODED_BYTES,
    Flow,
    Stage,
    clip_rows,
    flow_loss,
    flow_noise,
    flow_workload,
    gated_sum,
    mlp,
    modulation,
    sizes,
    split_qkv,
    step_features,
    turned,
    widened_sum,
)
from simcore.workload.archs.parts import check_names
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.ops.adaln import modulate

_TWO, _NORM = 6, 2  # shift, scale and gate of both streams; shift and scale of one


@dataclass(frozen=True, kw_only=True)
class _Model(Flow):
    step_width: int
    rotary: bool

    @property
    def streams(self) -> tuple[tuple[str, int], ...]:
        return (("clip.", self.image), ("text.", self.text))


def _norms(body: Body, name: str, m: _Model) -> None:
    """One trained norm of both streams, each modulated by its own row, and their concatenation."""
    modulation(body, f"{name}.adaln", m.hidden, _TWO, step_width=m.step_width)
    for i, (prefix, rows) in enumerate(m.streams):
        body.add(widened_sum(f"{name}.{prefix}", float(rows * m.hidden)))
        if i:  # the same weight a second time
            trained = body.adapters is None
            body.add(ops.layer_norm(f"{name}.{prefix}", rows, m.hidden, affine=trained))
        else:
            body.norm(name, rows, m.hidden, "layernorm")
        moved, graded = float(rows * m.hidden), body.conditioned()
        body.add(modulate(f"{name}.{prefix}modulate", moved, m.hidden, graded=graded))
    elems = float(m.rows * m.hidden)
    body.add(Op(name=f"{name}.join", fwd=(Kernel(kind="copy", low=2 * elems),)))


def _turned_in_place(name: str, m: _Model) -> tuple[Op, ...]:
    """Rotary positions of the clip's rows, written back to their slice.

    Backward of a written slice clones the gradient, clears the slice and copies its part out.
    """
    elems, all_elems = float(m.image * m.hidden), float(m.rows * m.hidden)
    bwd = (
        Kernel(kind="copy", low=2 * all_elems + 2 * elems, launches=2.0),
        Kernel(kind="elementwise", low=elems),
    )
    placed = Op(name=f"{name}.place", fwd=(Kernel(kind="copy", low=2 * elems),), bwd=bwd)
    return turned(name, elems), placed


def _layer(m: _Model) -> Body:
    body = Body(m.adapters)
    elems, width = float(m.rows * m.hidden), m.q_dim
    _norms(body, "norm1", m)
    split_qkv(body, "", m.rows, m.hidden, width, "norm1.joined")
    for part in "qk":  # heads are strided, and a norm copies tensors that are not contiguous
        copied = Kernel(kind="copy", low=2 * elems, indexed=elems)
        body.add(Op(name=f"{part}_norm.copy", fwd=(copied,), bwd=(copied,)))
        body.norm(f"{part}_norm", float(m.rows * m.heads), m.head_dim, "layernorm")
        if m.rotary:
            body.add(*_turned_in_place(f"rope.{part}", m))
    m.attention(body, m.rows, m.rows)
    # Attention's output has the layout of the normalised queries, head by head, and is copied to
    # rows.
    body.add(ops.copy("merge", elems))
    body.linear("attention.out", m.rows, width, m.hidden, bias=True, reads="merged")
    for prefix, rows in m.streams:
        gated_sum(body, f"{prefix}residual1", rows, m.hidden)
    _norms(body, "norm2", m)
    mlp(body, "", m.rows, m.hidden, m.ffn, "norm2.joined")
    for prefix, rows in m.streams:
        gated_sum(body, f"{prefix}residual2", rows, m.hidden)
    # The gradients of both streams' parts of attention's and the MLP's output are added into zeros.
    apart = Kernel(kind="copy", low=4 * elems, launches=4.0)
    both = Kernel(kind="elementwise", low=3 * elems)
    body.add(Op(name="split", fwd=(), bwd=(apart, both, apart, both)))
    return body


def _embed(m: _Model, text_width: int) -> Body:
    body = Body(m.adapters, in_layer=False)
    elems = float(m.rows * m.hidden)
    body.add(flow_noise(m.latent), step_features())
    body.linear("t.1", 1, m.hidden, m.step_width, bias=True, reads="t.in", input_grad=False)
    body.add(ops.activation("t.silu", m.step_width))
    body.linear("t.2", 1, m.step_width, m.step_width, bias=True, reads="t.silu")
    body.add(ops.keep("condition", m.step_width))
    body.linear("clip", m.image, m.packed, m.hidden, bias=True, reads="latent", input_grad=False)
    body.linear("text", m.text, text_width, m.hidden, bias=True, reads="encoding", input_grad=False)
    body.add(Op(name="join", fwd=(Kernel(kind="copy", low=2 * elems),)))
    if not m.rotary:  # a frozen table
        table = Kernel(kind="elementwise", low=2 * elems, weight=elems)
        body.add(Op(name="positions", fwd=(table,)))
    return body


def _final(m: _Model) -> Body:
    body = Body(m.adapters, in_layer=False)
    body.norm("norm_final", m.image, m.hidden, "layernorm")
    modulation(body, "adaln", m.hidden, _NORM, step_width=m.step_width)
    body.norm("norm", m.image, m.hidden, "layernorm")
    moved, graded = float(m.image * m.hidden), body.conditioned()
    body.add(modulate("norm.modulate", moved, m.hidden, graded=graded))
    body.linear("out", m.image, m.hidden, m.packed, bias=True, reads="norm.modulated")
    body.add(ops.copy("unpack", m.latent), flow_loss(m.latent))
    return body


@ARCHS.register("cogvideox")
def build(
    *,
    name: str,
    sample_unit: str = "video",
    layers: int,
    hidden: int,
    heads: int,
    head_dim: int = 0,
    ffn: int = 0,
    frames: int = 49,
    height: int = 480,
    width: int = 720,
    patch: int = 2,
    vae_factor: int = 8,
    vae_frames: int = 4,
    in_channels: int = 16,
    text_tokens: int = 226,
    text_width: int = 4096,
    step_width: int = 512,
    positions: str = "rope",
    attention: str = "flash",
    lora_rank: int = 0,
    lora_targets: str = "",
    quantised_base: str = "none",
) -> Workload:
    """Text to video on the latent of one clip, and a caption padded to ``text_tokens``.

    Zeros mean: ``head_dim`` = hidden / heads, ``ffn`` = 4 hidden. The autoencoder keeps one frame
    of every ``vae_frames`` after the first, and divides height and width by ``vae_factor``.
    ``positions``: rope, or table (a frozen one). ``lora_rank`` > 0: as in language models
    (``archs.body``).
    """
    check_names(positions=(positions, ("rope", "table")))
    lora = (lora_rank, lora_targets, quantised_base)
    m = _Model(
        image=clip_rows(frames, vae_frames, height, width, patch, vae_factor),
        packed=in_channels * patch**2, step_width=step_width, rotary=positions == "rope",
        **sizes(hidden, heads, head_dim, ffn, text_tokens, attention, lora),
    )  # fmt: skip
    table = m.rows * hidden * (not m.rotary)
    stages = (
        Stage("embed", _embed(m, text_width)), Stage("layer", _layer(m), layers, m.rows),
        Stage("final", _final(m)),
    )  # fmt: skip
    return flow_workload(
        m, name, sample_unit, stages, buffers_numel=table, n_buffers=int(table > 0),
        input_bytes=ENCODED_BYTES * (m.latent + text_tokens * text_width),
    )  # fmt: skip
