"""CogVideoX and HunyuanVideo beside the classes of diffusers: parameters, FLOP, storages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from reference.flow import diffusers
from reference.measure import built_launches, built_saved_bytes
from reference.meter import Step, measure_step
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import InvalidConfig
from simcore.workload.archs import ARCHS
from simcore.workload.archs import body_layers as _body_layers  # noqa: F401  (registers)
from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config
from simcore.workload.models import MODELS
from simcore.workload.resolve import resolve_model

BATCH, TEXT = 2, 7
#: transformer/config.json of the published models, beside the classes' own defaults.
COG: dict[str, dict[str, Any]] = {
    "cogvideox-2b": {"num_attention_heads": 30, "num_layers": 30},
    "cogvideox-5b": {
        "num_attention_heads": 48, "num_layers": 42, "use_rotary_positional_embeddings": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", COG)
def test_cogvideox_is_that_class(name: str) -> None:
    with torch.device("meta"):
        module = diffusers.CogVideoXTransformer3DModel(**COG[name])
        turns = (torch.empty(13 * 30 * 45, 64),) * 2 if name == "cogvideox-5b" else None
        given = (torch.empty(1, 13, 16, 60, 90), torch.empty(1, 226, 4096), torch.empty(1))
        with FlopCounterMode(display=False) as counter:
            module(*given, image_rotary_emb=turns)
    ours = MODELS[name].build()
    assert ours.trainable_numel == sum(p.numel() for p in module.parameters())
    assert ours.forward_flop == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_hunyuan_video_is_that_class() -> None:
    with torch.device("meta"):
        module = diffusers.HunyuanVideoTransformer3DModel()
        with FlopCounterMode(display=False) as counter:
            module(
                torch.empty(1, 16, 3, 16, 16), torch.empty(1), torch.empty(1, 256, 4096),
                torch.ones(1, 256, dtype=torch.long), torch.empty(1, 768), torch.empty(1),
            )  # fmt: skip
    ours = MODELS["hunyuan-video"].build(frames=9, height=128, width=128)
    assert ours.trainable_numel == sum(p.numel() for p in module.parameters())
    assert ours.forward_flop == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "published"), [("hunyuan-video", 163_577_856), ("cogvideox-5b", 132_120_576)]
)
def test_adapters_of_published_runs(name: str, published: int) -> None:
    """finetrainers, docs/training: rank 128 on to_q to_k to_v to_out.0, trainable parameters."""
    adapted = MODELS[name].build(lora_rank=128, lora_targets="to_q,to_k,to_v,to_out.0")
    assert adapted.trainable_numel == published


def small_cog(layers: int, rotary: bool) -> tuple[Workload, Step]:
    torch.manual_seed(0)
    model: nn.Module = diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=4, attention_head_dim=16, num_layers=layers, text_embed_dim=48,
        use_rotary_positional_embeddings=rotary, time_embed_dim=32, sample_width=16,
        sample_height=16, sample_frames=9, max_text_seq_length=TEXT,
    )  # fmt: skip
    x, text = torch.randn(BATCH, 3, 16, 16, 16), torch.randn(BATCH, TEXT, 48)
    turns = (torch.randn(3 * 64, 16), torch.randn(3 * 64, 16)) if rotary else None

    def forward() -> torch.Tensor:
        out = model(x, text, torch.zeros(BATCH), image_rotary_emb=turns)[0]
        return ((out.float() - x.float()) ** 2).mean()

    built = ARCHS["cogvideox"](
        name="small", layers=layers, hidden=64, heads=4, frames=9, height=128, width=128,
        text_tokens=TEXT, text_width=48, step_width=32, positions="rope" if rotary else "table",
    )  # fmt: skip
    return built, measure_step(model, forward)


def small_hunyuan(refiners: int, layers: int) -> tuple[Workload, Step]:
    torch.manual_seed(0)
    model: nn.Module = diffusers.HunyuanVideoTransformer3DModel(
        num_attention_heads=4, attention_head_dim=16, num_layers=layers,
        num_single_layers=layers, num_refiner_layers=refiners, text_embed_dim=48,
        pooled_projection_dim=32, rope_axes_dim=(4, 6, 6),
    )  # fmt: skip
    x, text = torch.randn(BATCH, 16, 3, 16, 16), torch.randn(BATCH, TEXT, 48)
    mask = torch.ones(BATCH, TEXT, dtype=torch.long)

    def forward() -> torch.Tensor:
        zeros = torch.zeros(BATCH)
        out = model(x, zeros, text, mask, torch.zeros(BATCH, 32), zeros)[0]
        return ((out.float() - x.float()) ** 2).mean()

    built = ARCHS["mmdit_video"](
        name="small", double_layers=layers, single_layers=layers, refiner_layers=refiners,
        hidden=64, heads=4, frames=9, height=128, width=128, text_tokens=TEXT, text_width=48,
        pooled_width=32,
    )  # fmt: skip
    assert built.trainable_numel == sum(p.numel() for p in model.parameters())
    return built, measure_step(model, forward)


@pytest.mark.parametrize("rotary", [False, True])
def test_a_layer_of_cogvideox_keeps_and_launches_what_torch_does(rotary: bool) -> None:
    (short, before), (long, after) = (small_cog(layers, rotary) for layers in (2, 4))
    kept = BATCH * (built_saved_bytes(long) - built_saved_bytes(short))
    assert kept == after.saved_bytes - before.saved_bytes
    forward, backward = (a - b for a, b in zip(*map(built_launches, (long, short)), strict=True))
    assert forward == after.fwd.n_launches - before.fwd.n_launches
    # on a GPU attention's backward is three kernels, and a norm's weights have one of their own
    truth = after.bwd.n_launches - before.bwd.n_launches + 2 * 2 + 12
    assert backward == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("more", [(2, 1), (1, 3)])
def test_layers_of_hunyuan_video_keep_what_torch_does(more: tuple[int, int]) -> None:
    (short, before), (long, after) = small_hunyuan(1, 1), small_hunyuan(*more)
    kept = BATCH * (built_saved_bytes(long) - built_saved_bytes(short))
    assert kept == pytest.approx(after.saved_bytes - before.saved_bytes, rel=0.03)


@pytest.mark.parametrize(
    ("arch", "config", "said"),
    [
        ("cogvideox", {"layers": 1, "frames": 50}, "1 more than a multiple of 4"),
        ("cogvideox", {"layers": 1, "width": 725}, "width=725 must be a multiple of 16"),
        ("cogvideox", {"layers": 1, "positions": "none"}, "positions 'none'"),
        ("mmdit_video", {"double_layers": 1, "single_layers": 1, "height": 100}, "height=100"),
    ],
)
def test_settings_that_cannot_be_are_told(arch: str, config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ARCHS[arch](name="x", hidden=64, heads=4, **config)


@pytest.mark.parametrize("name", [*COG, "hunyuan-video"])
def test_the_configs_of_these_classes_are_read(name: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        if name in COG:
            module = diffusers.CogVideoXTransformer3DModel(**COG[name])
        else:
            module = diffusers.HunyuanVideoTransformer3DModel()
    path = tmp_path / "config.json"
    path.write_text(module.to_json_string(), encoding="utf-8")
    ours, entry = read_config(path), MODELS[name]
    assert ours.params.value == entry.params.value
    assert ours.build().forward_flop == entry.build().forward_flop


def test_each_kind_of_layer_runs_at_least_once() -> None:
    model = resolve_model("hunyuan-video", settings={"double_layers": 0})
    with pytest.raises(InvalidConfig, match="double_layers 0 is no whole number from 1"):
        model.build()
