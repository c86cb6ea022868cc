"""What MLPerf's submissions set beside their rows in ``llm.csv``, by round.

From their launch files, configurations and logs as github.com/mlcommons/training_results_vX.Y keeps
them; paths below lie in NVIDIA/benchmarks/*/implementations unless another submitter is named.
Round 5.0's NeMo is 25.04 on Blackwell and 24.09 on Hopper, 5.1's 25.09 on Blackwell.
"""

from __future__ import annotations

import re

from simcore.validate.formats import Row, whole
from simcore.workload.models import Scalar

LORA, GPT3, LLAMA_8B, LLAMA_405B = (
    "mlperf-lora70b", "mlperf-gpt3", "mlperf-llama8b", "mlperf-llama405b",
)  # fmt: skip
_ROUND = re.compile(r"MLPerf Training v(\d+)\.(\d+)")
_BLACKWELL = ("B200", "B300", "GB200", "GB300")
#: Adapters of rank 16 on the attention's products. Where a row's notes have the base in fp8, its
#: layers' products are; the rest is 16 bit.
_ADAPTERS: dict[str, Scalar] = {"lora_rank": 16, "lora_targets": "qkv_proj,o_proj"}
#: MLPerf's: a dropout of 0.1 before each (train.py: LoRA; megatron_gpt_peft_tuning_config.yaml:
#: dropout_position "pre"), the loss in kernels of its own (train.py: cross_entropy_loss_fusion
#: False).
_DROPPED: dict[str, Scalar] = {"lora_dropout": 0.1, "loss": "vocab_parallel"}
#: From 5.0 on: NEMO_LORA_USE_THUNDER_DROPOUT=1, and attention in 8 bits both ways (FP8_DPA=1,
#: NVTE_FP8_DPA_BWD=1; config_common.sh); the logs say fp8_dot_product_attention of runs in NVFP4
#: too. From 5.1 on USE_TE_OPS=1, Transformer Engine's operation fuser (logs:
#: use_transformer_engine_op_fuser).
_NEMO_25_04: dict[str, Scalar] = {"lora_kernels": "redrawn", "attention": "cudnn_fp8"}
_NEMO_25_09: dict[str, Scalar] = {"lora_kernels": "joined", "attention": "cudnn_fp8"}
#: The fuser's SwiGLU writes fp8 for the products beside it, NVFP4 in a kernel of its own.
_CASTS: dict[str, Scalar] = {"activation_casts": True}
#: 8B in NVFP4 on whole sequences (config_..tp1pp1cp1_8b_fp4.sh source config_common_fp8attn.sh;
#: where context is cut, NVTE_DPA_FP8_RECIPE="F16" takes that back).
_NARROW_ATTENTION: dict[str, Scalar] = {"attention": "cudnn_fp8"}
#: What its configurations in fp8 keep in 8 bits where the sequence is not cut over ranks: NVIDIA's
#: set FP8_ACT=1 (config_DGXB200_1x8x1xtp1pp1cp1.sh, not config_..cp8.sh), AMD's
#: FP8_ACTIVATION=True (config_MI300X_1x8x1.sh); both are Megatron-Core's
#: activation_func_fp8_input_store (conf/megatron_gpt_peft_tuning_config.yaml).
_FP8_ACTIVATION_INPUT: dict[str, Scalar] = {"fp8_activation_input": True}
#: Submissions whose logs say another precision than a configuration beside them: on_train_start
#: prints "fp8: true", "fp4=None" and the learning rate of the configuration in fp8
#: (Nebius/results/nebius_b200_n4/llama2_70b_lora/result_1.txt).
_LOGGED = {("v5.1 Nebius/nebius_b200_n4/", LORA): "fp8"}
#: AMD's configurations of round 5.0 are a file a GPU ("MI325x submission configurations are in
#: config_MI325x_*.sh", README of MI325X_EPYC_9575F_pytorch), of which README's example sources
#: MI300X's. Theirs of 5.1 recompute 21 layers on MI300X alone, whose memory is the smaller.
_OTHERS_EXAMPLE = re.compile(r"config config_MI300X\S* \(README\)")
#: NeMo's DDP reduces and gathers adapters when backward is over (train.py and
#: megatron_gpt_peft_tuning_config.yaml of 5.0 and 5.1: overlap_grad_reduce False, one bucket).
_LATE_ADAPTERS = frozenset({"grads"})
#: config_common.sh of both Llama 3.1 benchmarks: OVERLAP_GRAD_REDUCE, OVERLAP_PARAM_GATHER. Rows
#: whose configuration sources it from another folder name no switch.
_COMMON = frozenset({"grads", "params"})


