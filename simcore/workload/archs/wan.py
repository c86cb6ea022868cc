"""Wan (Wan Team 2025): a video transformer with full self-attention and cross-attention to text.

Every layer adds its own table to one shared modulation of the step (adaLN-single, Chen et al.
2023); queries and keys are normalised over all heads at once. The latent of the video and the
encoded caption are inputs, as the training programs store them.
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.diffusion_parts import STEP_FEATURES
from simcore.workload.archs.modulated import (
    ENCODED_BYTES,
    Flow,
    Stage,
    ada_norm,
    bias_apart,
    clip_rows,
    flow_loss,
    flow_noise,
    flow_workload,
    gated_sum,
    mlp,
    sizes,
    split_qkv,
    step_embedder,
    step_features,
    turned,
)
from simcore.workload.graph import Kernel, Op, Workload
from simcore.workload.saved import Saved

_PARTS, _LAST_PARTS = 6, 2  # shift, scale and gate of two sublayers; shift and scale of a norm


@dataclass(frozen=True, kw_only=True)
class _Model(Flow):
    """``qk_width``: width over which queries and keys are normalised.

    ``made``: width of a row of the latent's patches that the model returns. ``seen``: rows of an
    image's encoding, of ``seen_width``, that attention reads beside the caption.
    """

    qk_width: int
    made: int
    seen: int = 0
    seen_width: int = 0

    @property
    def returned(self) -> float:
        """Elements of the latent that the model returns."""
        return float(self.image * self.made)

    @property
    def elems(self) -> float:
        return float(self.image * self.hidden)


def _table(body: Body, parts: int, hidden: int) -> None:
    """Add the sum of the layer's table and the step's row, in fp32; its parts are views."""
    width = float(parts * hidden)
    fwd = Kernel(kind="elementwise", raw_bytes=6.0 * width, weight=width)
    bwd = (
        Kernel(kind="copy", raw_bytes=8.0 * width),
        Kernel(kind="reduction", raw_bytes=4.0 * width, weight=width),
        Kernel(kind="elementwise", raw_bytes=12.0 * width),
    )
    body.add(Op(name="modulation", fwd=(fwd,), bwd=bwd, saved=Saved(raw_bytes=4.0 * width)))
    body.param("scale_shift_table", parts * hidden)


def _fp32_norm(body: Body, name: str, m: _Model, *, cond: bool) -> None:
    """Add a LayerNorm of an fp32 copy (diffusers' FP32LayerNorm), modulated in fp32, cast back.

    Without ``cond`` it has a weight and a bias, and is cast back at once.
    """
    rows, elems, hidden = m.image, m.elems, float(m.hidden)
    wide, cast = 4.0 * elems, ops.cast(elems, narrow=True)
    normed = Kernel(kind="norm", raw_bytes=2 * wide, rows=rows, again=ops.NORM_AGAIN)
    back = Kernel(kind="norm", raw_bytes=3 * wide, rows=rows, again=ops.NORM_BWD_AGAIN)
    fwd, bwd = [cast, normed], [cast, back, cast]
    kept = wide + 8.0 * rows
    if cond:
        fwd += [
            Kernel(kind="elementwise", raw_bytes=8 * hidden),
            Kernel(kind="elementwise", raw_bytes=4 * wide, launches=2.0),
        ]
        bwd[1:1] = [
            Kernel(kind="reduction", raw_bytes=wide),
            Kernel(kind="elementwise", raw_bytes=5 * wide, launches=2.0),
            Kernel(kind="reduction", raw_bytes=wide),
        ]
        kept += wide + 4 * hidden  # the normalised tensor; 1 + scale
    else:
        bwd.append(Kernel(kind="reduction", raw_bytes=2 * wide, weight=2 * hidden))
        body.param(f"{name}.weight", m.hidden)
        body.param(f"{name}.bias", m.hidden)
    fwd.append(cast)
    body.add(Op(name=name, fwd=tuple(fwd), bwd=tuple(bwd), saved=Saved(raw_bytes=kept)))


def _fp32_sum(body: Body, name: str, m: _Model, *, cast_first: bool) -> None:
    """Add ``x + gate * y`` in fp32, of tensors that are cast from 16 bit and back.

    ``y`` is saved as it is, or (``cast_first``) in fp32.
    """
    wide, cast = 4.0 * m.elems, ops.cast(m.elems, narrow=True)
    fwd = (
        cast, cast,
        Kernel(kind="elementwise", raw_bytes=5 * wide, launches=2.0),
        cast,
    )  # fmt: skip
    bwd = (
        cast,
        Kernel(kind="elementwise", raw_bytes=5 * wide, launches=2.0),
        Kernel(kind="reduction", raw_bytes=wide),
        cast, cast,
        Kernel(kind="elementwise", low=3 * m.elems),
    )  # fmt: skip
    kept = Saved(raw_bytes=wide) if cast_first else Saved(low=m.elems)
    body.add(Op(name=name, fwd=fwd, bwd=bwd, saved=kept))


def _norm(body: Body, name: str, m: _Model) -> None:
    if m.fused:
        ada_norm(body, name, m.image, m.hidden, fused=True)
    else:
        _fp32_norm(body, name, m, cond=True)


def _sum(body: Body, name: str, m: _Model) -> None:
    if m.fused:
        body.add(bias_apart(f"{name}.bias", m.elems, m.hidden))
        gated_sum(body, name, m.image, m.hidden, fused=True)
    else:
        _fp32_sum(body, name, m, cast_first=name == "residual3")


def _rope(name: str, elems: float, m: _Model) -> Op:
    """Rotary pairs.

    In diffusers they are four products of halves in fp32, whose results are written to alternate
    elements in place. Backward undoes these writes (copies of the gradient, cleared and sliced) and
    joins the halves; counted with a dispatcher.
    """
    if m.fused:
        return turned(name, elems, fused=True)
    wide = 4.0 * elems
    fwd = (
        Kernel(kind="elementwise", low=2 * elems, raw_bytes=5 * wide, launches=6.0),
        Kernel(kind="copy", low=elems, raw_bytes=wide, launches=2.0),
    )
    bwd = (
        Kernel(kind="copy", low=5 * elems, launches=3.0),
        Kernel(kind="copy", low=elems, raw_bytes=2 * wide, launches=3.0),
        Kernel(kind="elementwise", raw_bytes=8 * wide, launches=7.0),
        Kernel(kind="copy", low=elems, raw_bytes=wide),
    )
    return Op(name=name, fwd=fwd, bwd=bwd)


def _layer(m: _Model) -> Body:
    body, fused = Body(m.adapters), m.fused
    queries = float(m.image * m.q_dim)
    _table(body, _PARTS, m.hidden)
    _norm(body, "norm1", m)
    split_qkv(body, "", m.image, m.hidden, m.q_dim, "norm1", fused=fused)
    for part in ("q_norm", "k_norm"):
        body.norm(part, m.image, m.qk_width, "rmsnorm")
    body.add(*(_rope(f"rope.{part}", queries, m) for part in "qk"))
    m.attention(body, m.image, m.image)
    _out(body, "", m)
    _sum(body, "residual1", m)
    if fused:
        body.norm("norm2", m.image, m.hidden, "layernorm")
    else:
        _fp32_norm(body, "norm2", m, cond=False)
    _cross(body, m)
    if fused:
        body.add(bias_apart("residual2.bias", m.elems, m.hidden))
    body.add(ops.binary("residual2", m.elems, grads=1, high=fused))
    _norm(body, "norm3", m)
    mlp(body, "", m.image, m.hidden, m.ffn, "norm3", fused=fused)
    _sum(body, "residual3", m)
    return body


def _out(body: Body, prefix: str, m: _Model) -> None:
    context = f"{prefix}context"
    body.kept.add(context)  # attention saves it
    body.pinned.add(context)
    body.linear(f"{prefix}attention.out", m.image, m.q_dim, m.hidden, bias=True, reads=context)


def _cross(body: Body, m: _Model) -> None:
    """Add attention of every row to the caption, whose encoding all layers share."""
    body.linear("cross.q", m.image, m.hidden, m.q_dim, bias=True, reads="norm2")
    body.kept.add("caption")
    if m.fused:
        body.linear("cross.kv", m.text, m.hidden, 2 * m.q_dim, bias=True, reads="caption")
        forks = 1
    else:
        for part in ("cross.k", "cross.v"):
            body.linear(part, m.text, m.hidden, m.q_dim, bias=True, reads="caption")
        forks = 2
    body.add(ops.accumulate("cross.forks", float(m.text * m.hidden), times=forks))
    body.norm("cross.q_norm", m.image, m.qk_width, "rmsnorm")
    body.norm("cross.k_norm", m.text, m.qk_width, "rmsnorm")
    m.attention(body, m.image, m.text, "cross.attention")
    if m.seen:
        _see(body, m)
    _out(body, "cross.", m)


def _see(body: Body, m: _Model) -> None:
    """Add attention of the same queries to an image's encoding; both results are summed."""
    body.kept.add("image")
    for part in ("image.k", "image.v"):
        body.linear(part, m.seen, m.hidden, m.q_dim, bias=True, reads="image")
    body.norm("image.k_norm", m.seen, m.qk_width, "rmsnorm")
    m.attention(body, m.image, m.seen, "image.attention")
    queries = float(m.image * m.q_dim)
    body.add(
        ops.accumulate("image.forks", float(m.seen * m.hidden), times=2),
        ops.accumulate("cross.q.fork", queries),
        ops.binary("image.sum", queries, grads=0),
        ops.keep("image.sum", queries),
    )


def _embed(m: _Model, text_width: int) -> Body:
    body = Body(m.adapters, in_layer=False)
    caption = float(m.text * m.hidden)
    body.add(flow_noise(m.returned))
    if m.made != m.packed:  # channels of the latent of a first frame and its mask
        body.add(Op(name="latent.join", fwd=(Kernel(kind="copy", low=2.0 * m.latent),)))
    body.linear("patches", m.image, m.packed, m.hidden, bias=True, reads="latent", input_grad=False)
    body.add(ops.copy("residual.layout", m.elems), step_features())
    step_embedder(body, "t", STEP_FEATURES, m.hidden)
    body.add(ops.keep("condition", m.hidden), ops.activation("t.act", m.hidden, saves="none"))
    body.linear("t.proj", 1, m.hidden, _PARTS * m.hidden, bias=True, reads="t.act")
    body.linear("text.1", m.text, text_width, m.hidden, bias=True, reads="encoding",
                input_grad=False)  # fmt: skip
    body.add(ops.activation("text.gelu", caption))
    body.linear("text.2", m.text, m.hidden, m.hidden, bias=True, reads="text.gelu")
    body.add(ops.keep("caption", caption))
    if m.seen:
        body.norm("image.norm1", m.seen, m.seen_width, "layernorm")
        body.linear("image.1", m.seen, m.seen_width, m.seen_width, bias=True, reads="image.norm1")
        body.add(ops.activation("image.gelu", float(m.seen * m.seen_width)))
        body.linear("image.2", m.seen, m.seen_width, m.hidden, bias=True, reads="image.gelu")
        body.norm("image.norm2", m.seen, m.hidden, "layernorm")
        body.add(ops.keep("image", float(m.seen * m.hidden)))
    return body


def _final(m: _Model) -> Body:
    body = Body(m.adapters, in_layer=False)
    _table(body, _LAST_PARTS, m.hidden)
    _fp32_norm(body, "norm", m, cond=True)
    body.linear("out", m.image, m.hidden, m.made, bias=True, reads="norm")
    body.add(ops.copy("unpack", m.returned), flow_loss(m.returned))
    return body


@ARCHS.register("wan")
def build(
    *,
    name: str,
    sample_unit: str = "video",
    layers: int,
    hidden: int,
    heads: int,
    head_dim: int = 0,
    qk_width: int = 0,
    ffn: int = 0,
    frames: int = 81,
    height: int = 480,
    width: int = 832,
    patch: int = 2,
    vae_factor: int = 8,
    vae_frames: int = 4,
    in_channels: int = 16,
    out_channels: int = 0,
    image_tokens: int = 0,
    image_width: int = 1280,
    text_tokens: int = 512,
    text_width: int = 4096,
    attention: str = "flash",
    modules: str = "diffusers",
    lora_rank: int = 0,
    lora_targets: str = "",
    quantised_base: str = "none",
) -> Workload:
    """Text or image to video on the latent of one clip, and a padded caption.

    Zeros mean: ``head_dim`` = hidden / heads, ``ffn`` = 4 hidden, ``qk_width`` (width over which
    queries and keys are normalised) = heads x head_dim, ``out_channels`` = ``in_channels``. More
    ``in_channels`` are those of a first frame. ``image_tokens`` > 0 (257): all layers read that
    frame's encoding by CLIP, of ``image_width``. The autoencoder keeps one frame of every
    ``vae_frames`` after the first, and divides height and width by ``vae_factor``. ``modules``:
    diffusers, or megatron: fused (``archs.modulated``). ``lora_rank`` > 0: as in language models
    (``archs.body``).
    """
    lora = (lora_rank, lora_targets, quantised_base)
    m = _Model(
        image=clip_rows(frames, vae_frames, height, width, patch, vae_factor),
        packed=in_channels * patch**2, made=(out_channels or in_channels) * patch**2,
        seen=image_tokens, seen_width=image_width,
        qk_width=qk_width or heads * (head_dim or hidden // heads),
        **sizes(hidden, heads, head_dim, ffn, text_tokens, attention, lora, modules),
    )  # fmt: skip
    stages = (
        Stage("embed", _embed(m, text_width)), Stage("layer", _layer(m), layers, m.image),
        Stage("final", _final(m)),
    )  # fmt: skip
    made = flow_workload(
        m, name, sample_unit, stages,
        input_bytes=ENCODED_BYTES
        * (m.latent + text_tokens * text_width + image_tokens * image_width),
    )  # fmt: skip
    return made.replace(tokens_per_sample=float(m.image))
