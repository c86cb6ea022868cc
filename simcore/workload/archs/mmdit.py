"""MMDiT (Esser et al. 2024): separate streams of image and text that attend jointly.

In Flux double-stream layers are followed by single-stream layers over both, whose attention and MLP
read one norm (parallel layers, Dehghani et al. 2023). Latents and encodings are inputs: text
encoders and an autoencoder that run in the step are separate networks (``frozen`` of the record).
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.body import Body
from simcore.workload.archs.diffusion_parts import STEP_FEATURES, latent_of, pixel_bytes
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
    modulation,
    sizes,
    split_qkv,
    step_embedder,
    step_features,
    turned,
)
from simcore.workload.archs.parts import check_names
from simcore.workload.graph import Kernel, Op, Workload

#: Parts of a modulation: shift, scale and gate of two sublayers; of one sublayer; shift and scale
#: of a norm.
_TWO, _ONE, _NORM = 6, 3, 2
_TOKEN_BYTES, _CLIP_TOKENS = 8.0, 77


@dataclass(frozen=True, kw_only=True)
class _Model(Flow):
    qk_norm: str
    rotary: bool
    clip: bool = False  # only the image has positions, and single-stream layers split the streams


def _project(
    body: Body, m: _Model, prefix: str, rows: int, *, joined: bool, reads: str = ""
) -> None:
    reads = reads or f"{prefix}norm1"
    split_qkv(body, prefix, rows, m.hidden, m.q_dim, reads, fused=m.fused)
    if m.qk_norm == "none":
        return
    for part in ("q_norm", "k_norm"):
        body.norm(f"{prefix}{part}", float(rows * m.heads), m.head_dim, m.qk_norm, narrow=True)
    if (
        joined and m.fused and m.qk_norm == "rmsnorm"
    ):  # v is copied; the packed storage stays alive for q and k
        body.add(ops.keep(f"{prefix}qkv.packed", float(rows * m.q_dim)))


def _attend(body: Body, m: _Model) -> None:
    elems = float(m.rows * m.q_dim)
    if m.rotary:
        turned_elems = float(m.image * m.q_dim) if m.clip else elems
        body.add(*(turned(f"rope.{part}", turned_elems, fused=m.fused) for part in "qk"))
    m.attention(body, m.rows, m.rows)


def _halves(name: str, elems: float) -> Op:
    """The backward of two views of one tensor.

    The gradient of each view fills a whole tensor, and both are summed.
    """
    parts = Kernel(kind="copy", low=4 * elems, launches=4.0)
    return Op(name=name, fwd=(), bwd=(parts, Kernel(kind="elementwise", low=3 * elems)))


def _double(m: _Model, *, text_ends: bool = False) -> Body:
    """A layer of two streams; ``text_ends``: the text is not used after its attention."""
    body = Body(m.adapters)
    fused = m.fused
    streams = (("image.", m.image), ("text.", m.text))
    for prefix, rows in streams:
        ends = text_ends and prefix == "text."
        modulation(body, f"{prefix}adaln", m.hidden, _NORM if ends else _TWO, fused=fused)
        ada_norm(body, f"{prefix}norm1", rows, m.hidden, fused=fused)
        _project(body, m, prefix, rows, joined=True)
    elems = float(m.rows * m.q_dim)
    joined = Kernel(kind="copy", low=6 * elems, launches=3.0)
    # In diffusers rows are ordered by sample, so that each stream's part of a gradient is copied
    # out.
    parts = () if fused else (Kernel(kind="copy", low=6 * elems, launches=6.0),)
    body.add(Op(name="join", fwd=(joined,), bwd=parts))
    _attend(body, m)
    if fused:
        body.add(_halves("split", elems))
    else:
        fwd = Kernel(kind="copy", low=2 * elems, launches=2.0)
        body.add(Op(name="split", fwd=(fwd,), bwd=(Kernel(kind="copy", low=2 * elems),)))
    for prefix, rows in streams:
        context, out = f"{prefix}context", float(rows * m.hidden)
        if text_ends and prefix == "text.":
            continue
        if fused:  # a part of a tensor that attention saves
            body.kept.add(context)
            body.pinned.add(context)
        body.linear(f"{prefix}attention.out", rows, m.q_dim, m.hidden, bias=True, reads=context)
        if fused:
            body.add(bias_apart(f"{prefix}residual1.bias", out, m.hidden))
        gated_sum(body, f"{prefix}residual1", rows, m.hidden, fused=fused)
        ada_norm(body, f"{prefix}norm2", rows, m.hidden, fused=fused)
        mlp(body, prefix, rows, m.hidden, m.ffn, f"{prefix}norm2", fused=fused)
        if fused:
            body.add(bias_apart(f"{prefix}residual2.bias", out, m.hidden))
        gated_sum(body, f"{prefix}residual2", rows, m.hidden, fused=fused)
    return body


def _single(m: _Model) -> Body:
    """A layer of one stream: attention and MLP in parallel, one gate."""
    body = Body(m.adapters)
    rows, elems, inner = m.rows, float(m.rows * m.hidden), float(m.rows * m.ffn)
    if not m.fused:  # both streams are joined before the layer and split after it
        body.add(Op(name="residual.join", fwd=(Kernel(kind="copy", low=2 * elems),)))
    modulation(body, "adaln", m.hidden, _ONE, fused=m.fused)
    ada_norm(body, "norm1", rows, m.hidden, fused=m.fused)
    if m.fused:
        mlp(body, "", rows, m.hidden, m.ffn, "norm1", fused=True)
    else:
        body.linear("up", rows, m.hidden, m.ffn, bias=True, reads="norm1")
        body.add(ops.activation("gelu", inner))
    if m.clip:  # the streams are split and joined again for attention, and q and k after rotation
        body.add(Op(name="norm1.join", fwd=(Kernel(kind="copy", low=2 * elems),)))
    _project(body, m, "", rows, joined=False, reads="norm1.joined" if m.clip else "norm1")
    if m.clip:
        turned_pair = Kernel(kind="copy", low=4.0 * m.rows * m.q_dim, launches=2.0)
        body.add(Op(name="qk.join", fwd=(turned_pair,)))
    body.add(ops.accumulate("norm1.fork", elems))
    _attend(body, m)
    if m.fused:
        body.kept.add("context")
        body.pinned.add("context")
        body.linear("attention.out", rows, m.q_dim, m.hidden, reads="context")
        body.add(
            bias_apart("residual.bias", elems, m.hidden),
            ops.binary("residual.sum", elems, grads=0),
        )
    else:
        both = float(rows * (m.q_dim + m.ffn))
        body.add(Op(name="cat", fwd=(Kernel(kind="copy", low=2 * both),)))
        body.linear("down", rows, m.q_dim + m.ffn, m.hidden, bias=True, reads="cat")
    gated_sum(body, "residual", rows, m.hidden, fused=m.fused)
    if not m.fused:
        body.add(_halves("residual.split", elems))
    return body


def _refiner(m: _Model, text_width: int) -> tuple[Body, Body]:
    """The layers that refine the text before the streams meet (Kong et al. 2024).

    Their condition is computed from the step and the mean of the text; it gates a layer's sums.
    """
    start, body = Body(m.adapters, in_layer=False), Body(m.adapters)
    mean = float(m.text * text_width)
    start.add(ops.reduction("text.mean", mean, out=float(text_width)), step_features())
    step_embedder(start, "text.t", STEP_FEATURES, m.hidden)
    step_embedder(start, "text.pooled", text_width, m.hidden)
    start.add(ops.binary("text.sum", m.hidden, grads=0), ops.keep("text.condition", m.hidden))
    start.linear("text", m.text, text_width, m.hidden, bias=True, reads="encoding",
                 input_grad=False)  # fmt: skip
    body.norm("norm1", m.text, m.hidden, "layernorm")
    split_qkv(body, "", m.text, m.hidden, m.q_dim, "norm1")
    m.attention(body, m.text, m.text)
    body.kept.add("context")
    body.linear("attention.out", m.text, m.q_dim, m.hidden, bias=True, reads="context")
    modulation(body, "adaln", m.hidden, _NORM)
    gated_sum(body, "residual1", m.text, m.hidden)
    body.norm("norm2", m.text, m.hidden, "layernorm")
    mlp(body, "", m.text, m.hidden, m.ffn, "norm2")
    gated_sum(body, "residual2", m.text, m.hidden)
    return start, body


def _embed(
    m: _Model, text_width: int, pooled: int, guided: bool, *, refined: bool = False,
    text_norm: bool = False,
) -> Body:  # fmt: skip
    body = Body(m.adapters, in_layer=False)
    body.add(flow_noise(m.latent))
    body.linear("x", m.image, m.packed, m.hidden, bias=True, reads="latent", input_grad=False)
    if not m.rotary:  # a frozen table
        elems = float(m.image * m.hidden)
        table = Kernel(kind="elementwise", low=2 * elems, weight=elems)
        body.add(Op(name="positions", fwd=(table,)))
    body.add(step_features())
    step_embedder(body, "t", STEP_FEATURES, m.hidden)
    if guided:
        step_embedder(body, "guidance", STEP_FEATURES, m.hidden)
        body.add(ops.binary("t_plus_guidance", m.hidden, grads=0))
    if pooled:
        step_embedder(body, "pooled", pooled, m.hidden)
        body.add(ops.binary("t_plus_pooled", m.hidden, grads=0))
    body.add(ops.keep("condition", m.hidden))
    if text_norm:
        body.norm("text_norm", m.text, text_width, "rmsnorm")
        body.linear("text", m.text, text_width, m.hidden, bias=True, reads="text_norm")
    elif not refined:
        body.linear(
            "text", m.text, text_width, m.hidden, bias=True, reads="encoding", input_grad=False
        )
    return body


def _final(m: _Model, *, joined: bool) -> Body:
    body = Body(m.adapters, in_layer=False)
    if joined and m.fused:  # the image's part of both streams
        image, both = float(m.image * m.hidden), float(m.rows * m.hidden)
        back = Kernel(kind="copy", low=both + 2 * image, launches=2.0)
        body.add(Op(name="residual.split", fwd=(), bwd=(back,)))
    modulation(body, "adaln", m.hidden, _NORM, fused=m.fused)
    # This norm is not one of those that are compiled.
    ada_norm(body, "norm", m.image, m.hidden)
    body.linear("out", m.image, m.hidden, m.packed, bias=True, reads="norm")
    body.add(ops.copy("unpack", m.latent), flow_loss(m.latent))
    return body


@ARCHS.register("mmdit")
def build(
    *,
    name: str,
    sample_unit: str = "image",
    double_layers: int,
    single_layers: int = 0,
    hidden: int,
    heads: int,
    head_dim: int = 0,
    ffn: int = 0,
    image: int = 256,
    image_width: int = 0,
    patch: int = 2,
    vae_factor: int = 8,
    in_channels: int = 16,
    text_tokens: int = 256,
    text_width: int = 4096,
    pooled_width: int = 768,
    pooled: bool = True,
    text_norm: bool = False,
    guidance: bool = False,
    qk_norm: str = "rmsnorm",
    positions: str = "rope",
    position_rows: int = 0,
    text_to_the_end: bool = True,
    encoded: bool = True,
    attention: str = "flash",
    modules: str = "diffusers",
    lora_rank: int = 0,
    lora_targets: str = "",
    quantised_base: str = "none",
) -> Workload:
    """A text-to-image transformer on the latent of one image and an encoded caption.

    Zeros mean: ``image_width`` = ``image`` (its height), ``head_dim`` = hidden / heads, ``ffn`` = 4
    hidden.

    - ``pooled``: whether a pooled encoding of the caption, of ``pooled_width``, joins the step.
      ``text_norm``: an RMSNorm of the encoding before its projection (Qwen-Image).
    - ``guidance``: the guidance scale is embedded in addition to the step (distilled models).
    - ``qk_norm``: rmsnorm (one kernel, as torch's and Transformer Engine's), rmsnorm_eager (tensor
      operations in fp32, NeMo's own class) or none.
    - ``positions``: rope, or table: a frozen one of ``position_rows`` rows for the image (none for
      the text).
    - ``text_to_the_end``: whether the last layer still processes the text (not if no single-stream
      layer follows).
    - ``encoded``: the inputs are latents and encoded captions; false: pixels and tokens, for
      encoders that run in the step.
    - ``modules``: diffusers, or megatron for fused ones (``archs.modulated``).
    - ``lora_rank`` > 0: as in language models (``archs.body``).
    """
    check_names(
        positions=(positions, ("rope", "table")),
        qk_norm=(qk_norm, ("rmsnorm", "rmsnorm_eager", "none")),
    )
    if single_layers and not text_to_the_end:
        raise ValueError("text_to_the_end=false needs single_layers=0: those read the text")
    if image_width not in (0, image) and not encoded:
        raise ValueError("images that encoders see in the step are square")
    by_height = latent_of(image, vae_factor, patch, 1, in_channels)
    by_width = latent_of(image_width or image, vae_factor, patch, 1, in_channels)
    tokens = (by_height.side // patch) * (by_width.side // patch)
    table = positions == "table"
    if table and tokens > position_rows:
        raise ValueError(f"image={image} has more tokens than position_rows={position_rows}")
    lora = (lora_rank, lora_targets, quantised_base)
    m = _Model(
        image=tokens, packed=in_channels * patch**2, qk_norm=qk_norm, rotary=not table,
        **sizes(hidden, heads, head_dim, ffn, text_tokens, attention, lora, modules),
    )  # fmt: skip
    pooled_width *= pooled
    stages = [
        Stage("embed", _embed(m, text_width, pooled_width, guidance, text_norm=text_norm)),
        Stage("double", _double(m), double_layers - (not text_to_the_end), m.rows),
        Stage("single", _single(m), single_layers, m.rows),
        Stage("last", _double(m, text_ends=True), int(not text_to_the_end), m.rows),
        Stage("final", _final(m, joined=single_layers > 0)),
    ]
    inputs = ENCODED_BYTES * (m.latent + text_tokens * text_width + pooled_width)
    if not encoded:
        inputs = pixel_bytes(image, 1, 4.0) + _TOKEN_BYTES * (text_tokens + _CLIP_TOKENS)
    return flow_workload(
        m, name, sample_unit, stages, buffers_numel=position_rows * hidden * table,
        n_buffers=int(table), input_bytes=inputs,
    )  # fmt: skip


@ARCHS.register("mmdit_video")
def build_video(
    *,
    name: str,
    sample_unit: str = "video",
    double_layers: int,
    single_layers: int,
    refiner_layers: int = 2,
    hidden: int,
    heads: int,
    head_dim: int = 0,
    ffn: int = 0,
    frames: int = 129,
    height: int = 720,
    width: int = 1280,
    patch: int = 2,
    vae_factor: int = 8,
    vae_frames: int = 4,
    in_channels: int = 16,
    text_tokens: int = 256,
    text_width: int = 4096,
    pooled_width: int = 768,
    guidance: bool = True,
    attention: str = "flash",
    lora_rank: int = 0,
    lora_targets: str = "",
    quantised_base: str = "none",
) -> Workload:
    """HunyuanVideo (Kong et al. 2024): Flux's layers on the latent of a clip, text refined first.

    As diffusers' ``HunyuanVideoTransformer3DModel``, with captions padded to ``text_tokens``. The
    autoencoder keeps one frame of every ``vae_frames`` after the first, and divides height and
    width by ``vae_factor``. Zeros and ``lora_rank``: as in ``mmdit``.
    """
    lora = (lora_rank, lora_targets, quantised_base)
    m = _Model(
        image=clip_rows(frames, vae_frames, height, width, patch, vae_factor),
        packed=in_channels * patch**2, qk_norm="rmsnorm_eager", rotary=True, clip=True,
        **sizes(hidden, heads, head_dim, ffn, text_tokens, attention, lora),
    )  # fmt: skip
    start, refiner = _refiner(m, text_width)
    stages = [
        Stage("embed", _embed(m, text_width, pooled_width, guidance, refined=True)),
        Stage("refiner start", start),
        Stage("refiner", refiner, refiner_layers, m.text, recomputed=False),
        Stage("double", _double(m), double_layers, m.rows),
        Stage("single", _single(m), single_layers, m.rows),
        Stage("final", _final(m, joined=True)),
    ]
    return flow_workload(
        m, name, sample_unit, stages,
        input_bytes=ENCODED_BYTES * (m.latent + text_tokens * text_width + pooled_width),
    )  # fmt: skip
