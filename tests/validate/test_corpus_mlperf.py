"""What MLPerf's submissions set beside their rows, by round and submitter."""

import pytest
from corpus_rows import case_of, hidden_in, settings_of

LORA = {
    "source": "mlperf-lora70b", "task": "lora", "gpu_type": "GB200-NVL72-192GB", "cp": "8",
    "precision": "fp8", "source_ref": "MLPerf Training v5.0 NVIDIA/tyche_ngpu72_ngc25.04_nemo",
    "notes": "config config_GB200_18x4x1xtp1pp1cp8.sh; base in fp8", "gpus": "72",
}  # fmt: skip
OF_ADAPTERS = ("lora_kernels", "attention", "activation_casts")


def test_mixtures_of_round_6_by_what_their_configurations_share() -> None:
    row = {
        "source": "mlperf-gptoss20b", "source_ref": "MLPerf Training v6.0 X/Y", "arch": "moe",
        "model": "gpt-oss-20b", "precision": "mxfp8", "cuda_graph": "on", "cp": "4",
        "moe_experts": "32", "moe_topk": "4", "moe_ffn": "2880",
    }  # fmt: skip
    nvidia = case_of(**row, gpu_type="GB300-NVL72-288GB").options
    assert (nvidia["dispatcher"], nvidia["cp_comm"]) == ("hybridep", "ulysses")
    assert nvidia["software"] == "megatron-bridge@benchmarks" and nvidia["fp8_params"] is True
    assert settings_of(**row, gpu_type="GB300-NVL72-288GB")["fused_experts"] is True
    amd = case_of(**row | {"precision": "fp8"}, gpu_type="MI355X-288GB").options
    assert (amd["software"], amd["dispatcher"]) == ("primus", "alltoall")


def of(version: str, *, gpu: str = "GB200-NVL72-192GB", **changes: str) -> dict[str, str]:
    where = changes.pop("where", "NVIDIA/x")
    return LORA | {"source_ref": f"MLPerf Training v{version} {where}", "gpu_type": gpu} | changes


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (of("5.1"), ("joined", "cudnn_fp8", True)),
        (of("5.1", precision="nvfp4"), ("joined", "cudnn_fp8", None)),
        (of("5.0"), ("redrawn", "cudnn_fp8", None)),
        (of("5.1", gpu="H200-SXM-141GB"), (None, "cudnn", None)),
        (of("5.1", gpu="MI355X"), (None, "cudnn", None)),
        (of("4.0", gpu="H100-SXM5-80GB"), (None, "cudnn_first", None)),
        (of("4.1", gpu="H100-SXM5-80GB"), (None, "cudnn", None)),
    ],
)
def test_adapters_run_as_their_container_has_them(
    row: dict[str, str], expected: tuple[str | bool | None, ...]
) -> None:
    found = settings_of(**row)
    assert tuple(found.get(k) for k in OF_ADAPTERS) == expected
    assert found["lora_dropout"] == 0.1 and found["quantised_base"] == "fp8"


def test_adapters_of_others_have_no_dropout_that_nobody_names() -> None:
    found = settings_of(**LORA | {"source": "nvidia-megatron-bridge", "source_ref": ""})
    assert found["lora_rank"] == 16
    assert not {"lora_dropout", "lora_kernels"} & found.keys()
    dense = settings_of(**LORA | {"source": "mlperf-llama8b", "task": "pretrain"})
    assert not {"lora_rank", "lora_kernels", "quantised_base"} & dense.keys()


@pytest.mark.parametrize(
    ("changes", "narrow"),
    [({}, True), ({"cp": "2"}, False), ({"precision": "fp8"}, False), ({"gpu": "MI355X"}, False)],
)
def test_attention_of_the_small_model_is_narrow_where_context_is_whole(
    changes: dict[str, str], narrow: bool
) -> None:
    like = {"source": "mlperf-llama8b", "task": "pretrain", "precision": "nvfp4", "cp": "1"}
    found = settings_of(**of("5.1", **{**like, **changes}))
    assert found["attention"] == ("cudnn_fp8" if narrow else "cudnn")


