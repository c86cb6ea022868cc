"""Flux, Stable Diffusion 3 and Wan as the classes of diffusers run them, small or on meta."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: the reference")

#: Keywords of the published configurations (transformer/config.json of each).
FULL: dict[str, Callable[[], nn.Module]] = {
    "flux.1-schnell": lambda: diffusers.FluxTransformer2DModel(guidance_embeds=False),
    "flux.1-dev": lambda: diffusers.FluxTransformer2DModel(guidance_embeds=True),
    "sd3-medium": lambda: diffusers.SD3Transformer2DModel(
        sample_size=128, num_layers=24, attention_head_dim=64, num_attention_heads=24,
        joint_attention_dim=4096, caption_projection_dim=1536, pooled_projection_dim=2048,
        out_channels=16, pos_embed_max_size=192,
    ),
    "wan2.1-14b": lambda: diffusers.WanTransformer3DModel(
        num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, num_layers=40
    ),
    "wan2.1-1.3b": lambda: diffusers.WanTransformer3DModel(
        num_attention_heads=12, attention_head_dim=128, ffn_dim=8960, num_layers=30
    ),
    "wan2.1-i2v-14b": lambda: diffusers.WanTransformer3DModel(
        num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, num_layers=40,
        in_channels=36, image_dim=1280, added_kv_proj_dim=5120,
    ),
    "wan2.2-i2v-a14b": lambda: diffusers.WanTransformer3DModel(
        num_attention_heads=40, attention_head_dim=128, ffn_dim=13824, num_layers=40,
        in_channels=36,
    ),
    "wan2.2-ti2v-5b": lambda: diffusers.WanTransformer3DModel(
        num_attention_heads=24, attention_head_dim=128, ffn_dim=14336, num_layers=30,
        in_channels=48, out_channels=48,
    ),
    "ltx-video": lambda: diffusers.LTXVideoTransformer3DModel(),
    "ltx-video-13b": lambda: diffusers.LTXVideoTransformer3DModel(
        num_layers=48, attention_head_dim=128, cross_attention_dim=4096
    ),
    "qwen-image": lambda: diffusers.QwenImageTransformer2DModel(),
}  # fmt: skip


def fuse_rms_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel each way, as on CUDA; torch writes it out on a CPU."""

    def fused(self: nn.RMSNorm, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.normalized_shape, self.weight, None, self.eps or 1e-6)

    monkeypatch.setattr(nn.RMSNorm, "forward", fused)


def inputs_of(
    model: nn.Module, batch: int, text: int, side: int, frames: int = 3
) -> dict[str, Any]:
    """What the forward of a model takes; ``side`` of the latent in elements."""
    config: Any = model.config
    given: dict[str, Any] = {"return_dict": False}
    if isinstance(model, diffusers.WanTransformer3DModel):
        shape, width = (batch, config.in_channels, frames, side, 2 * side), config.text_dim
        given["timestep"] = torch.zeros(batch, dtype=torch.long)
        if config.image_dim:
            given["encoder_hidden_states_image"] = torch.randn(batch, 257, config.image_dim)
    elif isinstance(model, diffusers.LTXVideoTransformer3DModel):
        rows, width = frames * side * 2 * side, config.caption_channels
        shape = (batch, rows, config.in_channels)
        given["timestep"] = torch.zeros(batch)
        given["encoder_attention_mask"] = torch.ones(batch, text)
        given |= {"num_frames": frames, "height": side, "width": 2 * side}
    elif isinstance(model, diffusers.QwenImageTransformer2DModel):
        rows, width = (side // 2) ** 2, config.joint_attention_dim
        shape = (batch, rows, config.in_channels)
        given["timestep"] = torch.zeros(batch)
        given["img_shapes"] = [[(1, side // 2, side // 2)]] * batch
        given["encoder_hidden_states_mask"] = torch.ones(batch, text, dtype=torch.bool)
    elif isinstance(model, diffusers.FluxTransformer2DModel):
        rows, width = (side // 2) ** 2, config.joint_attention_dim
        shape = (batch, rows, config.in_channels)
        given |= {"img_ids": torch.zeros(rows, 3), "txt_ids": torch.zeros(text, 3)}
        given["timestep"] = torch.zeros(batch)
        if config.guidance_embeds:
            given["guidance"] = torch.ones(batch)
    else:
        shape, width = (batch, config.in_channels, side, side), config.joint_attention_dim
        given["timestep"] = torch.zeros(batch)
    if hasattr(config, "pooled_projection_dim"):
        given["pooled_projections"] = torch.randn(batch, config.pooled_projection_dim)
    given["hidden_states"] = torch.randn(*shape)
    given["encoder_hidden_states"] = torch.randn(batch, text, width)
    return given


def small_flux(double: int, single: int, guidance: bool) -> nn.Module:
    made: nn.Module = diffusers.FluxTransformer2DModel(
        num_layers=double, num_single_layers=single, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=48, pooled_projection_dim=32, guidance_embeds=guidance,
        axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    return made


def small_sd3(layers: int) -> nn.Module:
    made: nn.Module = diffusers.SD3Transformer2DModel(
        sample_size=16, num_layers=layers, attention_head_dim=16, num_attention_heads=4,
        joint_attention_dim=48, caption_projection_dim=64, pooled_projection_dim=32,
        pos_embed_max_size=32,
    )  # fmt: skip
    return made


def small_wan(layers: int) -> nn.Module:
    made: nn.Module = diffusers.WanTransformer3DModel(
        num_attention_heads=4, attention_head_dim=16, text_dim=48, ffn_dim=256, num_layers=layers
    )
    return made
