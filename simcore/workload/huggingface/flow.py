"""Transformers of diffusers (``transformer/config.json``): Flux, Stable Diffusion 3, Wan.

Such configs have a ``_class_name`` and no ``model_type``, and do not state the length of captions.
"""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Setting, Translated

#: Pixels per latent element and side, of the autoencoders that these models are published with.
_VAE_FACTOR = 8
#: Pixels per side of the images for which Flux and Stable Diffusion 3 are published.
_IMAGE = 128 * _VAE_FACTOR
#: Latent elements per channel in one token of Flux, which packs two by two elements.
_PACKED = 4
_ENCODED = "latents and encodings come from storage: no encoder runs in the step"


def _widths(f: Fields) -> dict[str, Setting]:
    """Hidden size, number of heads and width of a head."""
    heads, head_dim = f.count("num_attention_heads"), f.count("attention_head_dim")
    return {"hidden": heads * head_dim, "heads": heads, "head_dim": head_dim}


@ADAPTERS.register("FluxTransformer2DModel")
def flux(f: Fields) -> Translated:
    """FLUX.1; its pipelines pad captions to 512 tokens, those of schnell (no guidance) to 256."""
    packed = f.count("in_channels")
    if packed % _PACKED or f.count("patch_size", default=1) != 1:
        raise f.error(
            "in_channels",
            f"{packed} is no latent packed two by two: a multiple of {_PACKED}, with patch_size 1",
        )
    if f.count("out_channels", default=packed) != packed:
        raise f.error("out_channels", "must equal in_channels")
    guidance = f.flag("guidance_embeds", default=False)
    return Translated(
        arch="mmdit", sample_unit="image",
        config=_widths(f) | {
            "double_layers": f.layers("num_layers"),
            "single_layers": f.layers("num_single_layers"),
            "in_channels": packed // _PACKED,
            "image": _IMAGE,
            "text_tokens": 512 if guidance else 256,
            "text_width": f.count("joint_attention_dim"),
            "pooled_width": f.count("pooled_projection_dim"),
            "guidance": guidance,
        },
        notes=(_ENCODED, f"images of {_IMAGE} x {_IMAGE}: --resolution changes it"),
    )  # fmt: skip


@ADAPTERS.register("SD3Transformer2DModel")
def sd3(f: Fields) -> Translated:
    """Stable Diffusion 3: captions of 77 CLIP tokens and 256 of T5."""
    if f.has("dual_attention_layers") and f.counts("dual_attention_layers"):
        raise f.error("dual_attention_layers", "a second attention (SD3.5 medium) is not supported")
    norms = {"rms_norm": "rmsnorm", "": "none"}
    widths, side, rows = _widths(f), f.count("sample_size"), f.count("pos_embed_max_size")
    if f.count("caption_projection_dim") != widths["hidden"]:
        raise f.error(
            "caption_projection_dim",
            f"must be the width of the image tokens, {widths['hidden']}",
        )
    return Translated(
        arch="mmdit", sample_unit="image",
        config=widths | {
            "double_layers": f.layers("num_layers"),
            "in_channels": f.count("in_channels"),
            "patch": f.count("patch_size"),
            "image": side * _VAE_FACTOR,
            "text_tokens": 333,
            "text_width": f.count("joint_attention_dim"),
            "pooled_width": f.count("pooled_projection_dim"),
            "qk_norm": f.word("qk_norm", default="", among=norms),
            "positions": "table",
            "position_rows": rows**2,
            "text_to_the_end": False,
        },
        notes=(_ENCODED,),
    )  # fmt: skip


@ADAPTERS.register("WanTransformer3DModel")
def wan(f: Fields) -> Translated:
    """Wan, text to video."""
    for key in ("image_dim", "added_kv_proj_dim", "pos_embed_seq_len"):
        if f.has(key):
            raise f.error(key, "image to video is not supported")
    channels = f.count("in_channels", default=16)
    if f.count("out_channels", default=16) != channels:
        raise f.error("out_channels", "must equal in_channels")
    if not f.flag("cross_attn_norm", default=True):
        raise f.error("cross_attn_norm", "must be true")
    patch = f.counts("patch_size") or (1, 2, 2)
    if len(patch) != 3 or patch[0] != 1 or patch[1] != patch[2]:
        raise f.error("patch_size", "must be one frame and a square, such as [1, 2, 2]")
    f.word("qk_norm", default="rms_norm_across_heads",
           among=dict.fromkeys(("rms_norm_across_heads",), ""))  # fmt: skip
    return Translated(
        arch="wan", sample_unit="video",
        config=_widths(f) | {
            "layers": f.layers("num_layers"),
            "ffn": f.count("ffn_dim"),
            "in_channels": channels,
            "patch": patch[1],
            "text_width": f.count("text_dim"),
        },
        notes=(_ENCODED, "81 frames of 480 x 832: --frames and --resolution change it"),
    )  # fmt: skip
