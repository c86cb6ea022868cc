"""LTX-Video (HaCohen et al. 2024): a video transformer on a latent of few, wide rows.

As diffusers' ``LTXVideoTransformer3DModel``: every layer adds its own table to one modulation of
the step (adaLN-single), norms are RMSNorms without weights, queries and keys are normalised over
all heads, and attention to the caption reads the residual sum itself.
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.diffusion_parts import STEP_FEATURES
from simcore.workload.archs.modulated import (
    ENCODED_BYTES,
    Flow,
    Stage,
    ada_norm,
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
from simcore.workload.ops.adaln import modulate
from simcore.workload.saved import Saved

_PARTS, _LAST_PARTS = 6, 2  # shift, scale and gate of two sublayers; shift and scale of a norm


def _table(body: Body, parts: int, hidden: int) -> None:
    """Add the sum of the layer's table and the step's row; its parts are views."""
    width = float(parts * hidden)
    fwd = Kernel(kind="elementwise", low=2.0 * width, weight=width)
    bwd = (
        Kernel(kind="copy", low=2.0 * width),
        Kernel(kind="reduction", low=width, weight=width),
        Kernel(kind="elementwise", low=3.0 * width),
    )
    body.add(Op(name="modulation", fwd=(fwd,), bwd=bwd, saved=Saved(low=width)))
    body.param("scale_shift_table", parts * hidden)


def _norm(body: Body, name: str, m: Flow) -> None:
    elems = float(m.image * m.hidden)
    body.norm(name, m.image, m.hidden, "rmsnorm_eager", weight=False, narrow=True)
    body.add(modulate(f"{name}.modulate", elems, m.hidden, graded=body.conditioned()))


def _normed(body: Body, prefix: str, rows: int, m: Flow) -> None:
    body.norm(prefix, rows, m.q_dim, "rmsnorm", narrow=True)


def _out(body: Body, prefix: str, m: Flow) -> None:
    context = f"{prefix}context"
    body.kept.add(context)  # attention saves it
    body.linear(f"{prefix}attention.out", m.image, m.q_dim, m.hidden, bias=True, reads=context)


def _layer(m: Flow) -> Body:
    body = Body(m.adapters)
    elems, queries = float(m.image * m.hidden), float(m.image * m.q_dim)
    _table(body, _PARTS, m.hidden)
    _norm(body, "norm1", m)
    split_qkv(body, "", m.image, m.hidden, m.q_dim, "norm1")
    for part in ("q_norm", "k_norm"):
        _normed(body, part, m.image, m)
    body.add(*(turned(f"rope.{part}", queries) for part in "qk"))
    m.attention(body, m.image, m.image)
    _out(body, "", m)
    gated_sum(body, "residual1", m.image, m.hidden)
    body.linear("cross.q", m.image, m.hidden, m.q_dim, bias=True, reads="residual1")
    body.kept.add("caption")
    for part in ("cross.k", "cross.v"):
        body.linear(part, m.text, m.hidden, m.q_dim, bias=True, reads="caption")
    body.add(ops.accumulate("cross.forks", float(m.text * m.hidden), times=2))
    _normed(body, "cross.q_norm", m.image, m)
    _normed(body, "cross.k_norm", m.text, m)
    m.attention(body, m.image, m.text, "cross.attention")
    _out(body, "cross.", m)
    body.add(ops.binary("residual2", elems, grads=1))
    _norm(body, "norm2", m)
    mlp(body, "", m.image, m.hidden, m.ffn, "norm2")
    gated_sum(body, "residual3", m.image, m.hidden)
    return body


def _embed(m: Flow, text_width: int) -> Body:
    body = Body(m.adapters, in_layer=False)
    caption = float(m.text * m.hidden)
    body.add(flow_noise(m.latent))
    body.linear("patches", m.image, m.packed, m.hidden, bias=True, reads="latent", input_grad=False)
    body.add(step_features())
    step_embedder(body, "t", STEP_FEATURES, m.hidden)
    body.add(ops.keep("condition", m.hidden), ops.activation("t.act", m.hidden, saves="none"))
    body.linear("t.proj", 1, m.hidden, _PARTS * m.hidden, bias=True, reads="t.act")
    body.linear("text.1", m.text, text_width, m.hidden, bias=True, reads="encoding",
                input_grad=False)  # fmt: skip
    body.add(ops.activation("text.gelu", caption))
    body.linear("text.2", m.text, m.hidden, m.hidden, bias=True, reads="text.gelu")
    body.add(ops.keep("caption", caption))
    return body


def _final(m: Flow) -> Body:
    body = Body(m.adapters, in_layer=False)
    _table(body, _LAST_PARTS, m.hidden)
    ada_norm(body, "norm", m.image, m.hidden)
    body.linear("out", m.image, m.hidden, m.packed, bias=True, reads="norm")
    body.add(flow_loss(m.latent))
    return body


@ARCHS.register("ltx")
def build(
    *,
    name: str,
    sample_unit: str = "video",
    layers: int,
    hidden: int,
    heads: int,
    head_dim: int = 0,
    ffn: int = 0,
    frames: int = 161,
    height: int = 512,
    width: int = 704,
    patch: int = 1,
    vae_factor: int = 32,
    vae_frames: int = 8,
    in_channels: int = 128,
    text_tokens: int = 128,
    text_width: int = 4096,
    attention: str = "flash",
    lora_rank: int = 0,
    lora_targets: str = "",
    quantised_base: str = "none",
) -> Workload:
    """Text to video on the latent of one clip, and a caption padded to ``text_tokens``.

    Zeros mean: ``head_dim`` = hidden / heads, ``ffn`` = 4 hidden. The autoencoder keeps one frame
    of every ``vae_frames`` after the first, and divides height and width by ``vae_factor``.
    ``lora_rank`` > 0: as in language models (``archs.body``).
    """
    lora = (lora_rank, lora_targets, quantised_base)
    m = Flow(
        image=clip_rows(frames, vae_frames, height, width, patch, vae_factor),
        packed=in_channels * patch**2,
        **sizes(hidden, heads, head_dim, ffn, text_tokens, attention, lora),
    )
    stages = (
        Stage("embed", _embed(m, text_width)), Stage("layer", _layer(m), layers, m.image),
        Stage("final", _final(m)),
    )  # fmt: skip
    made = flow_workload(
        m, name, sample_unit, stages,
        input_bytes=ENCODED_BYTES * (m.latent + text_tokens * text_width),
    )  # fmt: skip
    return made.replace(tokens_per_sample=float(m.image))
