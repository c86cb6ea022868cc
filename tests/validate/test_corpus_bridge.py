"""What recipes of Megatron-Bridge make of a row: stages, dispatch, graphs, experts."""

import pytest
from corpus_rows import case_of, hidden_in, settings_of

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


@pytest.mark.parametrize(
    ("model", "gpu", "how"),
    [
        ("qwen3-235b-a22b", "H100-SXM5-80GB", "alltoall"),
        ("qwen3-235b-a22b", "GB200-NVL72-192GB", "hybridep"),
        ("qwen3-30b-a3b", "H100-SXM5-80GB", "hybridep"),
    ],
)
def test_a_backend_is_named_and_not_used(model: str, gpu: str, how: str) -> None:
    row = ROW | {"model": model, "gpu_type": gpu}
    assert case_of(**row, mb_dispatcher="hybridep").options["dispatcher"] == how
    assert case_of(**row).options["dispatcher"] == "alltoall"


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
        ({"model": "gpt-oss-120b"}, False, True),
        ({"source": "simumax-b200"}, False, False),
    ],
)
def test_experts_in_8_bits(changes: dict[str, str], padded: bool, fused: bool) -> None:
    config = settings_of(**ROW | changes)
    assert (config["padded_rows"], config["fused_experts"]) == (padded, fused)


def test_experts_that_are_one_kernel_add_and_clamp_in_it() -> None:
    """Of gpt-oss, whose activation is clamped and whose experts have biases."""
    for precision, apart in (("mxfp8", False), ("bf16", True)):
        config = settings_of(**ROW | {"model": "gpt-oss-120b", "precision": precision})
        assert {"clamps_apart", "expert_bias_apart"} <= config.keys() or not apart
        assert bool(config.get("clamps_apart")) is apart


@pytest.mark.parametrize(
    ("variant", "gpu", "bare"),
    [("26.02", "H100-SXM5-80GB", True), ("26.02.01", "H100-SXM5-80GB", True),
     ("25.11", "H100-SXM5-80GB", False), ("26.02", "B200-SXM-180GB", False)],
)  # fmt: skip
def test_tensor_exchanges_that_hide_under_nothing(variant: str, gpu: str, bare: bool) -> None:
    row = ROW | {"model": "qwen3-235b-a22b", "variant": variant, "gpu_type": gpu}
    assert ("tensor" in hidden_in(**row)) is not bare


@pytest.mark.parametrize(
    ("changes", "layers"),
    [
        ({"gpu_type": "GB300-NVL72-288GB"}, 30),
        ({"gpu_type": "GB200-NVL72-192GB", "precision": "fp8-cs"}, 40),
        ({"gpu_type": "B200-SXM-180GB", "precision": "fp8"}, 5),
        ({"gpu_type": "H100-SXM5-80GB"}, None),
        ({"gpu_type": "GB300-NVL72-288GB", "sharding": "zero1"}, None),
    ],
)
def test_activations_that_go_to_the_host(changes: dict[str, str], layers: int | None) -> None:
    row = {"source": "nvidia-megatron-bridge", "model": "llama3-70b", "sharding": "fsdp"}
    assert case_of(**row | changes).options.get("offload_layers") == layers
