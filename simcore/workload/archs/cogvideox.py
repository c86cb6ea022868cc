"""CogVideoX (Yang et al. 2024): caption and clip as one sequence with separate modulations.

Operators follow diffusers' ``CogVideoXTransformer3DModel``: both streams share all products and
norms, but have separate shifts, scales and gates. Latents and text encodings are inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import (
    Adapters,
    Body,
    adapters,
    assumptions,
    check_targets,
    frozen_parts,
    frozen_weight_flop,
)
from simcore.workload.archs.checks import check_names, head_width
from simcore.workload.archs.diffusion_parts import latent_frames
from simcore.workload.archs.lm_attention import FLASH
from simcore.workload.archs.modulated import (
    flow_loss,
    flow_noise,
    gated_sum,
    mlp,
    split_qkv,
    step_features,
    turned,
    widened_sum,
)
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.ops.modulate import modulate
from simcore.workload.saved import Saved

_TWO, _NORM = 6, 2  # shift, scale and gate of both streams; shift and scale of one
_ENCODED_BYTES = 2.0  # per element of a latent or encoding that the loader reads


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    clip: int  # rows per sample
    text: int
    hidden: int
    heads: int
    head_dim: int
    ffn: int
    step_width: int
    rotary: bool
    kernel: str
    adapters: Adapters | None

    @property
    def rows(self) -> int:
        return self.clip + self.text

    @property
    def streams(self) -> tuple[tuple[str, int], ...]:
        return (("clip.", self.clip), ("text.", self.text))


def _modulation(body: Body, name: str, m: _Model, parts: int) -> None:
    """SiLU of the time step's row, and the product whose result is split into ``parts`` views."""
    width = float(parts * m.hidden)
    body.add(ops.activation(f"{name}.silu", m.step_width, saves="none"))
    body.linear(
        f"{name}.linear", 1, m.step_width, parts * m.hidden, bias=True, reads=f"{name}.silu"
    )
    join = (Kernel(kind="copy", low=2 * width),)
    body.add(
        Op(name=f"{name}.chunk", fwd=(), bwd=join, saved=Saved(low=width)),
        ops.accumulate(f"{name}.join", m.step_width),
    )


def _norms(body: Body, name: str, m: _Model) -> None:
    """One trained norm of both streams, each modulated by its own row, and their concatenation."""
    _modulation(body, f"{name}.adaln", m, _TWO)
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
    elems, all_elems = float(m.clip * m.hidden), float(m.rows * m.hidden)
    bwd = (
        Kernel(kind="copy", low=2 * all_elems + 2 * elems, launches=2.0),
        Kernel(kind="elementwise", low=elems),
    )
    placed = Op(name=f"{name}.place", fwd=(Kernel(kind="copy", low=2 * elems),), bwd=bwd)
    return turned(name, elems, megatron=False), placed


def _layer(m: _Model) -> Body:
    body = Body(m.adapters)
    elems, width = float(m.rows * m.hidden), m.heads * m.head_dim
    _norms(body, "norm1", m)
    split_qkv(body, "", m.rows, m.hidden, width, "norm1.joined", megatron=False)
    for part in "qk":  # heads are strided, and a norm copies tensors that are not contiguous
        copied = Kernel(kind="copy", low=2 * elems, indexed=elems)
        body.add(Op(name=f"{part}_norm.copy", fwd=(copied,), bwd=(copied,)))
        body.norm(f"{part}_norm", float(m.rows * m.heads), m.head_dim, "layernorm")
        if m.rotary:
            body.add(*_turned_in_place(f"rope.{part}", m))
    body.add(
        ops.sdpa("attention", 1, m.heads, m.heads, m.rows, m.rows, m.head_dim, kind=FLASH[m.kernel])
    )
    # Attention's output has the layout of the normalised queries, head by head, and is copied to
    # rows.
    body.add(ops.copy("merge", elems))
    body.linear("attention.out", m.rows, width, m.hidden, bias=True, reads="merged")
    for prefix, rows in m.streams:
        gated_sum(body, f"{prefix}residual1", rows, m.hidden, megatron=False)
    _norms(body, "norm2", m)
    mlp(body, "", m.rows, m.hidden, m.ffn, "norm2.joined", megatron=False)
    for prefix, rows in m.streams:
        gated_sum(body, f"{prefix}residual2", rows, m.hidden, megatron=False)
    # The gradients of both streams' parts of attention's and the MLP's output are added into zeros.
    apart = Kernel(kind="copy", low=4 * elems, launches=4.0)
    both = Kernel(kind="elementwise", low=3 * elems)
    body.add(Op(name="split", fwd=(), bwd=(apart, both, apart, both)))
    return body


