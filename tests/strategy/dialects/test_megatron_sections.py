"""Configurations in sections as Megatron-LM's flags, key by key."""

from __future__ import annotations

from typing import Any

import pytest

from simcore.strategy.dialects.line_record import LINES
from simcore.strategy.dialects.lines import ODD
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source


def flags(program: str, data: dict[str, Any]) -> tuple[dict[str, Any], Reading]:
    """The flags that a configuration becomes, and what is stated beside them."""
    reading, table = Reading(program, Source("", "line")), Table(data)
    ODD[LINES[program].before](reading, table)
    return {k: table.take(k) for k in list(table.given)}, reading


@pytest.mark.parametrize(
    ("key", "value", "flag", "means"),
    [
        ("model.tensor_model_parallel_size", 4, "tensor-model-parallel-size", 4),
        ("tp", 4, "tensor-model-parallel-size", 4), ("mb", 2, "micro-batch-size", 2),
        ("gb", 2, "global-batch-size", 2), ("sl", 2, "seq-length", 2),
        ("pp", 2, "pipeline-model-parallel-size", 2), ("cp", 2, "context-parallel-size", 2),
        ("vp", 2, "virtual-pipeline-model-parallel-size", 2),
        ("ep", 2, "expert-model-parallel-size", 2), ("etp", 2, "expert-tensor-parallel-size", 2),
        ("model.num_layers_in_first_pipeline_stage", 3, "decoder-first-pipeline-num-layers", 3),
        ("model.num_layers_in_last_pipeline_stage", 3, "decoder-last-pipeline-num-layers", 3),
        ("ddp.bucket_size", 9, "ddp-bucket-size", 9), ("a.sequence_parallelism", True,
                                                      "sequence-parallel", True),
        ("optimizer.params_dtype", "torch.bfloat16", "params-dtype", "bf16"),
        ("optimizer.params_dtype", "float16", "params-dtype", "fp16"),
        ("ddp.grad_reduce_in_fp32", True, "accumulate-allreduce-grads-in-fp32", True),
        ("ddp.grad_reduce_in_fp32", False, "grad-reduce-in-bf16", True),
        ("ddp.grad_reduce_in_fp32", None, "grad-reduce-in-bf16", True),
        ("comm_overlap.overlap_p2p_comm", False, "overlap-p2p-comm", False),
    ],
)  # fmt: skip
def test_keys_become_flags(key: str, value: object, flag: str, means: object) -> None:
    assert flags("megatron-bridge", {key: value})[0] == {flag: means}


@pytest.mark.parametrize("value", [False, None, "false", "no", "0"])
def test_a_switch_that_is_off_is_no_flag(value: object) -> None:
    assert flags("megatron-bridge", {"model.sequence_parallel": value})[0] == {}


@pytest.mark.parametrize(
    ("key", "recipe", "means"),
    [
        ("mixed_precision", "bf16_mixed", {"bf16": True}), ("c", "bf16", {"bf16": True}),
        ("compute_dtype", "fp16_mixed", {"fp16": True}),
        ("c", "fp8_cs", {"bf16": True, "fp8-format": "hybrid"}),
        ("c", "fp8_mx", {"bf16": True, "fp8-format": "hybrid", "fp8-recipe": "mxfp8"}),
        ("trainer.plugins", "bf16_with_fp8_subchannel_scaling_mixed",
         {"bf16": True, "fp8-format": "hybrid", "fp8-recipe": "blockwise"}),
        ("c", "bf16_with_fp8_current_scaling_mixed",
         {"bf16": True, "fp8-format": "hybrid", "fp8-recipe": "tensorwise"}),
        ("c", "nvfp4", {"bf16": True, "fp4-format": "e2m1"}),
    ],
)  # fmt: skip
def test_recipes_of_mixed_precision(key: str, recipe: str, means: dict[str, Any]) -> None:
    found, reading = flags("megatron-bridge", {key: recipe})
    assert found == means and reading.finish().approximated == ()
    # such a recipe decides how gradients are reduced
    assert flags("megatron-bridge", {key: recipe, "ddp.grad_reduce_in_fp32": True})[0] == means
    with_own = flags("megatron-bridge", {key: recipe, "grad_reduce_in_fp32": True})[0]
    assert with_own == {**means, "accumulate-allreduce-grads-in-fp32": True}


def test_an_unknown_recipe_is_told_and_settles_nothing() -> None:
    found, reading = flags("megatron-bridge", {"c": "int3", "ddp.grad_reduce_in_fp32": True})
    assert found == {"bf16": True, "accumulate-allreduce-grads-in-fp32": True}
    (told,) = reading.finish().approximated
    assert "c = int3 is not followed: bf16 is predicted" in told


def test_sums_in_fp32_go_before_those_in_16_bit() -> None:
    data = {"x.grad_reduce_in_fp32": False, "y.grad_reduce_in_fp32": True}
    assert flags("megatron-bridge", data)[0] == {"accumulate-allreduce-grads-in-fp32": True}


def test_the_data_set_owns_the_sequence_length() -> None:
    both = {"model.seq_length": 4096, "dataset.seq_length": 8192}
    assert flags("megatron-bridge", both)[0] == {"seq-length": 8192}
    assert flags("megatron-bridge", {"model.seq_length": 4096})[0] == {"seq-length": 4096}


