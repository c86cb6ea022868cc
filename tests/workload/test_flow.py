"""Flux, Stable Diffusion 3 and Wan by hand: published figures, sizes, modules, what is refused."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.base.units import TERA
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS
from simcore.workload.recompute import recomputed
from simcore.workload.sharding import tensor_overrides, tensor_sums


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
        ("wan2.1-14b", {"layers": 0}, "no whole number from 1"),
    ],
)
def test_bad_settings_are_refused(name: str, changes: dict[str, int | str], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        MODELS[name].build(**changes)


def test_selective_recompute_runs_the_mlps_of_both_streams_again() -> None:
    """Of a layer's MLPs their inputs alone are kept: GELU's input and output go, 8 d a row."""
    plain = MODELS["flux.1-schnell"].build(modules="megatron")
    again = recomputed(plain, ("mlp",))
    less = [
        (a.saved.low + a.saved.matmul) - (b.saved.low + b.saved.matmul)
        for a, b in zip(plain.blocks[1:3], again.blocks[1:3], strict=True)
    ]
    assert less == pytest.approx([8 * 512 * 3072] * 2)


def test_encoders_in_the_step_are_frozen_beside_the_same_model() -> None:
    """T5-XXL, CLIP's text model and the autoencoder: parameters as published, FLOP by hand."""
    plain, online = (MODELS[name].build() for name in ("flux.1-schnell", "flux.1-schnell-encoders"))
    assert online.forward_flop == plain.forward_flop
    assert [f.resident_numel for f in online.frozen] == [4_762_310_656, 123_060_480, 83_819_683]
    clip = sum(k.flop for op in online.frozen[1].ops for k in op.fwd)
    by_hand = 12 * (2 * 77 * 12 * 768**2 + 4 * 77**2 * 768 / 2)
    assert clip == pytest.approx(by_hand, rel=1e-12)
    # pixels and tokens are fewer bytes than the encoding of a caption
    assert online.input_bytes < plain.input_bytes
    small, large = (
        api.predict(name, "8xB200") for name in ("flux.1-schnell", "flux.1-schnell-encoders")
    )
    held = large.memory.allocated_bytes - small.memory.allocated_bytes
    assert held == pytest.approx(2 * (4_762_310_656 + 123_060_480 + 83_819_683), rel=0.02)
    assert large.step_time_s.value > small.step_time_s.value


def whole_on_each_rank(workload: Workload) -> float:
    """Forward FLOP of what tensor ranks do not cut: modulations, and what is outside of layers."""
    return sum(
        k.flop
        for block in workload.instances() for op in block.ops for k in op.fwd
        if not block.recomputable or "adaln" in op.name
    )  # fmt: skip


@pytest.mark.parametrize("modules", ["diffusers", "megatron"])
@pytest.mark.parametrize(("name", "tp"), [("flux.1-dev", 4), ("sd3-medium", 8), ("wan2.1-14b", 8)])
def test_tensor_ranks_divide_heads_and_mlp(name: str, tp: int, modules: str) -> None:
    record = MODELS[name]
    whole = record.build(modules=modules)
    part = record.build(modules=modules, **tensor_overrides(record, tp, 1))
    same = whole_on_each_rank(whole)
    assert whole_on_each_rank(part) == same
    assert tp * (part.forward_flop - same) == pytest.approx(whole.forward_flop - same, rel=1e-12)
    layer, cut = (next(b for b in w.blocks if b.recomputable) for w in (whole, part))
    assert cut.boundary == layer.boundary  # every rank has all rows of a layer's input


def test_wan_normalises_queries_over_all_heads_on_each_tensor_rank() -> None:
    record = MODELS["wan2.1-14b"]
    part = record.build(**tensor_overrides(record, 8, 1))
    assert {p.numel for p in part.blocks[1].params if p.name == "q_norm.weight"} == {5120}
    assert tensor_sums("wan") == 4.5
    assert tensor_sums("mmdit") == tensor_sums("transformer") == 2


def test_ranks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="tp=16 does not divide heads=24"):
        tensor_overrides(MODELS["flux.1-dev"], 16, 1)
    with pytest.raises(InvalidConfig, match="no experts to spread"):
        tensor_overrides(MODELS["wan2.1-14b"], 1, 2)
    with pytest.raises(InvalidConfig, match="over tensor or expert ranks, not dit"):
        tensor_overrides(MODELS["dit-xl-2"], 2, 1)


@pytest.mark.parametrize("name", ["flux.1-dev", "wan2.1-1.3b"])
@pytest.mark.parametrize(
    "cut",
    [{"tp": 2}, {"tp": 2, "sequence_parallel": False}, {"cp": 4}, {"pp": 2}, {"tp": 2, "cp": 2}],
)
def test_ranks_of_a_cut_job_hold_less(name: str, cut: dict[str, int]) -> None:
    """One sample at a time on eight GPUs: a rank holds less weights and activations.

    Without masters, whose update would hold more than forward and backward.
    """
    words = {"strategy": "ddp", "recompute": "none", "global_batch": 8, "micro_batch": 1,
             "precision": "bf16-true"}  # fmt: skip
    plain, split = (api.predict(name, "8xH200", **words, **more) for more in ({}, cut))
    held, less = (
        p.memory.terms["parameters"] + p.memory.terms["activations"] for p in (plain, split)
    )
    assert less < held
    assert split.step_time_s.value > 0.5 * plain.step_time_s.value
