"""U-Nets of latent diffusion beside diffusers' class: parameters, FLOP, storages, kernels."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from reference.flow import diffusers
from reference.measure import built_launches, built_saved_bytes
from reference.meter import Step, measure_step
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import DataError
from simcore.workload.archs import ARCHS
from simcore.workload.archs import latent_unet as _latent_unet  # noqa: F401  (registers)
from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config
from simcore.workload.models import MODELS

BATCH, TEXT = 2, 7
#: unet/config.json of the published models, beside the class's own defaults.
FULL: dict[str, dict[str, Any]] = {
    "sd-v1.5": {"cross_attention_dim": 768, "attention_head_dim": 8},
    "sd-v2": {
        "cross_attention_dim": 1024, "attention_head_dim": (5, 10, 20, 20),
        "use_linear_projection": True,
    },
    "sdxl": {
        "block_out_channels": (320, 640, 1280),
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        "transformer_layers_per_block": (1, 2, 10), "attention_head_dim": (5, 10, 20),
        "cross_attention_dim": 2048, "use_linear_projection": True,
        "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FULL)
def test_parameters_and_flop_are_those_of_the_class(name: str) -> None:
    given: dict[str, Any] = {}
    side = 128 if name == "sdxl" else 64
    with torch.device("meta"):
        module = diffusers.UNet2DConditionModel(**FULL[name])
        caption = torch.empty(1, 77, FULL[name]["cross_attention_dim"])
        if name == "sdxl":
            conditions = {"text_embeds": torch.empty(1, 1280), "time_ids": torch.empty(1, 6)}
            given = {"added_cond_kwargs": conditions}
        with FlopCounterMode(display=False) as counter:
            module(torch.empty(1, 4, side, side), torch.empty(1), caption, **given)
    ours = MODELS[name].build()
    assert ours.trainable_numel == sum(p.numel() for p in module.parameters())
    assert ours.forward_flop == pytest.approx(counter.get_total_flops(), rel=1e-9)


@cache
def small(layers: int, resnets: int, projections: str) -> tuple[Workload, Step]:
    """The same small model as a Workload and as a measured torch step."""
    torch.manual_seed(0)
    model: nn.Module = diffusers.UNet2DConditionModel(
        sample_size=16, layers_per_block=resnets, block_out_channels=(64, 128),
        cross_attention_dim=48, attention_head_dim=(4, 8),
        use_linear_projection=projections == "linear",
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        transformer_layers_per_block=(layers, 1),
    )  # fmt: skip
    x, caption = torch.randn(BATCH, 4, 16, 16), torch.randn(BATCH, TEXT, 48)

    def forward() -> torch.Tensor:
        noise = torch.randn_like(x)
        return ((model(x, torch.zeros(BATCH), caption)[0].float() - noise.float()) ** 2).mean()

    built = ARCHS["latent_unet"](
        name="small", image=128, widths="64 128", transformer_layers=f"{layers} 0", heads="4 8",
        resnets=resnets, text_tokens=TEXT, text_width=48, projections=projections,
    )  # fmt: skip
    assert built.trainable_numel == sum(p.numel() for p in model.parameters())
    return built, measure_step(model, forward)


def elems(workload: Workload, side: str) -> float:
    kernels = [k for b in workload.instances() for op in b.ops for k in getattr(op, side)]
    return sum((k.low + k.high + k.raw_bytes / 4) * BATCH + k.weight for k in kernels)


@pytest.mark.parametrize("projections", ["linear", "conv"])
def test_storages_and_traffic_match_autograd_and_the_dispatcher(projections: str) -> None:
    built, step = small(1, 1, projections)
    assert BATCH * built_saved_bytes(built) == pytest.approx(step.saved_bytes, rel=1e-3)
    assert elems(built, "fwd") == pytest.approx(step.fwd.n_elems, rel=0.05)
    # on a GPU a norm's weights read both of its operands again
    assert elems(built, "bwd") == pytest.approx(step.bwd.n_elems, rel=0.06)


def test_a_layer_more_keeps_and_launches_what_torch_does() -> None:
    """Two layers more in each of three transformers: twelve attentions, eighteen norms."""
    (short, before), (long, after) = (small(layers, 1, "linear") for layers in (1, 3))
    kept = BATCH * (built_saved_bytes(long) - built_saved_bytes(short))
    assert kept == after.saved_bytes - before.saved_bytes
    forward, backward = (a - b for a, b in zip(*map(built_launches, (long, short)), strict=True))
    assert forward == after.fwd.n_launches - before.fwd.n_launches
    # on a GPU attention's backward is three kernels, and a norm's weights have one of their own
    beside = 12 * 2 + 18
    assert backward == after.bwd.n_launches - before.bwd.n_launches + beside


def test_autocast_keeps_what_the_shortcut_reads_beside_the_norm() -> None:
    """Norms keep their input in fp32, convolutions theirs in 16 bit; without it they share it."""
    built = MODELS["sd-v1.5"].build()
    joined = 64**2 * (960 + 2 * 640) + 32**2 * (1920 + 1280 + 960)
    joined += 16**2 * (2 * 2560 + 1920) + 8**2 * 3 * 2560
    joined += 32**2 * 320 + 16**2 * 640  # where the way down widens
    shortcuts = [op for b in built.instances() for op in b.ops if op.name == "shortcut.input"]
    assert sum(op.saved.autocast for op in shortcuts) == joined


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"image": 100}, "multiple of"),
        ({"widths": "320 640", "heads": "8 8 8"}, "one number a level"),
        ({"heads": "7"}, "multiples of heads"),
        ({"resnets": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_be_are_told(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ARCHS["latent_unet"](name="x", **config)


def test_encoders_in_16_bit_have_their_norms_in_it_too() -> None:
    """They run outside of autocast, which would have them in fp32; as many elements are moved."""
    record = MODELS["sd-v1.5"]
    half = [k for part in record.build().frozen for op in part.ops for k in op.fwd]
    wide = [
        k
        for part in record.model_copy(
            update={
                "frozen": [f.model_copy(update={"bytes_per_param": None}) for f in record.frozen]
            }
        )
        .build()
        .frozen
        for op in part.ops
        for k in op.fwd
    ]
    assert not any(k.high for k in half)
    assert any(k.high for k in wide)
    assert sum(k.low for k in half) == sum(k.low + k.high for k in wide)


@pytest.mark.parametrize("name", FULL)
def test_adapters_are_those_of_the_attention_products(name: str) -> None:
    """Rank 4 on every to_q, to_k, to_v and to_out.0 of the class; of 1.5 diffusers has 797,184."""
    with torch.device("meta"):
        module = diffusers.UNet2DConditionModel(**FULL[name])
    adapted = MODELS[name].build(lora_rank=4)
    named = [
        layer
        for path, layer in module.named_modules()
        if path.endswith(("to_q", "to_k", "to_v", "to_out.0"))
    ]
    truth = sum(4 * (layer.in_features + layer.out_features) for layer in named)
    assert adapted.trainable_numel == truth
    if name == "sd-v1.5":
        assert truth == 797_184
    base = next(f for f in adapted.frozen if f.name == "frozen base")
    assert base.resident_numel == sum(p.numel() for p in module.parameters())


class _Adapted(nn.Module):
    """A linear layer beside which two small ones are trained."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x)) * 2.0


