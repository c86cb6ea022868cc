"""How wide the stream past the layers is under autocast: diffusers' classes, run by torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference.flow import diffusers, inputs_of, small_flux, small_sd3, small_wan
from torch import nn

from simcore.workload.models import MODELS

TEXT, SIDE = 8, 16


def _flux() -> tuple[nn.Module, dict[str, Any]]:
    model = small_flux(1, 2, guidance=False)
    return model, inputs_of(model, 1, TEXT, SIDE)


def _sd3() -> tuple[nn.Module, dict[str, Any]]:
    model = small_sd3(2)
    return model, inputs_of(model, 1, TEXT, SIDE)


def _wan() -> tuple[nn.Module, dict[str, Any]]:
    model = small_wan(2)
    return model, inputs_of(model, 1, TEXT, SIDE)


def _cogvideox() -> tuple[nn.Module, dict[str, Any]]:
    model = diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=2, text_embed_dim=32,
        sample_width=SIDE, sample_height=SIDE, sample_frames=9, max_text_seq_length=TEXT,
    )  # fmt: skip
    return model, {
        "hidden_states": torch.randn(1, 3, 16, SIDE, SIDE),
        "encoder_hidden_states": torch.randn(1, TEXT, 32),
        "timestep": torch.zeros(1),
    }


def _hunyuan() -> tuple[nn.Module, dict[str, Any]]:
    model = diffusers.HunyuanVideoTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, num_layers=1, num_single_layers=1,
        num_refiner_layers=1, text_embed_dim=32, pooled_projection_dim=32, rope_axes_dim=(4, 6, 6),
    )  # fmt: skip
    return model, {
        "hidden_states": torch.randn(1, 16, 3, SIDE, SIDE),
        "encoder_hidden_states": torch.randn(1, TEXT, 32),
        "encoder_attention_mask": torch.ones(1, TEXT, dtype=torch.long),
        "pooled_projections": torch.zeros(1, 32),
        "timestep": torch.zeros(1),
        "guidance": torch.zeros(1),
    }


@pytest.mark.parametrize(
    ("make", "entry"),
    [
        (_flux, "flux.1-dev"), (_sd3, "sd3-medium"), (_wan, "wan2.1-1.3b"),
        (_cogvideox, "cogvideox-2b"), (_hunyuan, "hunyuan-video"),
    ],
)  # fmt: skip
def test_checkpoints_hold_what_layers_hand_on(make: Any, entry: str) -> None:
    """It starts as a product's result, and every sum adds one: 16 bit, so is a layer's input."""
    model, given = make()
    handed: list[torch.dtype] = []

    def note(_module: nn.Module, _inputs: Any, out: Any) -> None:
        handed.extend(t.dtype for t in (out if isinstance(out, tuple) else (out,)) if t is not None)

    for name, child in model.named_children():
        if name in ("blocks", "transformer_blocks", "single_transformer_blocks"):
            for layer in child:
                layer.register_forward_hook(note)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(**given)
    assert handed
    assert set(handed) == {torch.bfloat16}
    layers = [b for b in MODELS[entry].build().blocks if b.recomputable]
    assert all(b.boundary.low and not b.boundary.high for b in layers)
