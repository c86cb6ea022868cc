"""Flux, Stable Diffusion 3 and Wan beside the classes of diffusers: parameters, FLOP, storages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from reference.flow import (
    FULL,
    diffusers,
    fuse_rms_norm,
    inputs_of,
    small_flux,
    small_sd3,
    small_wan,
)
from reference.measure import built_launches, built_saved_bytes
from reference.meter import Step, measure_step
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import DataError
from simcore.workload.archs import ARCHS
from simcore.workload.archs import body_layers as _body_layers  # noqa: F401  (registers)
from simcore.workload.graph import Kernel, Workload
from simcore.workload.huggingface import read_config
from simcore.workload.models import MODELS

BATCH, TEXT = 2, 24
#: Kernels of CUDA that a CPU runs as one, a layer: a norm's weight gradient; two more of fused
#: attention's backward; the zeros that the gradient of a slice is written into.
RMS, FLASH, SLICE = 1, 2, 1


@pytest.mark.parametrize("name", FULL)
def test_parameters_are_those_of_the_class(name: str) -> None:
    with torch.device("meta"):
        module = FULL[name]()
    truth = sum(p.numel() for p in module.parameters())
    assert MODELS[name].build().trainable_numel == truth


def test_encoders_of_flux_are_those_classes() -> None:
    with torch.device("meta"):
        vae = diffusers.AutoencoderKL(
            latent_channels=16,
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )
        clip = transformers.CLIPTextModel(transformers.CLIPTextConfig(
            hidden_size=768, intermediate_size=3072, num_attention_heads=12,
        ))  # fmt: skip
        with FlopCounterMode(display=False) as counter:
            vae.encoder(torch.empty(1, 3, 256, 256))
    _, text, image = MODELS["flux.1-schnell-encoders"].build().frozen
    assert text.resident_numel == sum(p.numel() for p in clip.parameters())
    assert image.resident_numel == sum(p.numel() for p in vae.parameters())
    ours = sum(k.flop for op in image.ops for k in op.fwd)
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("name", FULL)
def test_the_configs_of_these_classes_are_read(name: str, tmp_path: Path) -> None:
    with torch.device("meta"):
        module = FULL[name]()
    path = tmp_path / "config.json"
    path.write_text(module.to_json_string(), encoding="utf-8")
    ours, entry = read_config(path), MODELS[name]
    assert ours.params.value == entry.params.value
    size = {k: v for k, v in entry.config.items() if k in ("image", "frames", "height", "width")}
    built, known = ours.build(**size), entry.build()
    assert built.tokens_per_sample == known.tokens_per_sample
    assert built.forward_flop == known.forward_flop


@pytest.mark.parametrize(
    ("kind", "changes", "said"),
    [
        ("sd3-medium", {"dual_attention_layers": [0, 1]}, "second attention"),
        ("wan2.1-1.3b", {"image_dim": 1280}, "image to video"),
        ("wan2.1-1.3b", {"pos_embed_seq_len": 514}, "a first and a last frame"),
        ("qwen-image", {"out_channels": 12}, "a fourth of in_channels"),
        ("wan2.1-1.3b", {"patch_size": [2, 2, 2]}, "one frame and a square"),
        ("flux.1-dev", {"patch_size": 2}, "packed two by two"),
        ("flux.1-dev", {"_class_name": "SanaTransformer2DModel"}, "is not supported"),
    ],
)
def test_configs_of_what_is_not_described_say_so(
    kind: str, changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    with torch.device("meta"):
        data = json.loads(FULL[kind]().to_json_string())
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data | changes), encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_config(path)


@pytest.mark.parametrize(
    ("name", "text", "side", "frames", "changes"),
    [
        ("flux.1-schnell", 256, 32, 1, {}),
        ("sd3-medium", 333, 32, 1, {"image": 256}),
        ("wan2.1-1.3b", 512, 16, 2, {"frames": 5, "height": 128, "width": 256}),
        ("wan2.1-i2v-14b", 512, 16, 2, {"frames": 5, "height": 128, "width": 256}),
        ("wan2.2-i2v-a14b", 512, 16, 2, {"frames": 5, "height": 128, "width": 256}),
        ("wan2.2-ti2v-5b", 512, 16, 2, {"frames": 5, "height": 256, "width": 512}),
        ("qwen-image", 256, 32, 1, {"image": 256}),
        ("ltx-video", 128, 4, 2, {"frames": 9, "height": 128, "width": 256}),
        ("ltx-video-13b", 128, 4, 2, {"frames": 9, "height": 128, "width": 256}),
    ],
)
def test_flop_are_those_of_the_counter(
    name: str, text: int, side: int, frames: int, changes: dict[str, int]
) -> None:
    with torch.device("meta"):
        module = FULL[name]()
        given = inputs_of(module, 1, text, side, frames)
        with FlopCounterMode(display=False) as counter:
            module(**given)
    ours = MODELS[name].build(**changes).forward_flop
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)


def small(kind: str, layers: int) -> tuple[Workload, Step]:
    """The same small model as a Workload and as a measured torch step."""
    torch.manual_seed(0)
    config = {"hidden": 64, "heads": 4, "text_tokens": TEXT, "text_width": 48}
    image = config | {"image": 128, "pooled_width": 32}
    model: nn.Module
    if kind == "wan":
        model = small_wan(layers)
        changes = config | {"layers": layers, "ffn": 256, "frames": 9, "height": 64, "width": 128}
    elif kind == "sd3":
        model = small_sd3(layers)
        changes = image | {
            "double_layers": layers, "qk_norm": "none", "positions": "table",
            "position_rows": 1024, "text_to_the_end": False,
        }  # fmt: skip
    else:
        counts = (layers, 1) if kind == "double" else (1, layers)
        model = small_flux(*counts, guidance=kind == "double")
        changes = image | {"double_layers": counts[0], "single_layers": counts[1]}
        changes["guidance"] = kind == "double"
    built = ARCHS["wan" if kind == "wan" else "mmdit"](name="small", **changes)
    assert built.trainable_numel == sum(p.numel() for p in model.parameters())
    given = inputs_of(model, BATCH, TEXT, 8 if kind == "wan" else 16)

    def forward() -> torch.Tensor:
        out = model(**given)[0]
        return ((out.float() - given["hidden_states"].float()) ** 2).mean()

    return built, measure_step(model, forward)


def elems(workload: Workload, side: str) -> float:
    kernels: list[Kernel] = [
        k for b in workload.instances() for op in b.ops for k in getattr(op, side)
    ]
    return sum((k.low + k.high + k.raw_bytes / 4) * BATCH + k.weight for k in kernels)


KINDS = ("double", "single", "sd3", "wan")


@pytest.mark.parametrize("kind", KINDS)
def test_storages_and_kernels_of_a_layer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more layers: what torch keeps, launches and moves more is what is more here."""
    fuse_rms_norm(monkeypatch)
    (short, before), (long, after) = (small(kind, layers) for layers in (2, 4))
    kept = BATCH * (built_saved_bytes(long) - built_saved_bytes(short))
    assert kept == pytest.approx(after.saved_bytes - before.saved_bytes, rel=0.01)

    forward, backward = (a - b for a, b in zip(*map(built_launches, (long, short)), strict=True))
    more = [getattr(after, s).n_launches - getattr(before, s).n_launches for s in ("fwd", "bwd")]
    # linear layers on slices are a copy, a product and a sum: three more in SD3's forward
    assert forward == more[0] - (6 if kind == "sd3" else 0)
    beside = {
        "double": 4 * RMS + FLASH,
        "single": 2 * RMS + FLASH + 2 * SLICE,
        "sd3": 0,  # FLASH, less two copies of what lies in slices
        "wan": 4 * RMS + 2 * FLASH + 1,  # and norm2's
    }[kind]
    assert backward == more[1] + 2 * beside

    for side in ("fwd", "bwd"):
        moved = elems(long, side) - elems(short, side)
        truth = getattr(after, side).n_elems - getattr(before, side).n_elems
        assert moved == pytest.approx(truth, rel=0.06), side


@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_around_the_layers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fuse_rms_norm(monkeypatch)
    built, step = small(kind, 2)
    assert BATCH * built_saved_bytes(built) == pytest.approx(step.saved_bytes, rel=0.02)
    for side in ("fwd", "bwd"):
        assert elems(built, side) == pytest.approx(getattr(step, side).n_elems, rel=0.05), side