def test_a_frozen_base_keeps_what_autograd_does() -> None:
    """Frozen convolutions keep their input all the same: one formula gives both gradients."""
    torch.manual_seed(0)
    model: Any = diffusers.UNet2DConditionModel(
        sample_size=16, layers_per_block=1, block_out_channels=(64, 128), cross_attention_dim=48,
        attention_head_dim=(4, 8), use_linear_projection=True,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), transformer_layers_per_block=(2, 1),
    )  # fmt: skip
    model.requires_grad_(False)
    for path, module in list(model.named_modules()):
        if path.endswith(("attn1", "attn2")):
            for part in ("to_q", "to_k", "to_v"):
                setattr(module, part, _Adapted(getattr(module, part), 4))
            module.to_out[0] = _Adapted(module.to_out[0], 4)
    x, caption = torch.randn(BATCH, 4, 16, 16), torch.randn(BATCH, TEXT, 48)

    def forward() -> torch.Tensor:
        noise = torch.randn_like(x)
        return ((model(x, torch.zeros(BATCH), caption)[0].float() - noise.float()) ** 2).mean()

    step = measure_step(model, forward)
    built = ARCHS["latent_unet"](
        name="small", image=128, widths="64 128", transformer_layers="2 0", heads="4 8", resnets=1,
        text_tokens=TEXT, text_width=48, projections="linear", lora_rank=4,
    )  # fmt: skip
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert built.trainable_numel == trained
    assert BATCH * built_saved_bytes(built) == pytest.approx(step.saved_bytes, rel=0.01)


def test_a_frozen_base_computes_no_gradients_of_its_weights() -> None:
    """Forward as ever and the adapters; backward of the base towards inputs alone, and none before
    the first adapter."""
    whole, adapted = (MODELS["sdxl"].build(**s) for s in ({}, {"lora_rank": 1}))
    forward = whole.forward_flop

    def backward(workload: Workload) -> float:
        return sum(
            k.flop for b in workload.instances() for op in b.ops for k in op.bwd
            if not k.kind.startswith("attention")
        )  # fmt: skip

    assert forward < adapted.forward_flop < 1.01 * forward
    assert backward(adapted) == pytest.approx(backward(whole) / 2, rel=0.06)


@pytest.mark.parametrize("name", FULL)
def test_the_config_of_the_class_is_read(name: str, tmp_path: Path) -> None:
    side = {"sample_size": 128 if name == "sdxl" else 64}
    with torch.device("meta"):
        module = diffusers.UNet2DConditionModel(**FULL[name], **side)
    path = tmp_path / "config.json"
    path.write_text(module.to_json_string(), encoding="utf-8")
    ours, entry = read_config(path), MODELS[name]
    assert ours.params.value == entry.params.value
    assert ours.build().forward_flop == entry.build().forward_flop


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"in_channels": 9}, "inpainting"),
        ({"down_block_types": ("DownBlock2D",) * 4}, "must mirror"),
        ({"down_block_types": ("AttnDownBlock2D",) * 4}, "AttnDownBlock2D is not supported"),
        ({"attention_head_dim": (8, 8)}, "must have 4 numbers"),
    ],
)
def test_configs_of_what_is_not_described_say_so(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with torch.device("meta"):
        module = diffusers.UNet2DConditionModel(**FULL["sd-v1.5"], sample_size=64)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(module.to_json_string()) | changes), encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_config(path)


def test_channels_last_spares_turns_and_copies() -> None:
    """Points lie together then: nothing is laid out anew around a transformer."""
    first, last = (MODELS["sdxl"].build(layout=word) for word in ("nchw", "nhwc"))
    assert last.forward_flop == first.forward_flop

    def kernels(workload: Workload) -> list[Any]:
        return [k for b in workload.instances() for op in b.ops for k in op.fwd]

    assert any(k.relaid for k in kernels(first))
    assert not any(k.relaid for k in kernels(last))
    transformers = 2 * 2 + 1 + 2 * 3
    assert len(kernels(first)) - len(kernels(last)) == 2 * transformers
