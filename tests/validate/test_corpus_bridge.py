"""What recipes of Megatron-Bridge make of a row: stages, dispatch, graphs, experts."""

import pytest
from corpus_rows import case_of, settings_of

ROW = {
    "source": "nvidia-megatron-bridge", "model": "qwen3-30b-a3b", "arch": "moe",
    "gpu_type": "B200-SXM-180GB", "precision": "mxfp8", "variant": "26.04", "layers": "48",
    "ffn": "6144", "moe_experts": "128", "moe_topk": "8", "moe_ffn": "768",
}  # fmt: skip


@pytest.mark.parametrize(("mtp", "stages"), [("yes", "15x4,2"), ("", "15x4,1")])
def test_a_further_token_is_on_the_last_stage(mtp: str, stages: str) -> None:
    row = ROW | {"model": "deepseek-v3", "layers": "61", "pp": "16", "mtp": mtp}
    assert settings_of(**row).get("next_tokens", 0) == (mtp == "yes")
    assert case_of(**row).options["stages"] == stages


def test_a_row_that_its_source_calls_a_regression_is_flagged() -> None:
    row = ROW | {"model": "gpt-oss-120b", "variant": "26.06.01"}
    assert case_of(**row).flag
    for other in ({"variant": "26.06"}, {"precision": "bf16"}, {"model": "qwen3-30b-a3b"}):
        assert not case_of(**row | other).flag


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", "GB200-NVL72-192GB"])
def test_a_row_names_its_dispatcher_whatever_model_and_gpu_are(gpu: str) -> None:
    row = ROW | {"model": "qwen3-235b-a22b", "gpu_type": gpu}
    assert case_of(**row, mb_dispatcher="hybridep").options["dispatcher"] == "hybridep"
    assert case_of(**row, notes="dispatcher=deepep").options["dispatcher"] == "deepep"
    assert case_of(**row).options["dispatcher"] == "alltoall"


@pytest.mark.parametrize(
    ("changes", "dispatcher"),
    [
        # DeepEP is not in the container of 26.02, and recipes of the next do not take it.
        ({"variant": "26.02", "mb_dispatcher": "deepep"}, "alltoall"),
        (
            {"variant": "26.02.01", "model": "qwen3-235b-a22b", "mb_dispatcher": "deepep"},
            "alltoall",
        ),
        ({"variant": "26.02.01", "mb_dispatcher": "deepep"}, "deepep"),
        ({"variant": "26.04.01", "mb_dispatcher": "deepep"}, "deepep"),
        ({"variant": "26.02", "mb_dispatcher": "hybridep"}, "hybridep"),
        # Racks have HybridEP in 25.11, but for gpt-oss.
        ({"variant": "25.11", "gpu_type": "GB300-NVL72-288GB"}, "hybridep"),
        ({"variant": "25.11"}, "alltoall"),
        (
            {"variant": "25.11", "gpu_type": "GB300-NVL72-288GB", "model": "gpt-oss-120b"},
            "alltoall",
        ),
    ],
)
def test_what_a_release_exchanges_with(changes: dict[str, str], dispatcher: str) -> None:
    row = ROW | {"gpu_type": "H100-SXM5-80GB"} | changes
    assert case_of(**row).options["dispatcher"] == dispatcher


def test_steps_that_are_one_graph_have_attention_in_8_bits() -> None:
    row = ROW | {"gpu_type": "GB300-NVL72-288GB", "cuda_graph": "full_iteration/[]"}
    assert settings_of(**row)["attention"] == "cudnn_fp8"
    assert settings_of(**ROW).get("attention") != "cudnn_fp8"
    assert settings_of(**row | {"precision": "bf16"}).get("attention") != "cudnn_fp8"


@pytest.mark.parametrize(
    ("changes", "issuer"),
    [
        ({}, "megatron"),
        ({"variant": "25.09"}, "graph"),
        ({"variant": "25.09", "gpu_type": "H100-SXM5-80GB"}, "megatron"),
        ({"cuda_graph": "local/full_iteration"}, "graph"),
        ({"cuda_graph": "transformer_engine/['attn', 'moe_router']"}, "megatron_graphs"),
        (
            {"cuda_graph": "transformer_engine/['moe_router', 'moe_preprocess']"},
            "megatron_routing_graphs",
        ),
        ({"cuda_graph": "transformer_engine/mlp"}, "megatron_graphs"),
        ({"notes": "full-iteration CUDA graph + paged activation stash"}, "graph"),
        ({"notes": "recipe=v0.6.0:a_pretrain_64gpu_gb300_fp8mx_config; x"}, "graph"),
        ({"notes": "recipe=v0.6.0:a_pretrain_64gpu_b300_fp8mx_config; x"}, "megatron"),
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
    assert case_of(**ROW | changes).options["issuer"] == issuer


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
        ({"model": "gpt-oss-120b"}, True, False),
        ({"source": "mlperf-gptoss", "cuda_graph": "on"}, False, True),
        ({"notes": "recipe=v0.6.0:a_pretrain_64gpu_gb300_fp8mx_config; x"}, False, True),
        ({"source": "simumax-b200"}, False, False),
    ],
)
def test_experts_in_8_bits(changes: dict[str, str], padded: bool, fused: bool) -> None:
    config = settings_of(**ROW | changes)
    assert (config["padded_rows"], config["fused_experts"]) == (padded, fused)


def test_experts_that_are_one_kernel_add_and_clamp_in_it() -> None:
    """Of gpt-oss, whose activation is clamped and whose experts have biases."""
    row = ROW | {"model": "gpt-oss-120b", "cuda_graph": "full_iteration/[]"}
    for precision, apart in (("mxfp8", False), ("bf16", True)):
        config = settings_of(**row | {"precision": precision})
        assert {"clamps_apart", "expert_bias_apart"} <= config.keys() or not apart
        assert bool(config.get("clamps_apart")) is apart
