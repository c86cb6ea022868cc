"""Models by name whose makers publish counts or work: detectors, speech, recommenders, DINOv3."""

from __future__ import annotations

import pytest
import torch
import transformers
from reference import measure
from torch import nn

from simcore.base.errors import InvalidConfig
from simcore.workload.archs.layers import LayerList
from simcore.workload.models import MODELS

embedding_tables = LayerList("embedding_tables")


@pytest.mark.parametrize(
    ("name", "millions", "gflop"),
    [
        # docs.ultralytics.com/models/yolo11: parameters and FLOP at 640, two a multiply-add
        ("yolo11n", 2.6, 6.5), ("yolo11s", 9.4, 21.5), ("yolo11m", 20.1, 68.0),
        ("yolo11l", 25.3, 86.9), ("yolo11x", 56.9, 194.9),
    ],
)  # fmt: skip
def test_yolo11_is_the_published_one(name: str, millions: float, gflop: float) -> None:
    workload = MODELS[name].build()
    assert workload.trainable_numel / 1e6 == pytest.approx(millions, abs=0.1)
    assert workload.forward_flop / 1e9 == pytest.approx(gflop, rel=0.007)


@pytest.mark.parametrize(
    ("name", "numel"),
    [
        # as ultralytics prints them for 80 classes, less the 16 constants of the bins
        ("yolo11n", 2_624_064), ("yolo11s", 9_458_736), ("yolo11m", 20_114_672),
        ("yolo11l", 25_372_144), ("yolo11x", 56_966_160),
    ],
)  # fmt: skip
def test_yolo11_parameters_are_those_that_it_prints(name: str, numel: int) -> None:
    assert MODELS[name].build().trainable_numel == numel


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        # Siméoni et al. 2025, table of the family: without a classifier
        ("dinov3-vits16", 21.6), ("dinov3-vits16plus", 28.7), ("dinov3-vitb16", 85.7),
        ("dinov3-vitl16", 303.1), ("dinov3-vith16plus", 840.6), ("dinov3-vit7b16", 6716.0),
    ],
)  # fmt: skip
def test_dinov3_is_as_large_as_published(name: str, millions: float) -> None:
    workload = MODELS[name].build()
    hidden = MODELS[name].config["hidden"]
    head = 1000 * (hidden + 1)
    assert (workload.trainable_numel - head) / 1e6 == pytest.approx(millions, rel=0.002)


def _dino(gated: bool, keys: str) -> transformers.DINOv3ViTConfig:
    return transformers.DINOv3ViTConfig(
        hidden_size=48, num_attention_heads=4, intermediate_size=72, num_hidden_layers=2,
        image_size=64, patch_size=16, use_gated_mlp=gated, hidden_act="silu" if gated else "gelu",
        query_bias="q" in keys, key_bias="k" in keys, value_bias="v" in keys,
        num_register_tokens=3,
    )  # fmt: skip


@pytest.mark.parametrize(("mlp", "biased"), [("gelu", "qv"), ("swiglu", "")])
def test_dinov3_is_transformers(mlp: str, biased: str) -> None:
    from simcore.workload.archs.body_layers import BodyList

    build = BodyList("vit_rotary")

    def made() -> nn.Module:
        return nn.ModuleList([transformers.DINOv3ViTModel(_dino(mlp == "swiglu", biased)),
                              nn.Linear(48, 7)])  # fmt: skip

    ours = build(
        name="x", layers=2, hidden=48, heads=4, ffn=72, mlp=mlp, image=64, registers=3, classes=7,
        qkv_bias=biased,
    )  # fmt: skip
    assert measure.built_param_sizes(ours) == measure.param_sizes(made)
    truth = measure.forward_flop(
        lambda: transformers.DINOv3ViTModel(_dino(mlp == "swiglu", biased)),
        torch.empty(1, 3, 64, 64, device="meta"),
    )
    assert ours.forward_flop - 2 * 48 * 7 == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "millions"),
    # Li et al. 2019, table 6, and Kriman et al. 2020, table 1
    [("jasper-10x5", 333), ("quartznet-15x5", 18.9)],
)
def test_speech_networks_are_as_large_as_published(name: str, millions: float) -> None:
    assert MODELS[name].params.value / 1e6 == pytest.approx(millions, rel=0.002)


def _separable(c: int, n: int, k: int) -> list[nn.Module]:
    return [nn.Conv1d(c, c, k, groups=c, bias=False, padding=k // 2),
            nn.Conv1d(c, n, 1, bias=False), nn.BatchNorm1d(n)]  # fmt: skip


def test_quartznets_blocks_have_the_tensors_of_its_modules() -> None:
    """One block of each kernel size in torch, as NVIDIA's model.py writes it."""

    def made() -> nn.Module:
        parts = [nn.Conv1d(64, 64, 33, groups=64, bias=False), nn.Conv1d(64, 256, 1, bias=False),
                 nn.BatchNorm1d(256)]  # fmt: skip
        c = 256
        for n, k in ((256, 33), (256, 39), (512, 51), (512, 63), (512, 75)):
            for _ in range(3):
                for i in range(2):
                    parts += _separable(c if i == 0 else n, n, k)
                parts += [nn.Conv1d(c, n, 1, bias=False), nn.BatchNorm1d(n)]
                c = n
        parts += [*_separable(512, 512, 87), nn.Conv1d(512, 1024, 1, bias=False)]
        parts += [nn.BatchNorm1d(1024), nn.Conv1d(1024, 29, 1)]
        return nn.ModuleList(parts)

    ours = LayerList("jasper")(name="x", family="quartznet", repeat=2)
    assert measure.built_param_sizes(ours) == measure.param_sizes(made)


def test_dlrms_dense_part_is_that_of_torch() -> None:
    """Bottom and top perceptrons and three cross layers of rank 512 (torchrec, DLRM_DCN)."""

    def made() -> nn.Module:
        wide = 27 * 128
        crossed = [m for _ in range(3)
                   for m in (nn.Linear(wide, 512, bias=False), nn.Linear(512, wide))]  # fmt: skip
        sizes = [(13, 512), (512, 256), (256, 128), (wide, 1024), (1024, 1024), (1024, 512),
                 (512, 256), (256, 1)]  # fmt: skip
        return nn.ModuleList([*crossed, *(nn.Linear(a, b) for a, b in sizes)])

    workload = MODELS["dlrm-dcnv2"].build()
    assert measure.built_param_sizes(workload) == measure.param_sizes(made)
    # 204,184,588 rows of 128 over 8 GPUs
    assert workload.frozen[0].resident_numel == 204_184_588 * 128 // 8


def test_dlrm_refuses_tables_that_do_not_match() -> None:
    with pytest.raises(ValueError, match="2 rows and 1 lookups"):
        embedding_tables(name="x", rows="5,6", lookups="1")
    with pytest.raises(InvalidConfig, match="lookups 'a' is not a list of numbers"):
        MODELS["dlrm-dcnv2"].build(lookups="a")