@pytest.mark.parametrize(
    ("data", "rank", "targets", "tells"),
    [
        ({"peft": "lora"}, 32, "all-linear", False),
        ({"peft": "LoRA", "peft.dim": 8}, 8, "all-linear", False),
        ({"peft": "dora", "peft.dim": 8}, 8, "all-linear", True),
        ({"peft": "lora", "peft.target_modules": "linear_qkv,linear_fc2,x"}, 32,
         "qkv_proj,down_proj,x", False),
        ({"peft": "lora", "peft.target_modules": "linear_fc1,linear_fc2,linear_proj,linear_qkv"},
         32, "all-linear", False),
        ({"peft": "none", "peft.dim": 8}, None, None, False), ({"peft.dim": 8}, None, None, False),
    ],
)  # fmt: skip
def test_adapters(data: dict[str, Any], rank: int | None, targets: str | None, tells: bool) -> None:
    found, reading = flags("megatron-bridge", {**data, "tp": 2})
    assert found == {"tensor-model-parallel-size": 2}
    assert (reading.said("lora_rank"), reading.said("lora_targets")) == (rank, targets)
    assert bool(reading.finish().approximated) == tells


def test_nemos_trainer_has_the_nodes() -> None:
    found, reading = flags("nemo", {
        "trainer.num_nodes": 2, "trainer.devices": 8, "trainer.strategy.fsdp": "megatron",
        "trainer.strategy.tensor_model_parallel_size": 4,
    })  # fmt: skip
    assert found == {"use-megatron-fsdp": True, "tensor-model-parallel-size": 4}
    assert (reading.said("nnodes"), reading.said("nproc_per_node")) == (2, 8)
    other, reading = flags("nemo", {"trainer.strategy.fsdp": "pytorch"})
    assert other == {} and reading.said("nnodes") is None


#: ms-swift's own defaults (swift/megatron/arguments/megatron_args.py).
SWIFT = {
    "micro-batch-size": 1, "global-batch-size": 16, "recompute-granularity": "selective",
    "use-distributed-optimizer": True, "cross-entropy-loss-fusion": True, "bf16": True,
    "moe-grouped-gemm": True, "attention-backend": "flash",
}  # fmt: skip


def test_ms_swift_has_defaults_of_its_own() -> None:
    found, reading = flags("ms-swift-megatron", {"model": "Qwen/X", "max_length": 2048})
    assert found == {**SWIFT, "seq-length": 2048}
    assert reading.said("model") == "Qwen/X" and reading.said("lora_rank") is None
    found, reading = flags("ms-swift-megatron", {
        "tuner_type": "lora", "bf16": "false", "micro_batch_size": 4, "fp16": "true",
        "recompute_granularity": "none", "params_dtype": "torch.float16",
    })  # fmt: skip
    left = {k: v for k, v in SWIFT.items() if k not in ("bf16", "recompute-granularity")}
    assert found == {**left, "micro-batch-size": 4, "fp16": True, "params-dtype": "fp16"}
    assert (reading.said("lora_rank"), reading.said("lora_targets")) == (8, "all-linear")
    _, reading = flags(
        "ms-swift-megatron", {"tuner_type": "lora", "lora_rank": "16", "target_modules": "q"}
    )
    assert (reading.said("lora_rank"), reading.said("lora_targets")) == (16, "q")
    assert reading.said("model") is None


@pytest.mark.parametrize(
    ("data", "has", "states"),
    [
        ({}, {"num-layers": 12, "ffn-hidden-size": 3072, "seq-length": 512, "micro-batch-size": 4},
         {"precision": "amp-fp16"}),
        ({"trainer.precision": "bf16", "model.megatron_amp_O2": True, "model.hidden_size": 1024},
         {"bf16": True, "ffn-hidden-size": 4096, "tokenizer-type": "GPT2BPETokenizer"}, {}),
        ({"trainer.precision": 32, "model.num_query_groups": 4, "model.activation": "fast-swiglu"},
         {"group-query-attention": True, "num-query-groups": 4, "swiglu": True},
         {"precision": "fp32"}),
        ({"model.bias": "False", "model.share_embeddings_and_output_weights": False},
         {"disable-bias-linear": True, "untie-embeddings-and-output-weights": True}, {}),
        ({"model.activations_checkpoint_granularity": "full", "model.sequence_parallel": "False"},
         {"recompute-granularity": "full"}, {}),
        ({"model.optim.name": "distributed_fused_adam", "model.tokenizer.library": "sentencepiece"},
         {"use-distributed-optimizer": True}, {}),
    ],
)  # fmt: skip
def test_a_model_of_nemo_1_beside_its_trainer(
    data: dict[str, Any], has: dict[str, Any], states: dict[str, Any]
) -> None:
    """conf/megatron_gpt_config.yaml; autocast over fp32 weights unless megatron_amp_O2 is on."""
    given, reading = flags("nemo-1", data)
    assert has.items() <= given.items()
    assert states.items() <= reading.facts.items()
    assert ("tokenizer-type" in given) == ("model.tokenizer.library" not in data)
    assert "sequence-parallel" not in given
