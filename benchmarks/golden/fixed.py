"""Jobs written by hand: tables, sweeps, plans, launch files, vision models, mistakes."""

from __future__ import annotations

from typing import Any

from benchmarks.golden.jobs import Job
from benchmarks.golden.run import ROOT, table_path

#: Largest first: each is one piece of work.
TABLES = (
    "steps/ddp.csv", "steps/llm.csv", "steps/llm_fits_or_not.csv", "steps/megatron_memory.csv",
    "steps/bridge_hybrid.csv", "steps/mlperf_v6.csv",
)  # fmt: skip
_SAMPLES = ROOT / "tests" / "strategy" / "dialects" / "samples"
_VISION = (
    "timm:convnext_tiny", "timm:vit_small_patch16_224", "timm:resnet18", "timm:efficientnet_b0",
    "torchvision:resnet50", "torchvision:swin_t", "torchvision:mobilenet_v3_small",
    "torchvision:vgg11",
)  # fmt: skip
_LINES = (
    "torchrun --nnodes 2 --nproc-per-node 8 train.py",
    "torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2 "
    "--pipeline-model-parallel-size 2 --bf16 --micro-batch-size 1 --global-batch-size 64",
    "pretrain_gpt.py --seq-length 4096 --micro-batch-size 1 --global-batch-size 128 --bf16 "
    "--use-distributed-optimizer --overlap-grad-reduce --recompute-granularity full "
    "--recompute-method uniform --recompute-num-layers 1",
    "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 2 --bf16",
    "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 1 --bf16 "
    "--gradient_checkpointing --fsdp full_shard --optim adafactor",
)
#: Model, clusters, axes.
_SWEEPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("latte-xl", "A6000ada:1..4x8", {"strategy": "all", "micro_batch": "1..4"}),
    ("latte-l", "RTX4090:1..2x8", {"precision": "tf32,amp-bf16,bf16", "micro_batch": "1,2"}),
    ("gpt2", "A100:1..4*2x8", {"strategy": "ddp,zero1,zero3", "grad_accum": "1..4"}),
    ("gpt2-xl", "V100-SXM-32GB:1..2x8", {"strategy": "zero1,zero2,zero3", "offload":
        ["none", "optimizer:cpu"], "recompute": "none,full"}),
    ("llama2-7b", "H100:1..2x8", {"strategy": "zero1,zero3", "tp": "1,2", "micro_batch": "1..4"}),
    ("llama3-8b", "H100:1..4*2x8", {"tp": "1,2,4", "pp": "1,2", "global_batch": 64,
        "precision": "bf16,fp8"}),
    ("llama3-70b", "H100:8x8", {"tp": "4,8", "pp": "1,2,4", "vpp": "1,2", "global_batch": 128,
        "precision": "bf16"}),
    ("llama3-70b", "H100:8x8", {"tp": "8", "pp": "4", "schedule": "1f1b,gpipe,zb-1p",
        "grad_accum": "8,16", "precision": "bf16"}),
    ("llama3-70b", "B200:2..8*2x8", {"strategy": "zero3", "recompute": "none,selective,full",
        "micro_batch": "1,2", "precision": "bf16"}),
    ("mixtral-8x7b", "H100:4..8*2x8", {"ep": "1,4,8", "tp": "1,2", "grad_accum": "1,8",
        "precision": "bf16"}),
    ("mixtral-8x7b", "H100:8x8", {"ep": "8", "dispatcher": "alltoall,deepep", "pp": "1,2",
        "grad_accum": 8, "precision": "bf16"}),
    ("deepseek-v2-lite", "H100:2x8", {"ep": "2,8", "pp": "1,3", "grad_accum": 12}),
    ("qwen3-30b-a3b", "H200:2..4x8", {"ep": "4,8", "micro_batch": "1,2", "grad_accum": 4}),
    ("olmoe-1b-7b", "A100:1..2x8", {"strategy": "zero1,zero3", "ep": "1,8"}),
    ("llama3-8b", "A100:1..2x8", {"seq_len": "2048,8192", "cp": "1,2,4",
        "cp_comm": "ring,ulysses", "precision": "bf16"}),
    ("llama3-8b", "H100:1x1..8", {"lora_rank": "8,16", "micro_batch": "1,2,4",
        "recompute": "none,full"}),
    ("llama2-13b", "A100:1x8,H100:1x8,MI300X:1x8", {"strategy": "zero2,zero3",
        "optimizer": "adamw,adafactor,sgd,adamw-8bit"}),
    ("llama2-7b", "H100:1x8", {"optimizer": "lion,muon,adamw-bf16", "main_grads":
        "weights,fp32", "micro_batch": "1,2"}),
    ("bert-large", "V100-SXM-16GB:1..4x8", {"precision": "fp32,amp-fp16", "micro_batch": "4,8,16"}),
    ("bert-base", "T4:1..4x2", {"network": ["eth-10", "ib-hdr"], "micro_batch": "4,8"}),
    ("resnet-50", "V100-SXM-16GB:1..2x1..8", {"micro_batch": "32,64,128"}),
    ("resnet-152", "RTX3090:1x1..4", {"strategy": "dp,ddp,manual", "micro_batch": "8,16"}),
    ("vit-l-16", "A100:1x1..8", {"micro_batch": "8,16,32", "precision": "amp-bf16,tf32"}),
    ("dit-xl-2", "H100:1..2x8", {"resolution": ["256", "512"], "micro_batch": "8,16"}),
    ("wan2.1-1.3b", "H100:1x8", {"frames": "17,33", "cp": "1,2,4"}),
    ("sdxl", "A100:1x8,L40S:1x8", {"strategy": "ddp,zero2", "micro_batch": "1,2,4"}),
    ("t5-large", "A100:1..2x8", {"strategy": "all", "recompute": "none,full"}),
    ("whisper-small", "RTX4090:1x1..4", {"micro_batch": "4,8,16"}),
    ("latte-xl", "1x4xA100+1x4xV100,2x4xA100", {"micro_batch": "1,2", "shares": ["equal", "auto"]}),
    ("llama3-8b,llama2-7b", "H100:1x8", {"strategy": "zero3", "software":
        "torchtitan", "micro_batch": "1,2"}),
    ("gpt2", "K80:1x1..2", {"micro_batch": "16,32,64"}),
    ("llama3.1-405b", "H100:16..32*2x8", {"tp": "8", "pp": "1,2", "precision": "bf16"}),
)  # fmt: skip
_PLANS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("llama2-7b", "H100:1..4*2x8", {"tokens": 1e11, "deadline": "30d", "tp": "1,2", "pp": "1"}),
    ("llama3-8b", "H100:2..8*2x8,A100:4..8*2x8", {"tokens": 1e12, "budget": 3e6, "tp": "1,2",
        "pp": "1,2", "vpp": "1", "objective": "time"}),
    ("mixtral-8x7b", "H100:4..8*2x8", {"tokens": 1e11, "deadline": "60d", "ep": "8",
        "pp": "1,2", "tp": "1", "vpp": "1", "objective": "gpus"}),
    ("latte-xl", "A6000ada:1..4x8", {"epochs": 100, "deadline": "14d", "objective": "energy"}),
    ("gpt2", "A100:1x1..8", {"tokens": 1e10, "deadline": "1h", "precision": "bf16"}),
    ("resnet-50", "V100-SXM-16GB:1x1..8", {"epochs": 90, "deadline": "2d", "budget": 500,
        "confidence": 0.9}),
)  # fmt: skip
_MISTAKES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("llama3-8", "8xH100", {}), ("gpt2", "8xH1000", {}), ("gpt2", "0x8xH100", {}),
    ("gpt2", "8xH100", {"strategy": "zero4"}), ("gpt2", "8xH100", {"optimizer": "adamv"}),
    ("gpt2", "8xH100", {"micro_batch": 2.5}), ("gpt2", "8xH100", {"microbatch": 2}),
    ("llama3-8b", "1x8xH100", {"tp": 3}), ("llama3-8b", "1x8xH100", {"tp": 16}),
    ("llama3-8b", "1x8xH100", {"pp": 3, "grad_accum": 1}), ("resnet-50", "8xA100", {"tp": 2}),
    ("resnet-50", "8xA100", {"seq_len": 128}), ("gpt2", "8xA100", {"frames": 16}),
    ("gpt2", "8xV100", {"precision": "fp8"}), ("gpt2", "2x8xA100", {"strategy": "dp"}),
    ("gpt2", "8xA100", {"network": "ib-hxr"}), ("gpt2", "8xA100", {"global_batch": 7}),
    ("llama3-8b", "8xA100", {"ep": 8}), ("gpt2", "8xA100", {"software": "megatrom"}),
    ("gpt2", "8xA100", {"nccl_algo": "Rings"}), ("gpt2", "8xA100", {"node": "dgx-h100"}),
    ("llama3-8b", "2x8xH100", {"pp": 2, "stages": "10,10"}),
    ("llama3-8b", "2x8xH100", {"pp": 2, "stages": "17,15", "grad_accum": 4}),
    ("llama3-8b", "4x8xH100", {"pp": 4, "stages": "7,rest,7", "grad_accum": 8}),
    ("llama3-8b", "4x8xH100", {"pp": 4, "stages": "7,9x2,7", "grad_accum": 8}),
    ("gpt2", "8xA100", {"launch": "torchrun --nnodes 4 --nproc-per-node 8 train.py"}),
    ("llama3-8b", "8xH100", {"recompute_modules": "core_attn"}),
    ("llama3-8b", "8xH100", {"lora_rank": 0}), ("gpt2", "1xH100+1xV100", {"shares": "3:1:1"}),
)  # fmt: skip