def round_of(row: Row) -> tuple[int, int]:
    """The round that a row is of; (0, 0): of none."""
    found = _ROUND.search(row.get("source_ref", ""))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _nemo_2(row: Row) -> bool:
    return row["gpu_type"].startswith(_BLACKWELL) and round_of(row) >= (5, 0)


def precision_of(row: Row) -> str:
    """The precision that a submission's log tells where the row has another; else the row's."""
    ref = row.get("source_ref", "")
    return next(
        (told for (where, what), told in _LOGGED.items() if where in ref and row["source"] == what),
        row["precision"],
    )


def layers_of(row: Row) -> dict[str, Scalar]:
    """Settings of layers: those of adapters, of MLPerf and others."""
    if _nemo_23_04(row):
        return {"attention": "flash1"}
    if row.get("task") != "lora":
        narrow = row["source"] == LLAMA_8B and _nemo_2(row) and precision_of(row) == "nvfp4"
        return _NARROW_ATTENTION if narrow and whole(row, "cp", 1) == 1 else {}
    found, fp8 = dict(_ADAPTERS), precision_of(row) == "fp8"
    if row["source"] == LORA:
        found |= _DROPPED
        if _nemo_2(row):
            found |= _NEMO_25_09 if round_of(row) >= (5, 1) else _NEMO_25_04
            found |= _CASTS if found["lora_kernels"] == "joined" and fp8 else {}
    if fp8 and whole(row, "cp", 1) == 1:
        found |= _FP8_ACTIVATION_INPUT
    if re.search(r"base in (fp4/)?fp8", row.get("notes", "")):
        found["quantised_base"] = "fp8"
    return found


def _nemo_23_04(row: Row) -> bool:
    """GPT-3's rows of 3.0, submitted in May 2023: FlashAttention-2 came in July.

    3.1's Dockerfile installs flash-attn 2.0.8.
    """
    return row["source"] == GPT3 and round_of(row) == (3, 0)


def recompute_of(row: Row) -> str:
    """The row's recompute, unless it was read off another GPU's configuration.

    GPT-3's of 3.0 ran attention again: ACT_CKPT_GRANULARITY:="selective" (run_and_time.sh), where
    3.1's custom.yaml has null.
    """
    if _nemo_23_04(row):
        return "selective"
    others = row["gpu_type"].startswith("MI325X") and _OTHERS_EXAMPLE.search(row.get("notes", ""))
    return "none" if others else row.get("recompute") or "none"


def context_of(row: Row) -> str | None:
    """What context ranks exchange: adapters' runs turn tokens into heads from 4.1 on.

    ``cp_comm_type: ${CP_COMM_TYPE,'a2a'}`` (megatron_gpt_peft_tuning_config.yaml), which no
    configuration changes; 4.0 has Megatron-Core's default, a ring.
    """
    turned = row["source"] == LORA and whole(row, "cp", 1) > 1 and round_of(row) >= (4, 1)
    return "ulysses" if turned else None


def late_overlaps_of(row: Row) -> frozenset[str]:
    """What hides for others of the row's program, and not for it."""
    return _LATE_ADAPTERS if row["source"] == LORA and _nemo_2(row) else frozenset()


def common_overlaps_of(row: Row) -> frozenset[str]:
    """Overlaps of a configuration that names none itself."""
    blank = row["source"] in (LLAMA_8B, LLAMA_405B) and not row.get("overlaps")
    return _COMMON if blank and not row["gpu_type"].startswith("MI") else frozenset()


def narrow_params(row: Row) -> bool:
    """Whether parameters are held in 8 bits: GPT-3's from 4.0 on (config_common.sh: FP8_PARAMS)."""
    return row["source"] == GPT3 and row["precision"] == "fp8" and round_of(row) >= (4, 0)


def captured(row: Row) -> bool:
    """Whether the step is one graph though the row does not say so.

    Configurations of both Llama 3.1 benchmarks that source config_common_cg.sh (FULL_CUDA_GRAPH):
    those named so, and of 8B on Blackwell all that round 5.1 has.
    """
    if row["source"] not in (LLAMA_8B, LLAMA_405B) or not _nemo_2(row):
        return False
    named = re.search(r"config \S+_cg(_\w+)?\.sh", row.get("notes", ""))
    return bool(named) or row["source"] == LLAMA_8B


def chunks_told(row: Row) -> int | None:
    """Chunks a pipeline rank of the configuration where the row has a blank.

    Round 4.0's of 512 GPUs: INTERLEAVED_PIPELINE=4 (gpt3/implementations/nemo/
    config_DGXH100_64x8x128x4x8_mbs2.sh).
    """
    blank = row["source"] == GPT3 and not row.get("vpp") and round_of(row) == (4, 0)
    return 4 if blank and whole(row, "micro_batch", 1) == 2 else None
