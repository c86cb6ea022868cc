"""More models of diffusers: the U-Net of latent diffusion, CogVideoX, HunyuanVideo."""

from __future__ import annotations

from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated

_ENCODED = "latents and encodings come from storage: no encoder runs in the step"
#: Pixels per latent element and side, of the autoencoders that these models are published with.
_VAE_FACTOR = 8
#: Kind of block -> whether it has transformer layers.
_DOWN = {"CrossAttnDownBlock2D": True, "DownBlock2D": False}
_UP = {"CrossAttnUpBlock2D": True, "UpBlock2D": False}


def _levels(f: Fields, key: str, count: int, default: int) -> tuple[int, ...]:
    """One number per level, from a list or from one number for all levels."""
    if not f.has(key):
        return (default,) * count
    numbers = f.counts(key) if isinstance(f.data[key], list) else (f.count(key),) * count
    if len(numbers) != count:
        raise f.error(key, f"must have {count} numbers")
    return numbers


@ADAPTERS.register("UNet2DConditionModel")
def unet(f: Fields) -> Translated:
    """Stable Diffusion 1 and 2, SDXL; ``attention_head_dim`` is the number of heads."""
    widths = f.counts("block_out_channels")
    down, up = f.words("down_block_types"), f.words("up_block_types")
    for key, kinds, known in (("down_block_types", down, _DOWN), ("up_block_types", up, _UP)):
        for kind in kinds:
            if kind not in known:
                raise f.error(key, f"{kind} is not supported")
    attends = [_DOWN[kind] for kind in down]
    if attends != [_UP[kind] for kind in reversed(up)]:
        raise f.error("up_block_types", "must mirror down_block_types")
    if len(attends) != len(widths):
        raise f.error("down_block_types", "must have as many entries as block_out_channels")
    for key in ("class_embed_type", "encoder_hid_dim", "time_cond_proj_dim", "num_class_embeds"):
        if f.has(key):
            raise f.error(key, "is not supported")
    channels = f.count("in_channels", default=4)
    if f.count("out_channels", default=4) != channels:
        raise f.error("out_channels", "must equal in_channels; inpainting is not supported")
    added = f.word("addition_embed_type", default="", among={"": "", "text_time": "text_time"})
    depths = _levels(f, "transformer_layers_per_block", len(widths), 1)
    return Translated(
        arch="latent_unet", sample_unit="image",
        config={
            "image": f.count("sample_size") * _VAE_FACTOR,
            "widths": " ".join(map(str, widths)),
            "transformer_layers": " ".join(
                str(depth * attending) for depth, attending in zip(depths, attends, strict=True)
            ),
            "middle_layers": depths[-1],
            "heads": " ".join(map(str, _levels(f, "attention_head_dim", len(widths), 8))),
            "resnets": f.count("layers_per_block", default=2),
            "text_width": f.count("cross_attention_dim"),
            "pooled_width": f.count("projection_class_embeddings_input_dim") if added else 0,
            "projections": "linear" if f.flag("use_linear_projection", default=False) else "conv",
            "in_channels": channels,
            "encoded": True,
        },
        notes=(_ENCODED, "captions of 77 tokens"),
    )  # fmt: skip


@ADAPTERS.register("CogVideoXTransformer3DModel")
def cogvideox(f: Fields) -> Translated:
    """CogVideoX 1.0, text to video."""
    if f.has("patch_size_t"):
        raise f.error("patch_size_t", "patches of several frames (CogVideoX 1.5) are not supported")
    channels = f.count("in_channels", default=16)
    if f.count("out_channels", default=16) != channels or f.has("ofs_embed_dim"):
        raise f.error("out_channels", "image to video is not supported")
    heads, head_dim = f.count("num_attention_heads"), f.count("attention_head_dim", default=64)
    rotary = f.flag("use_rotary_positional_embeddings", default=False)
    return Translated(
        arch="cogvideox", sample_unit="video",
        config={
            "layers": f.layers("num_layers"),
            "hidden": heads * head_dim, "heads": heads, "head_dim": head_dim,
            "frames": f.count("sample_frames", default=49),
            "height": f.count("sample_height", default=60) * _VAE_FACTOR,
            "width": f.count("sample_width", default=90) * _VAE_FACTOR,
            "patch": f.count("patch_size", default=2),
            "in_channels": channels,
            "text_tokens": f.count("max_text_seq_length", default=226),
            "text_width": f.count("text_embed_dim", default=4096),
            "step_width": f.count("time_embed_dim", default=512),
            "positions": "rope" if rotary else "table",
        },
        notes=(_ENCODED,),
    )  # fmt: skip


@ADAPTERS.register("HunyuanVideoTransformer3DModel")
def hunyuan_video(f: Fields) -> Translated:
    """HunyuanVideo, text to video."""
    channels = f.count("in_channels", default=16)
    if f.count("out_channels", default=16) != channels or f.has("image_condition_type"):
        raise f.error("in_channels", "image to video is not supported")
    heads, head_dim = f.count("num_attention_heads"), f.count("attention_head_dim")
    return Translated(
        arch="mmdit_video", sample_unit="video",
        config={
            "double_layers": f.layers("num_layers"),
            "single_layers": f.layers("num_single_layers"),
            "refiner_layers": f.layers("num_refiner_layers"),
            "hidden": heads * head_dim, "heads": heads, "head_dim": head_dim,
            "frames": 129, "height": 720, "width": 1280,
            "patch": f.count("patch_size", default=2),
            "in_channels": channels,
            "text_width": f.count("text_embed_dim"),
            "pooled_width": f.count("pooled_projection_dim"),
            "guidance": f.flag("guidance_embeds", default=True),
        },
        notes=(_ENCODED, "129 frames of 720 x 1280: --frames and --resolution change it"),
    )  # fmt: skip