def _embed(m: _Model, latent: float, packed: int, text_width: int) -> Body:
    body = Body(m.adapters, in_layer=False)
    elems = float(m.rows * m.hidden)
    body.add(flow_noise(latent), step_features())
    body.linear("t.1", 1, m.hidden, m.step_width, bias=True, reads="t.in", input_grad=False)
    body.add(ops.activation("t.silu", m.step_width))
    body.linear("t.2", 1, m.step_width, m.step_width, bias=True, reads="t.silu")
    body.add(ops.keep("condition", m.step_width))
    body.linear("clip", m.clip, packed, m.hidden, bias=True, reads="latent", input_grad=False)
    body.linear("text", m.text, text_width, m.hidden, bias=True, reads="encoding", input_grad=False)
    body.add(Op(name="join", fwd=(Kernel(kind="copy", low=2 * elems),)))
    if not m.rotary:  # a frozen table
        table = Kernel(kind="elementwise", low=2 * elems, weight=elems)
        body.add(Op(name="positions", fwd=(table,)))
    return body


def _final(m: _Model, latent: float, packed: int) -> Body:
    body = Body(m.adapters, in_layer=False)
    body.norm("norm_final", m.clip, m.hidden, "layernorm")
    _modulation(body, "adaln", m, _NORM)
    body.norm("norm", m.clip, m.hidden, "layernorm")
    moved, graded = float(m.clip * m.hidden), body.conditioned()
    body.add(modulate("norm.modulate", moved, m.hidden, graded=graded))
    body.linear("out", m.clip, m.hidden, packed, bias=True, reads="norm.modulated")
    body.add(ops.copy("unpack", float(m.clip * packed)), flow_loss(latent))
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
    check_names(attention=(attention, tuple(FLASH)), positions=(positions, ("rope", "table")))
    head_dim = head_dim or head_width(hidden, heads)
    if layers < 1 or text_tokens < 1:
        raise ValueError("layers and text_tokens must be at least 1")
    cell = vae_factor * patch
    for key, side in (("height", height), ("width", width)):
        if side < 1 or side % cell:
            raise ValueError(f"{key}={side} must be a multiple of {cell}")
    rows = latent_frames(frames, vae_frames) * (height // cell) * (width // cell)
    packed = in_channels * patch**2
    m = _Model(
        clip=rows, text=text_tokens, hidden=hidden, heads=heads, head_dim=head_dim,
        ffn=ffn or 4 * hidden, step_width=step_width, rotary=positions == "rope", kernel=attention,
        adapters=adapters(lora_rank, lora_targets, quantised_base),
    )  # fmt: skip
    latent = float(rows * packed)
    first, middle = _embed(m, latent, packed, text_width), _layer(m)
    last = _final(m, latent, packed)
    check_targets(m.adapters, [middle])
    built = [(first, 1), (middle, layers), (last, 1)]
    kept = Saved(low=float(m.rows * hidden))
    table = m.rows * hidden * (not m.rotary)
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(
            first.block("embed"),
            middle.block("layer", boundary=kept, recomputable=True),
            last.block("final"),
        ),
        order=(0, *([1] * layers), 2),
        frozen=frozen_parts(built),
        frozen_weight_flop=frozen_weight_flop(built),
        buffers_numel=table,
        n_buffers=int(table > 0),
        input_bytes=_ENCODED_BYTES * (latent + text_tokens * text_width),
        tokens_per_sample=float(m.rows),
        notes=assumptions(m.adapters),
    )
