"""DiT (Peebles & Xie 2023) and Latte (Ma et al. 2024): adaLN-Zero blocks on latents.

Latte's blocks alternate: even ones attend within a frame (``frames`` sequences per sample), odd
ones along time (``tokens`` sequences of ``frames``); the data is rearranged between them.
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.diffusion_parts import (
    AttentionMode,
    Latent,
    adaln_ops,
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

_LABEL_BYTES = 8.0


def _block_params(hidden: int, inner: int) -> tuple[Param, ...]:
    return (
        *weight_and_bias("attn.qkv", hidden, 3 * hidden),
        *weight_and_bias("attn.proj", hidden, hidden),
        *weight_and_bias("mlp.fc1", hidden, inner),
        *weight_and_bias("mlp.fc2", inner, hidden),
        *weight_and_bias("adaLN_modulation.1", hidden, 6 * hidden),
    )


def _norm(name: str, rows: float, hidden: int, *, strided: bool) -> tuple[Op, ...]:
    """LayerNorm without affine; a residual that is channels first is copied before it, each way."""
    norm = ops.layer_norm(name, rows, hidden, affine=False)
    return (ops.copy(f"{name}.layout", rows * hidden, high=True), norm) if strided else (norm,)


def _block_ops(
    sequences: float,
    seq: int,
    hidden: int,
    heads: int,
    inner: int,
    attention: AttentionMode,
    *,
    packed: bool,
    strided: bool,
) -> tuple[Op, ...]:
    """One adaLN-Zero block over ``sequences`` sequences per sample, each with a conditioning row.

    ``sequences`` is also the number of rows on which adaLN runs: one per sample in DiT, one per
    frame or per position in Latte.
    """
    rows, cond = sequences * seq, sequences * hidden
    elems = rows * hidden
    return (
        *adaln_ops(sequences, hidden, 6, gated=True),
        *_norm("norm1", rows, hidden, strided=strided),
        modulate("modulate1", elems, cond),
        *attention_ops("attn", sequences, seq, hidden, heads, attention, packed=packed),
        gate("gate1", elems, cond),
        residual("residual1", elems, strided=strided),
        *_norm("norm2", rows, hidden, strided=strided),
        modulate("modulate2", elems, cond),
        *mlp_ops(rows, hidden, inner),
        gate("gate2", elems, cond),
        residual("residual2", elems, strided=strided),
        ops.accumulate("adaln.fork", cond),
    )


def _label_ops(hidden: int, classes: int) -> tuple[Op, ...]:
    """Labels with classifier-free dropout: rand, compare, where, then the table."""
    if not classes:
        return ()
    drop = Kernel(kind="elementwise", raw_bytes=4 * _LABEL_BYTES, launches=3.0)
    return Op(name="label_drop", fwd=(drop,)), ops.embedding("y_embedder", 1, hidden, classes + 1)


def _embed_params(latent: Latent, hidden: int, classes: int) -> tuple[Param, ...]:
    table = (Param("y_embedder.embedding_table.weight", (classes + 1) * hidden),) if classes else ()
    return (
        *weight_and_bias("x_embedder.proj", latent.channels * latent.patch**2, hidden),
        *step_params(hidden),
        *table,
    )


def _final_block(
    latent: Latent, cond_rows: float, hidden: int, out: int, *, strided: bool
) -> Block:
    rows = float(latent.frames) * latent.tokens
    layout = (ops.copy("norm_final.layout", rows * hidden, high=True),) if strided else ()
    return Block(
        name="final_layer",
        ops=(
            *adaln_ops(cond_rows, hidden, 2, gated=False),
            *layout,
            *final_ops(latent, cond_rows, hidden, out),
            *loss_ops(latent),
        ),
        params=(
            *weight_and_bias("final_layer.linear", hidden, out),
            *weight_and_bias("final_layer.adaLN_modulation.1", hidden, 2 * hidden),
        ),
    )


@ARCHS.register("dit")
def dit(
    *,
    name: str,
    sample_unit: str,
    depth: int,
    hidden: int,
    heads: int,
    patch: int = 2,
    image: int = 256,
    mlp_ratio: float = 4.0,
    num_classes: int = 1000,
    attention: AttentionMode = "flash",
    vae_factor: int = 8,
    in_channels: int = 4,
) -> Workload:
    """DiT with adaLN-Zero on the latent of one image; ``num_classes=0`` is unconditional.

    The output of the patch embedding is transposed, and each sum keeps that layout, so that every
    LayerNorm first copies its input (torch's layer_norm on CUDA needs it contiguous).
    """
    check_heads(hidden, heads, attention)
    latent = latent_of(image, vae_factor, patch, 1, in_channels)
    inner, out = int(hidden * mlp_ratio), 2 * in_channels * patch**2
    labels = _label_ops(hidden, num_classes)
    join = (ops.binary("t_plus_y", hidden, grads=0),) if num_classes else ()
    condition = Op(name="condition", fwd=(), saved=Saved(low=float(hidden)))
    embed = Block(
        name="embed",
        ops=(*noise_ops(latent), *patch_ops(latent, hidden), *step_ops(hidden), *labels, *join,
             condition),
        params=_embed_params(latent, hidden, num_classes),
    )  # fmt: skip
    block = Block(
        name="block",
        ops=_block_ops(
            1.0, latent.tokens, hidden, heads, inner, attention, packed=False, strided=True
        ),
        params=_block_params(hidden, inner),
        boundary=Saved(high=float(latent.tokens) * hidden),
        recomputable=True,
    )
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(embed, block, _final_block(latent, 1.0, hidden, out, strided=True)),
        order=(0, *([1] * depth), 2),
        buffers_numel=latent.tokens * hidden,
        input_bytes=pixel_bytes(image, 1, 4.0) + _LABEL_BYTES * bool(num_classes),
        tokens_per_sample=float(latent.tokens),
    )


def _latte_embed(latent: Latent, hidden: int, classes: int) -> Block:
    """Embeddings, and the conditioning row repeated for each frame and each position."""
    copies = 2 if classes else 1
    rows = latent.frames + latent.tokens
    repeat = Op(
        name="repeat",
        fwd=tuple(
            Kernel(kind="copy", low=2.0 * n * hidden)
            for n in (latent.frames, latent.tokens) * copies
        ),
        bwd=(
            *(
                Kernel(kind="reduction", low=float(n) * hidden)
                for n in (latent.frames, latent.tokens) * copies
            ),
            Kernel(kind="elementwise", low=3.0 * hidden, launches=float(copies)),
        ),
        # SiLU in every block saves this one tensor; with labels each block has its own sum.
        saved=Saved(low=0.0 if classes else float(rows) * hidden),
    )
    return Block(
        name="embed",
        ops=(
            *noise_ops(latent),
            *patch_ops(latent, hidden),
            *step_ops(hidden),
            *_label_ops(hidden, classes),
            repeat,
        ),
        params=_embed_params(latent, hidden, classes),
    )


def _label_sum(rows: float, hidden: int, classes: int) -> tuple[Op, ...]:
    """With labels each block of Latte adds them to the step's row itself, and saves the sum."""
    if not classes:
        return ()
    add = ops.binary("t_plus_y", rows * hidden, saves=rows * hidden, grads=0)
    return add, ops.accumulate("t_plus_y.fork", rows * hidden)


@ARCHS.register("latte")
def latte(
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
    num_classes: int = 0,
    attention: AttentionMode = "math",
    vae_factor: int = 8,
    in_channels: int = 4,
) -> Workload:
    """Latte on a clip of ``frames`` square frames; the repository's default attention is math.

    A rearrangement between spatial and temporal blocks is one copy. (At batch 1 it is a view
    instead, and the two LayerNorms of each block copy: the same count in a temporal block, two
    copies more in a spatial one, under 1 % of the traffic.)
    """
    check_heads(hidden, heads, attention)
    if depth % 2:
        raise ValueError(f"depth={depth} must be even: spatial and temporal blocks alternate")
    latent = latent_of(image, vae_factor, patch, frames, in_channels)
    inner, out = int(hidden * mlp_ratio), 2 * in_channels * patch**2
    tokens = latent.tokens
    elems = float(frames) * tokens * hidden

    def block(kind: str, sequences: int, seq: int) -> Block:
        return Block(
            name=kind,
            ops=(
                *_label_sum(sequences, hidden, num_classes),
                *_block_ops(
                    sequences, seq, hidden, heads, inner, attention, packed=True, strided=False
                ),
                ops.copy("rearrange", elems, high=True),
            ),
            params=_block_params(hidden, inner),
            boundary=Saved(high=elems),
            recomputable=True,
        )

    table = Kernel(kind="elementwise", high=2 * elems, weight=float(frames) * hidden)
    temporal_table = Block(name="temp_embed", ops=(Op(name="temp_embed", fwd=(table,)),))
    final = _final_block(latent, frames, hidden, out, strided=False)
    if num_classes:
        label = _label_sum(frames, hidden, num_classes)
        final = Block(name=final.name, ops=(*label, *final.ops), params=final.params)
    return Workload(
        name=name,
        sample_unit=sample_unit,
        blocks=(
            _latte_embed(latent, hidden, num_classes),
            block("spatial", frames, tokens),
            temporal_table,
            block("temporal", tokens, frames),
            final,
        ),
        order=(0, 1, 2, 3, *([1, 3] * (depth // 2 - 1)), 4),
        buffers_numel=(tokens + frames) * hidden,
        input_bytes=pixel_bytes(image, frames, 4.0) + _LABEL_BYTES * bool(num_classes),
        tokens_per_sample=float(frames) * tokens,
    )
