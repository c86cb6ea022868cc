"""Which program each source of ``llm.csv`` ran, and what the source states beside its rows.

What a program does stands with it (``programs_db``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from simcore.base.units import GIB, GIGA
from simcore.engine.options import Options
from simcore.strategy.programs import Program, Runs, program_named
from simcore.validate.formats import Row
from simcore.workload.models import Scalar

#: What a peak of memory is: the framework's of tensors or of segments, or nvidia-smi's figure.
Memory = Literal["allocated", "reserved", "shown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source: its program (``NAME`` or ``NAME@RELEASE``), and what it says itself.

    ``settings``, ``options``: of its jobs, beside its program's. ``memory``: what its peaks are;
    who does not say is taken to report the framework's peak of tensors, as Megatron-LM does.
    ``memory_bytes``: its unit. ``node``: its machines; ``node_gbit_per_s``: what NCCL gets of the
    network of one, where that was measured apart from its runs. ``interleaved``: its pipeline is,
    and not by how much: one layer a chunk, as Megatron-LM's and Meta's largest runs have
    (Narayanan et al. 2021 2.2; Llama 3 2024, 3.3.2). ``states_switches``: a row that names no
    overlap has none of those that recipes switch on. ``untied``: heads of its models of GPT's
    family have tables of their own.
    """

    program: str = "plain"
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    memory: Memory = "allocated"
    memory_bytes: float = GIB
    node: str = ""
    node_gbit_per_s: float = 0.0
    interleaved: bool = False
    states_switches: bool = False
    untied: bool = False

    @property
    def record(self) -> Program:
        """Its program."""
        return program_named(self.program)

    @property
    def runs(self) -> Runs:
        """How its program runs language models."""
        return self.record.runs or Runs()


#: CUDA before 11.7, whose libraries load every kernel at start.
_BIGSCIENCE: Options = {"eager_kernels": True}
#: Gradients summed and reduced in 16 bit.
_NARROW_SUMS: Options = {"main_grads": "fused"}
_MEGATRON_2021 = Source(program="megatron-lm@2021")
_MLPERF = Source(program="nemo@mlperf", states_switches=True)

