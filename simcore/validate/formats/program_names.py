"""Programs as rules of corpora name them, ``NAME`` or ``NAME@RELEASE``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from simcore.base.errors import UnknownName
from simcore.strategy.software import deepspeed, labs, megatron, pytorch
from simcore.strategy.software.record import Program

PROGRAMS: Mapping[str, Program] = {
    "plain": Program(),
    "megatron-lm@2021": megatron.MEGATRON_2021,
    "megatron-lm@2022": megatron.MEGATRON_2022,
    "megatron-lm@2023": megatron.MEGATRON_CORE,
    "megatron-lm@2024": megatron.TRANSFORMER_ENGINE,
    "megatron-lm@2024-overlaps": megatron.RECIPES,
    "megatron@recipes": megatron.NVIDIA,
    "megatron@moe-model-zoo": megatron.MODEL_ZOO,
    "nemo@mlperf": megatron.NEMO,
    "nemo@mlperf-fp8-weights": replace(megatron.NEMO, fp8_params=True),
    "nemo@recipes": megatron.NEMO_RECIPES,
    "nemo@1": megatron.NEMO_1,
    "megatron-bridge@recipes": megatron.BRIDGE,
    "megatron-bridge@benchmarks": megatron.BRIDGE_BENCHMARKS,
    "megatron-bridge@benchmarks-bf16": megatron.BRIDGE_BENCHMARKS_BF16,
    "megatron-deepspeed": deepspeed.MEGATRON_DEEPSPEED,
    "megatron-deepspeed@2022": deepspeed.MEGATRON_DEEPSPEED_2022,
    "megatron-deepspeed@azure": deepspeed.ZERO3_AZURE,
    "transformers-deepspeed@liger": deepspeed.TRANSFORMERS_LIGER,
    "scaling": labs.SCALING,
    "nanotron": labs.NANOTRON,
    "internevo@2023": labs.INTERNLM_2023,
    "megascale": labs.MEGASCALE,
    "llama3": labs.LLAMA3,
    "deepseek-v3": labs.DEEPSEEK_V3,
    "torchtitan": pytorch.TORCHTITAN,
    "torchtitan@2024": pytorch.TORCHTITAN_2024,
    "llm-foundry": pytorch.FOUNDRY,
    "llm-foundry@torch-1": pytorch.FOUNDRY_TORCH_1,
    "fms-fsdp": pytorch.FMS_FSDP,
}


def program_named(name: str) -> Program:
    """The program of a name. Raises UnknownName."""
    if name not in PROGRAMS:
        raise UnknownName("program", name, list(PROGRAMS))
    return PROGRAMS[name]