def fixed_jobs() -> list[Job]:
    """All hand-written jobs with their kinds; those of tables only if the tables exist."""
    jobs: list[Job] = [{"kind": "table", "file": name} for name in _tables()]
    for kind, asked in (("sweep", _SWEEPS), ("plan", _PLANS), ("predict", _MISTAKES)):
        for model, gpus, words in asked:
            more = {"start": "2026-01-01"} if "deadline" in words else {}
            jobs.append({"kind": kind, "model": model, "gpus": gpus, "words": {**words, **more}})
    for line in _LINES:
        for gpus in ("A100", "2x8xA100"):
            jobs.append(_predict("llama2-7b", gpus, launch=line))
    for file in sorted(_SAMPLES.iterdir()):
        for model, gpus in (("llama2-7b", "4x8xH100"), ("gpt2-xl", "A100"), ("gpt2", "2x8xA100")):
            job = _predict(model, gpus, launch=file.name)
            jobs.append({**job, "files": {file.name: file.read_text(encoding="utf-8")}})
    for model in _VISION:
        jobs += [_predict(model, "8xRTX4090"), _predict(model, "2x8xA100", micro_batch=64)]
    return jobs


def _predict(model: str, gpus: str, **words: Any) -> Job:
    return {"kind": "predict", "model": model, "gpus": gpus, "words": words}


def _tables() -> list[str]:
    own = sorted((ROOT / "validate").glob("*/*.csv"))
    names = [*TABLES, *(f.relative_to(ROOT).as_posix() for f in own)]
    return [name for name in names if table_path(name).is_file()]