def test_gpt3_of_spring_2023_has_the_first_flash_attention_and_runs_it_again() -> None:
    like = {"source": "mlperf-gpt3", "task": "", "gpu": "H100-SXM5-80GB"}
    assert settings_of(**of("3.0", **like))["attention"] == "flash1"
    assert case_of(**of("3.0", **like)).options["recompute"] == "selective"
    assert settings_of(**of("3.1", **like))["attention"] == "cudnn_first"
    assert settings_of(**of("4.1", **like))["attention"] == "cudnn"
    assert case_of(**of("3.1", **like)).options["recompute"] == "none"


def test_a_log_overrules_the_configuration_beside_it() -> None:
    row = of("5.1", precision="nvfp4", where="Nebius/nebius_b200_n4/llama2_70b_lora")
    assert case_of(**row).options["precision"] == "fp8"
    assert settings_of(**row)["activation_casts"] is True
    assert case_of(**row | {"source": "mlperf-llama8b"}).options["precision"] == "nvfp4"
    assert case_of(**of("5.1", precision="nvfp4")).options["precision"] == "nvfp4"


def test_each_gpu_of_amd_has_a_configuration_of_its_own() -> None:
    def recompute(gpu: str, config: str) -> object:
        row = of("5.0", gpu=gpu, recompute="full", notes=f"config {config}_1x8x1.sh (README)")
        return case_of(**row).options["recompute"]

    assert recompute("MI325X", "config_MI300X") == "none"
    assert recompute("MI300X", "config_MI300X") == "full"
    assert recompute("MI325X", "config_MI325X") == "full"


@pytest.mark.parametrize(
    ("version", "cp", "found"), [("4.0", "2", None), ("4.1", "2", "ulysses"), ("5.1", "1", None)]
)
def test_context_ranks_turn_tokens_into_heads_since_4_1(
    version: str, cp: str, found: str | None
) -> None:
    assert case_of(**of(version, cp=cp)).options.get("cp_comm") == found
    other = of(version, cp=cp, source="mlperf-llama405b")
    assert case_of(**other).options.get("cp_comm") is None


def test_what_overlaps_is_in_the_common_configuration() -> None:
    assert "grads" not in hidden_in(**of("5.0"))
    assert "grads" in hidden_in(**of("4.1", gpu="H100-SXM5-80GB"))
    common = {"grads", "params"}
    assert common <= hidden_in(**of("5.1", source="mlperf-llama8b"))
    named = of("5.1", source="mlperf-llama8b", overlaps="TP_COMM_OVERLAP")
    assert "params" not in hidden_in(**named) and "tensor" in hidden_in(**named)
    assert common <= hidden_in(**of("5.0", source="mlperf-llama405b", gpu="H100-SXM5-80GB"))
    assert "params" not in hidden_in(**of("5.1", source="mlperf-llama8b", gpu="MI355X"))


def test_gpt3s_parameters_travel_in_8_bits_since_4_0() -> None:
    def narrow(version: str, **changes: str) -> bool:
        row = of(version, source="mlperf-gpt3", gpu="H100-SXM5-80GB", **changes)
        return bool(case_of(**row).options.get("fp8_params"))

    assert narrow("4.0") and narrow("4.1")
    assert not narrow("3.1")
    assert not narrow("4.0", precision="bf16")
    assert not case_of(**of("5.0")).options.get("fp8_params")


def test_graphs_are_of_configurations_named_so_and_of_the_small_model() -> None:
    def captured(row: dict[str, str]) -> bool:
        return case_of(**row).options["issuer"] == "graph"

    large = of("5.1", source="mlperf-llama405b", notes="config config_GB200_128x4_fp4_cg.sh; x")
    assert captured(large)
    assert not captured(large | {"notes": "config config_DGXB200_32x8.sh; x"})
    assert captured(of("5.1", source="mlperf-llama8b"))
    assert not captured(of("5.1", source="mlperf-llama8b", gpu="MI355X"))
    assert not captured(of("5.1"))


def test_a_blank_of_chunks_is_the_configurations() -> None:
    row = of("4.0", source="mlperf-gpt3", gpu="H100-SXM5-80GB", micro_batch="2", pp="8", cp="1")
    row |= {"gpus": "512", "task": ""}
    assert case_of(**row).options["vpp"] == 4
    assert case_of(**row | {"micro_batch": "1"}).options["vpp"] == 1
    assert case_of(**row | {"vpp": "6"}).options["vpp"] == 6