SOURCES: Mapping[str, Source] = {
    "megatron-sc21-a100": _MEGATRON_2021,
    "megatron-jan21-a100": _MEGATRON_2021,
    "megatron-v2-tables": _MEGATRON_2021,
    "megatron-gpt3-example": _MEGATRON_2021,
    "mt-nlg-530b": _MEGATRON_2021,
    # its paper counts the masks of dropout
    "korthikanti-recompute": Source(program="megatron-lm@2022"),
    # Qi et al. 2023: table 1 counts sb(34h + 5as) bytes of activations a layer, scores and dropout
    # masks in them; its script says --no-overlap-p2p-communication and
    # --untie-embeddings-and-output-weights (examples/pretrain_zero_bubble.sh); it reports what a
    # micro-batch holds in bytes // 1000000 (megatron/core/pipeline_parallel/zb_schedules.py,
    # ScheduleTimers). Rows assume GPT-2's vocabulary; the parameters of its models (1.5, 6.2, 14.6
    # and 28.3 x 10^9, table 3) leave 25.5 to 33.6 thousand words of one table, and its examples
    # have a SentencePiece model, whose usual size this is.
    "zero-bubble": Source(
        program="megatron-lm@2022", settings={"vocab": 32_000}, memory_bytes=GIGA, untied=True
    ),
    "vtrain": Source(program="megatron-deepspeed"),
    # CUDA_LAUNCH_BLOCKING=1: "do not remove or the training will hang" (bigscience,
    # train/tr11-176B-ml/setup-test-n2.slurm). Nodes have four Omni-Path adapters of 100 Gbit/s, of
    # which a communicator takes one: 40.5 from 2.10.3 between 4 nodes of 8 A100 (experiments/
    # bandwidth: all_reduce_bench-a100-n4.txt, busbw; "an issue with nccl that doesn't fully utilize
    # Intel OPA full bandwidth"). Four groups or more keep all four busy, as tensor ranks' are: each
    # GPU takes the nearest.
    "bigscience-bloom": Source(
        program="megatron-deepspeed@2022", options={**_BIGSCIENCE, "launch_blocking": True},
        memory="shown", node_gbit_per_s=4 * 40.5,
    ),
    # of dropout nothing is said
    "bigscience-v100": Source(
        program="megatron-deepspeed", options=_BIGSCIENCE, settings={"dropout": 0.0},
        memory="shown",
    ),
    "deepspeed-azure-zero3": Source(program="megatron-deepspeed@azure"),
    # says FlashAttention-3 of its H200, and reserved memory
    "stas00-ml-engineering": Source(
        program="transformers-deepspeed@liger", settings={"attention": "flash3"}, memory="reserved"
    ),
    "megascale": Source(program="megatron-lm@2023", options=_NARROW_SUMS),
    # of the gradients' width nothing is said; as NVIDIA's recipes have it
    "simumax-a100pcie": Source(program="megatron-lm@2023", options=_NARROW_SUMS),
    "simumax-b200": Source(program="megatron-lm@2024", settings={"loss": "in_place"}),
    "kwai-megatron": Source(program="megatron-lm@2024"),
    "nemotron4-340b": Source(
        program="megatron-lm@2024", options=_NARROW_SUMS, interleaved=True
    ),
    "megatron-lm-h100": Source(program="megatron-lm@2024-overlaps", interleaved=True),
    "megatron-lm-llama-fp8": Source(program="megatron-lm@2024-overlaps"),
    "moe-modelzoo": Source(program="megatron@moe-model-zoo"),
    # documents of 2024
    "nvidia-nemo-docs": Source(program="nemo@1"),
    "nvidia-dgxc-benchmarking": Source(program="nemo@recipes"),
    "mlperf-gpt3": _MLPERF,
    "mlperf-llama405b": replace(_MLPERF, program="nemo@mlperf-fp8-weights"),
    "mlperf-llama8b": _MLPERF,
    "mlperf-lora70b": _MLPERF,
    "bridge-skills": Source(program="megatron-bridge@recipes"),
    "nvidia-megatron-bridge": Source(program="megatron-bridge@benchmarks"),
    # their modules are no language model's: llm_diffusion
    "mlperf-flux1": Source(states_switches=True),
    "nemo-bridge-wan": Source(),
    # metrics.py prints reserved memory
    "pytorch-torchtitan": Source(program="torchtitan", memory="reserved"),
    "mosaicml-llm-foundry": Source(program="llm-foundry"),
    "ibm-fms-fsdp": Source(program="fms-fsdp"),
    "aleph-alpha": Source(program="scaling"),
    # of Hugging Face's cluster at AWS
    "huggingface-nanotron": Source(program="nanotron", memory="reserved", node="p5-aws"),
    "internlm-internevo": Source(program="internevo@2023", memory="shown"),
    "llama3-paper": Source(program="llama3", interleaved=True),
    # trained with a module that predicts one more token (4.2)
    "deepseek-v3-report": Source(program="deepseek-v3", settings={"next_tokens": 1}),
}  # fmt: skip
#: Whose program nobody knows: it is judged as one that is not named.
_UNKNOWN = Source()

#: torchtitan's releases, as file names of its reports date them.
_DATED = re.compile(r"(?<=_)20\d{4}(?=_)")
_COMPILED_SINCE = "202502"
#: llm-foundry's rows on PyTorch 1.13; DEFAULT is of 2.1 (sweep.sh).
_TORCH_1 = "mixed_precision=PURE"


def source_of(row: Row) -> Source:
    """The row's source, with the release of its program that the row is of."""
    source = SOURCES.get(row["source"], _UNKNOWN)
    return replace(source, program=_release(source.program, row))


def cluster_state_of(row: Row) -> str:
    """What a source says its cluster was before it was changed: no row of another state compares.

    Jean Zay's nodes: "A100s PCI-Express/NUMA was improved today so all TFLOPs have changed for the
    better (1-5%) - thus do not compare today's numbers to yesterday's" (bigscience, train/
    tr11-176B-ml/chronicles-prequel.md, of 25 February 2022).
    """
    before = row["source"] == "bigscience-bloom" and row.get("variant") == "pre_numa_fix"
    return "before its PCIe was put right" if before else ""


def _release(program: str, row: Row) -> str:
    if row.get("variant") == "MegaScale":
        return "megascale"
    if row["source"] == "pytorch-torchtitan":
        dated = _DATED.search(row.get("source_ref", ""))
        return "torchtitan@2024" if dated and dated[0] < _COMPILED_SINCE else program
    if row["source"] == "mosaicml-llm-foundry" and _TORCH_1 in row.get("notes", ""):
        return "llm-foundry@torch-1"
    narrow = row["precision"] == "bf16" and row["sharding"] != "fsdp"
    if row["source"] == "nvidia-megatron-bridge" and narrow:
        return "megatron-bridge@benchmarks-bf16"
    return program
