"""What recipes of releases make of a row: stages, dispatch, graphs, experts."""

import pytest

from simcore.validate.formats.llm_recipes import (
    chunks_of,
    dispatcher_of,
    experts_of,
    issuer_of,
    micro_batch_of,
    next_tokens_of,
    stages_of,
    unhidden_of,
    wrapped_overlaps_of,
)
from simcore.validate.formats.llm_sources import source_of

ROW = {
    "source": "nvidia-megatron-bridge", "model": "qwen3-30b-a3b", "gpu_type": "B200-SXM-180GB",
    "precision": "mxfp8", "variant": "26.04", "layers": "48", "ffn": "6144", "moe_experts": "128",
    "moe_topk": "8", "moe_ffn": "768", "pp": "1", "notes": "", "cuda_graph": "",
    "sharding": "zero1",
}  # fmt: skip


@pytest.mark.parametrize(("mtp", "stages"), [("yes", "15x4,2"), ("", "15x4,1")])
def test_a_further_token_is_on_the_last_stage(mtp: str, stages: str) -> None:
    row = ROW | {"model": "deepseek-v3", "layers": "61", "pp": "16", "mtp": mtp}
    assert next_tokens_of(row) == (mtp == "yes")
    assert stages_of(row) == stages


@pytest.mark.parametrize(
    ("model", "gpu", "how"),
    [
        ("qwen3-235b-a22b", "H100-SXM5-80GB", "alltoall"),
        ("qwen3-235b-a22b", "GB200-NVL72-192GB", "hybridep"),
        ("qwen3-30b-a3b", "H100-SXM5-80GB", "hybridep"),
    ],
)
def test_a_backend_is_named_and_not_used(model: str, gpu: str, how: str) -> None:
    row = ROW | {"model": model, "gpu_type": gpu, "mb_dispatcher": "hybridep"}
    assert dispatcher_of(row) == how
    assert dispatcher_of(row | {"mb_dispatcher": ""}) == "alltoall"


@pytest.mark.parametrize(
    ("changes", "issuer"),
    [
        ({}, "megatron"),
        ({"variant": "25.09"}, "graph"),
        ({"variant": "25.09", "gpu_type": "H100-SXM5-80GB"}, "megatron"),
        ({"cuda_graph": "local/full_iteration"}, "graph"),
        ({"cuda_graph": "transformer_engine/['attn', 'moe_router']"}, "megatron_graphs"),
        ({"cuda_graph": "transformer_engine/['moe_router', 'moe_preprocess']"}, "megatron"),
        ({"cuda_graph": "transformer_engine/mlp"}, "megatron_graphs"),
        (
            {
                "source": "nvidia-dgxc-benchmarking",
                "model": "nemotron4-340b",
                "gpu_type": "GB200-NVL72-192GB",
            },
            "graph",
        ),
        ({"source": "nvidia-dgxc-benchmarking", "model": "nemotron4-15b"}, "megatron"),
        ({"source": "vtrain"}, "megatron_2022"),
    ],
)
def test_what_issues_kernels(changes: dict[str, str], issuer: str) -> None:
    row = ROW | changes
    assert issuer_of(row, source_of(row).program) == issuer


@pytest.mark.parametrize(
    ("changes", "padded", "fused"),
    [
        ({}, True, False),
        ({"precision": "bf16"}, False, False),
        ({"mb_dispatcher": "hybridep"}, False, False),
        ({"mb_dispatcher": "deepep"}, True, False),
        ({"cuda_graph": "full_iteration/[]"}, False, True),
        ({"cuda_graph": "full_iteration/[]", "precision": "bf16"}, False, False),
        ({"variant": "25.09", "notes": "token-drop routing"}, False, False),
        ({"model": "gpt-oss-120b"}, False, True),
        ({"source": "simumax-b200"}, False, False),
    ],
)
def test_experts_in_8_bits(changes: dict[str, str], padded: bool, fused: bool) -> None:
    row = ROW | changes
    config = experts_of(row, 48, source_of(row).program)
    assert (config["padded_rows"], config["fused_experts"]) == (padded, fused)


@pytest.mark.parametrize(
    ("variant", "gpu", "bare"),
    [("26.02", "H100-SXM5-80GB", True), ("25.11", "H100-SXM5-80GB", False),
     ("26.02", "B200-SXM-180GB", False)],
)  # fmt: skip
def test_tensor_exchanges_that_hide_under_nothing(variant: str, gpu: str, bare: bool) -> None:
    row = ROW | {"model": "qwen3-235b-a22b", "variant": variant, "gpu_type": gpu}
    assert unhidden_of(row) == ({"tensor"} if bare else set())


@pytest.mark.parametrize(
    ("hidden", "layers", "pp", "samples", "chunks", "wrapped"),
    [("2304", "24", "1", 16, 1, True), ("6144", "40", "1", 8, 1, True),
     ("8192", "48", "2", 4, 1, False), ("12288", "80", "8", 2, 2, False),
     ("16384", "96", "16", 1, 2, False), ("25600", "128", "64", 1, 1, False)],
)  # fmt: skip
def test_table_1_of_sc21_ran_as_its_script_says(
    hidden: str, layers: str, pp: str, samples: int, chunks: int, wrapped: bool
) -> None:
    row = {
        "source": "megatron-sc21-a100", "hidden": hidden, "layers": layers, "pp": pp, "vpp": "",
        "micro_batch": "",
    }  # fmt: skip
    assert (micro_batch_of(row), chunks_of(row)) == (samples, chunks)
    assert ("grads" in wrapped_overlaps_of(row)) is wrapped
    assert micro_batch_of(row | {"micro_batch": "3"}) == 3
    before = row | {"source": "megatron-jan21-a100", "vpp": "1.0"}
    assert (micro_batch_of(before), chunks_of(before)) == (samples, 1)
    assert not wrapped_overlaps_of(before)


def test_torchtitans_looped_schedules_have_two_stages_a_rank() -> None:
    row = {"source": "pytorch-torchtitan", "pp": "8", "vpp": "", "variant": "PP8 Interleaved 1F1B"}
    assert chunks_of(row) == 2
    assert chunks_of(row | {"variant": "PP8 1F1B", "vpp": "1.0"}) == 1
