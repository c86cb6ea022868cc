"""What MLPerf's submissions set beside their rows, by round and submitter."""

import pytest

from simcore.validate.formats import llm_mlperf as mlperf

LORA = {
    "source": "mlperf-lora70b", "task": "lora", "gpu_type": "GB200-NVL72-192GB", "cp": "8",
    "precision": "fp8", "source_ref": "MLPerf Training v5.0 NVIDIA/tyche_ngpu72_ngc25.04_nemo",
    "notes": "config config_GB200_18x4x1xtp1pp1cp8.sh; base in fp8", "overlaps": "",
    "recompute": "none", "vpp": "",
}  # fmt: skip
DENSE = LORA | {"source": "mlperf-llama8b", "task": "pretrain"}


def of(version: str, *, gpu: str = "GB200-NVL72-192GB", **changes: str) -> dict[str, str]:
    where = changes.pop("where", "NVIDIA/x")
    return LORA | {"source_ref": f"MLPerf Training v{version} {where}", "gpu_type": gpu} | changes


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (of("5.1"), ("joined", "cudnn_fp8", True)),
        (of("5.1", precision="nvfp4"), ("joined", "cudnn_fp8", None)),
        (of("5.0"), ("redrawn", "cudnn_fp8", None)),
        (of("5.1", gpu="H200-SXM-141GB"), (None, None, None)),
        (of("5.1", gpu="MI355X"), (None, None, None)),
        (of("4.0", gpu="H100-SXM5-80GB"), (None, None, None)),
    ],
)
def test_adapters_run_as_their_container_has_them(
    row: dict[str, str], expected: tuple[str | bool | None, ...]
) -> None:
    found = mlperf.layers_of(row)
    assert tuple(found.get(k) for k in ("lora_kernels", "attention", "activation_casts")) == (
        expected
    )
    assert found["lora_dropout"] == 0.1 and found["quantised_base"] == "fp8"


def test_adapters_of_others_have_no_dropout_that_nobody_names() -> None:
    found = mlperf.layers_of(LORA | {"source": "nvidia-megatron-bridge", "source_ref": ""})
    assert found["lora_rank"] == 16
    assert not {"lora_dropout", "loss", "attention", "lora_kernels"} & found.keys()
    assert mlperf.layers_of(DENSE) == {}


@pytest.mark.parametrize(
    ("changes", "narrow"),
    [({}, True), ({"cp": "2"}, False), ({"precision": "fp8"}, False), ({"gpu": "MI355X"}, False)],
)
def test_attention_of_the_small_model_is_narrow_where_context_is_whole(
    changes: dict[str, str], narrow: bool
) -> None:
    like = {"source": "mlperf-llama8b", "task": "pretrain", "precision": "nvfp4", "cp": "1"}
    found = mlperf.layers_of(of("5.1", **{**like, **changes}))
    assert found == ({"attention": "cudnn_fp8"} if narrow else {})


def test_gpt3_of_spring_2023_has_the_first_flash_attention_and_runs_it_again() -> None:
    like = {"source": "mlperf-gpt3", "task": "", "gpu": "H100-SXM5-80GB"}
    assert mlperf.layers_of(of("3.0", **like)) == {"attention": "flash1"}
    assert mlperf.recompute_of(of("3.0", **like)) == "selective"
    assert mlperf.layers_of(of("3.1", **like)) == {}
    assert mlperf.recompute_of(of("3.1", **like)) == "none"


def test_a_log_overrules_the_configuration_beside_it() -> None:
    row = of("5.1", precision="nvfp4", where="Nebius/nebius_b200_n4/llama2_70b_lora")
    assert mlperf.precision_of(row) == "fp8"
    assert mlperf.layers_of(row)["activation_casts"] is True
    assert mlperf.precision_of(row | {"source": "mlperf-llama8b"}) == "nvfp4"
    assert mlperf.precision_of(of("5.1", precision="nvfp4")) == "nvfp4"


def test_each_gpu_of_amd_has_a_configuration_of_its_own() -> None:
    named = {"recompute": "full", "notes": "config config_MI300X_1x8x1.sh (README)"}
    assert mlperf.recompute_of(of("5.0", gpu="MI325X", **named)) == "none"
    assert mlperf.recompute_of(of("5.0", gpu="MI300X", **named)) == "full"
    own = named | {"notes": "config config_MI325X_1x8x1.sh (README)"}
    assert mlperf.recompute_of(of("5.0", gpu="MI325X", **own)) == "full"


@pytest.mark.parametrize(
    ("version", "cp", "found"), [("4.0", "2", None), ("4.1", "2", "ulysses"), ("5.1", "1", None)]
)
def test_context_ranks_turn_tokens_into_heads_since_4_1(
    version: str, cp: str, found: str | None
) -> None:
    assert mlperf.context_of(of(version, cp=cp)) == found
    assert mlperf.context_of(of(version, cp=cp, source="mlperf-llama405b")) is None


def test_what_overlaps_is_in_the_common_configuration() -> None:
    assert mlperf.late_overlaps_of(of("5.0")) == {"grads"}
    assert not mlperf.late_overlaps_of(of("4.1", gpu="H100-SXM5-80GB"))
    dense = of("5.1", source="mlperf-llama8b")
    assert mlperf.common_overlaps_of(dense) == {"grads", "params"}
    assert not mlperf.common_overlaps_of(dense | {"overlaps": "TP_COMM_OVERLAP"})
    assert mlperf.common_overlaps_of(of("5.0", source="mlperf-llama405b", gpu="H100-SXM5-80GB"))
    assert not mlperf.common_overlaps_of(of("5.1", source="mlperf-llama8b", gpu="MI355X"))


def test_gpt3s_parameters_travel_in_8_bits_since_4_0() -> None:
    like = {"source": "mlperf-gpt3", "gpu": "H100-SXM5-80GB"}
    assert mlperf.narrow_params(of("4.0", **like)) and mlperf.narrow_params(of("4.1", **like))
    assert not mlperf.narrow_params(of("3.1", **like))
    assert not mlperf.narrow_params(of("4.0", **like, precision="bf16"))
    assert not mlperf.narrow_params(of("5.0"))


def test_graphs_are_of_configurations_named_so_and_of_the_small_model() -> None:
    large = of("5.1", source="mlperf-llama405b", notes="config config_GB200_128x4_fp4_cg.sh; x")
    assert mlperf.captured(large)
    assert not mlperf.captured(large | {"notes": "config config_DGXB200_32x8.sh; x"})
    assert mlperf.captured(of("5.1", source="mlperf-llama8b"))
    assert not mlperf.captured(of("5.1", source="mlperf-llama8b", gpu="MI355X"))
    assert not mlperf.captured(of("5.1"))


def test_a_blank_of_chunks_is_the_configurations() -> None:
    row = of("4.0", source="mlperf-gpt3", gpu="H100-SXM5-80GB", micro_batch="2")
    assert mlperf.chunks_told(row) == 4
    assert mlperf.chunks_told(row | {"micro_batch": "1"}) is None
    assert mlperf.chunks_told(row | {"vpp": "6"}) is None
    assert mlperf.round_of(row) == (4, 0) and mlperf.round_of({"source_ref": "x"}) == (0, 0)
