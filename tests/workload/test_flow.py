"""Flux, Stable Diffusion 3 and Wan by hand: published figures, sizes, modules, what is refused."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.base.units import TERA
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS


def test_published_parameters() -> None:
    """Counts of the published checkpoints: 11.9 B, 2.03 B, 14.3 B and 1.42 B."""
    counts = {
        "flux.1-dev": 11_901_408_320, "flux.1-schnell": 11_891_178_560,
        "sd3-medium": 2_028_328_000, "wan2.1-14b": 14_288_491_584, "wan2.1-1.3b": 1_418_996_800,
    }  # fmt: skip
    for name, numel in counts.items():
        assert MODELS[name].build().trainable_numel == numel


def test_flop_of_flux_by_hand() -> None:
    """Matrices a row, attention of all rows to all, and the modulation of one row a sample.

    MLPerf Training v5.1 declares 20.3 TFLOP a sample and step, three times forward.
    """
    d, image, text = 3072, 256, 256
    rows = image + text
    double = 2 * rows * 12 * d**2 + 4 * rows**2 * d + 2 * 12 * d**2
    single = 2 * rows * 12 * d**2 + 4 * rows**2 * d + 2 * 3 * d**2
    ends = 2 * (image * 64 * d * 2 + text * 4096 * d + (256 + 768 + 2 * d + 2 * d) * d)
    built = MODELS["flux.1-schnell"].build()
    assert built.forward_flop == pytest.approx(19 * double + 38 * single + ends, rel=1e-12)
    assert 3 * built.forward_flop == pytest.approx(20.3 * TERA, rel=0.01)


def test_flop_of_wan_by_hand() -> None:
    d, ffn, text = 5120, 13824, 512
    built = MODELS["wan2.1-14b"].build(frames=93)
    rows = 24 * 30 * 52
    assert built.tokens_per_sample == rows == 37_440
    own = 2 * rows * (4 * d**2 + 2 * d * ffn) + 4 * rows**2 * d
    cross = 2 * (2 * rows + 2 * text) * d**2 + 4 * rows * text * d
    ends = 2 * (rows * 64 * d * 2 + text * (4096 + d) * d + (256 + d + 6 * d) * d)
    assert built.forward_flop == pytest.approx(40 * (own + cross) + ends, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "changes", "tokens"),
    [
        ("flux.1-schnell", {}, 512),
        ("flux.1-dev", {}, 64 * 64 + 512),
        ("flux.1-dev", {"image": 512}, 32 * 32 + 512),
        ("sd3-medium", {}, 64 * 64 + 333),
        ("wan2.1-14b", {}, 21 * 30 * 52),
        ("wan2.1-1.3b", {"height": 720, "width": 1280}, 21 * 45 * 80),
        ("wan2.1-1.3b", {"frames": 1}, 30 * 52),
    ],
)
def test_tokens_of_a_sample(name: str, changes: dict[str, int], tokens: int) -> None:
    assert MODELS[name].build(**changes).tokens_per_sample == tokens


def work(workload: Workload, side: str) -> tuple[float, float, float]:
    """FLOP, launches, and bytes of activations in 16-bit training."""
    kernels = [k for b in workload.instances() for op in b.ops for k in getattr(op, side)]
    return (
        sum(k.flop for k in kernels),
        sum(k.launches for k in kernels),
        sum(2 * (k.low + k.high) + k.raw_bytes for k in kernels),
    )


@pytest.mark.parametrize("name", ["flux.1-schnell", "wan2.1-1.3b"])
def test_modules_change_kernels_and_not_the_model(name: str) -> None:
    """Fewer kernels that move less; the same parameters and products."""
    record = MODELS[name]
    plain, fused = record.build(), record.build(modules="megatron")
    assert fused.trainable_numel == plain.trainable_numel
    for side in ("fwd", "bwd"):
        (flop, launches, moved), (same, fewer, less) = work(plain, side), work(fused, side)
        assert same == pytest.approx(flop, rel=1e-12)
        assert fewer < launches
        assert less < moved


@pytest.mark.parametrize("name", ["flux.1-schnell", "wan2.1-1.3b"])
def test_adapters_freeze_the_base(name: str) -> None:
    record = MODELS[name]
    adapted = record.build(lora_rank=16, lora_targets="q_proj,v_proj")
    assert sum(f.resident_numel for f in adapted.frozen) == record.params.value
    assert adapted.trainable_numel < 0.01 * record.params.value


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("flux.1-dev", {"image": 1000}, "multiple of 8 x patch=2"),
        ("flux.1-dev", {"attention": "math"}, "attention 'math' is none of"),
        ("flux.1-dev", {"modules": "nemo"}, "modules 'nemo' is none of"),
        ("flux.1-dev", {"heads": 25}, "multiple of heads"),
        ("flux.1-dev", {"text_to_the_end": False}, "needs single_layers=0"),
        ("flux.1-dev", {"lora_rank": 8, "lora_targets": "gate_proj"}, "no matrix product"),
        ("sd3-medium", {"image": 4096}, "position_rows=36864"),
        ("wan2.1-14b", {"frames": 80}, "1 more than a multiple of 4"),
        ("wan2.1-14b", {"width": 850}, "width=850 must be a multiple of 16"),
        ("wan2.1-14b", {"layers": 0}, "at least 1"),
    ],
)
def test_bad_settings_are_refused(name: str, changes: dict[str, int | str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        MODELS[name].build(**changes)
