"""STDiT of Open-Sora 1.0 (tag v1.0.0): spatial, temporal and caption attention in each block.

adaLN-single (PixArt-α, Chen et al. 2023): one shared MLP on the time step, one table of six rows
per block. Attention is fused (flash-attn, xformers) and norms are apex's.
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.diffusion_parts import (
    Latent,
    attention_ops,
    check_heads,
    final_ops,
    latent_of,
    loss_ops,
    mlp_ops,
    noise_ops,
    patch_ops,
    pixel_bytes,
    residual,
    step_ops,
    step_params,
)
from simcore.workload.archs.params import weight_and_bias
from simcore.workload.graph import Block, Kernel, Op, Param, Workload
from simcore.workload.ops.modulate import gate, modulate
from simcore.workload.saved import Saved

_TOKEN_BYTES = 8.0


def _table_ops(parts: int, hidden: int, *, gated: bool) -> tuple[Op, ...]:
    """The sum of the block's scale-shift table and the step's row, which is saved for the gates."""
    width = float(parts) * hidden
    fwd = Kernel(kind="elementwise", low=2 * width, weight=width)
    bwd = (
        Kernel(kind="copy", low=2 * width),
        Kernel(kind="reduction", low=width, weight=width),
        Kernel(kind="elementwise", low=3 * width),
    )
    return (Op(name="scale_shift", fwd=(fwd,), bwd=bwd, saved=Saved(low=width * gated)),)


def _forward_copy(name: str, elems: float) -> Op:
    """A copy before an op that reads the residual, which is channels first.

    The patch embedding left the residual in that layout.
    """
    return Op(name=name, fwd=(Kernel(kind="copy", low=2 * elems),))


def _cross_ops(rows: int, captions: int, hidden: int, heads: int) -> tuple[Op, ...]:
    """Attention of every token to the caption; all blocks share the caption's embedding.

    Its query layer reads the residual in that layout, which needs a copy and a separate kernel for
    the bias.
    """
    kv = 2.0 * captions * hidden
    elems = float(rows) * hidden
    bias = Kernel(kind="elementwise", low=2 * elems, weight=float(hidden), indexed=elems)
    return (
        _forward_copy("cross_attn.layout", elems),
        Op(name="cross_attn.q_bias", fwd=(bias,)),
        ops.linear("cross_attn.q", rows, hidden, hidden, bias=True),
        ops.linear("cross_attn.kv", captions, hidden, 2 * hidden, bias=True, save_input=False),
        ops.sdpa("cross_attn.sdpa", 1, heads, heads, rows, captions, hidden // heads),
        ops.grad_only("cross_attn.unbind", 2 * kv, kind="copy"),
        ops.accumulate("cross_attn.fork", captions * float(hidden)),
        ops.linear("cross_attn.proj", rows, hidden, hidden, bias=True, save_input=False),
    )


def _block_ops(
    latent: Latent, hidden: int, heads: int, inner: int, captions: int, *, first: bool
) -> tuple[Op, ...]:
    frames, tokens = latent.frames, latent.tokens
    rows = frames * tokens
    elems = float(rows) * hidden
    table = Kernel(kind="elementwise", high=2 * elems, weight=float(frames) * hidden)
    return (
        *_table_ops(6, hidden, gated=True),
        _forward_copy("norm1.layout", elems),
        ops.layer_norm("norm1", rows, hidden, affine=False),
        modulate("modulate1", elems, hidden),
        *attention_ops("attn", frames, tokens, hidden, heads, "flash", packed=False),
        gate("gate1", elems, hidden),
        residual("residual1", elems),
        ops.copy("to_temporal", elems),
        *((Op(name="pos_embed_temporal", fwd=(table,)),) if first else ()),
        *attention_ops("attn_temp", tokens, frames, hidden, heads, "flash", packed=False),
        ops.copy("to_spatial", elems),
        gate("gate_temp", elems, hidden),
        ops.accumulate("gate1.fork", hidden),
        residual("residual_temp", elems),
        *_cross_ops(rows, captions, hidden, heads),
        residual("residual_cross", elems),
        _forward_copy("norm2.layout", elems),
        ops.layer_norm("norm2", rows, hidden, affine=False),
        modulate("modulate2", elems, hidden),
        *mlp_ops(rows, hidden, inner),
        gate("gate2", elems, hidden),
        residual("residual2", elems),
    )


def _block_params(hidden: int, inner: int) -> tuple[Param, ...]:
    return (
        Param("scale_shift_table", 6 * hidden),
        *weight_and_bias("attn.qkv", hidden, 3 * hidden),
        *weight_and_bias("attn.proj", hidden, hidden),
        *weight_and_bias("cross_attn.q_linear", hidden, hidden),
        *weight_and_bias("cross_attn.kv_linear", hidden, 2 * hidden),
        *weight_and_bias("cross_attn.proj", hidden, hidden),
        *weight_and_bias("mlp.fc1", hidden, inner),
        *weight_and_bias("mlp.fc2", inner, hidden),
        *weight_and_bias("attn_temp.qkv", hidden, 3 * hidden),
        *weight_and_bias("attn_temp.proj", hidden, hidden),
    )


def _embed(latent: Latent, hidden: int, captions: int, caption_width: int) -> Block:
    text = float(captions) * caption_width
    drop = (
        Kernel(kind="elementwise", launches=2.0),
        Kernel(kind="elementwise", low=2 * text, weight=text),
    )
    # The first key-value layer saves the caption's embedding, for all of them.
    shared = Op(name="y", fwd=(), saved=Saved(low=float(captions) * hidden))
    return Block(
        name="embed",
        ops=(
            *noise_ops(latent),
            *patch_ops(latent, hidden),
            *step_ops(hidden),
            ops.activation("t_block.silu", hidden),
            ops.linear("t_block.linear", 1, hidden, 6 * hidden, bias=True),
            Op(name="caption_drop", fwd=drop),
            ops.linear("y_proj.fc1", captions, caption_width, hidden, bias=True, input_grad=False),
            ops.activation("y_proj.gelu", captions * float(hidden)),
            ops.linear("y_proj.fc2", captions, hidden, hidden, bias=True),
            shared,
        ),
        params=(
            *weight_and_bias("x_embedder.proj", latent.channels * latent.patch**2, hidden),
            *step_params(hidden),
            *weight_and_bias("t_block.1", hidden, 6 * hidden),
            *weight_and_bias("y_embedder.y_proj.fc1", caption_width, hidden),
            *weight_and_bias("y_embedder.y_proj.fc2", hidden, hidden),
        ),
    )


@ARCHS.register("stdit")
def stdit(
    *,
    name: str,
    sample_unit: str,
    depth: int,
    hidden: int,
    heads: int,
    patch: int = 2,
    frames: int = 16,
    image: int = 256,
    mlp_ratio: float = 4.0,
    caption_tokens: int = 120,
    caption_width: int = 4096,
    vae_factor: int = 8,
    in_channels: int = 4,
    pixel_width_bytes: float = 4.0,
) -> Workload:
    """STDiT on a clip and its caption, every caption at full length.

    (The training script drops padding tokens before cross-attention, which makes short captions a
    little cheaper and blocks the host once per step.) ``pixel_width_bytes``: bytes per pixel value
    copied to the device, if the script first casts on the host.
    """
    check_heads(hidden, heads, "flash")
    latent = latent_of(image, vae_factor, patch, frames, in_channels)
    inner, out = int(hidden * mlp_ratio), 2 * in_channels * patch**2
    rows = frames * latent.tokens

    def block(first: bool) -> Block:
        return Block(
            name="block.0" if first else "block",
            ops=_block_ops(latent, hidden, heads, inner, caption_tokens, first=first),
            params=_block_params(hidden, inner),
            boundary=Saved(high=float(rows) * hidden),
            recomputable=True,
        )

    final = Block(
        name="final_layer",
        ops=(
            *_table_ops(2, hidden, gated=False),
            ops.copy("norm_final.layout", float(rows) * hidden, high=True),
            *final_ops(latent, 1.0, hidden, out),
            *loss_ops(latent),
        ),
        params=(
            Param("final_layer.scale_shift_table", 2 * hidden),
            *weight_and_bias("final_layer.linear", hidden, out),
        ),
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(_embed(latent, hidden, caption_tokens, caption_width), block(True), block(False),
                final),
        order=(0, 1, *([2] * (depth - 1)), 3),
        buffers_numel=(latent.tokens + frames) * hidden + caption_tokens * caption_width,
        n_buffers=3,
        input_bytes=pixel_bytes(image, frames, pixel_width_bytes)
        + 2 * _TOKEN_BYTES * caption_tokens,
        tokens_per_sample=float(rows),
    )  # fmt: skip
