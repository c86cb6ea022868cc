"""Words of a job by the names that other programs give them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

#: Ours (as the command line has it, with a value where that is meant) and what others call it:
#: Trainer, DeepSpeed, Megatron-LM, torchtitan, or by habit.
CALLED: Final = {
    "model": "model-name model-name-or-path config arch network-name m",
    "gpus": "gpu num-gpus ngpus n-gpus world-size cluster hardware device devices g",
    "nnodes": "nodes num-nodes n-nodes num-machines",
    "nproc-per-node": "gpus-per-node num-gpus-per-node nproc n-gpus-per-node num-processes",
    "micro-batch": "batch batch-size bs b mbs micro-batch-size per-device-train-batch-size "
                   "train-micro-batch-size-per-gpu local-batch-size batch-per-gpu",
    "grad-accum": "gradient-accumulation-steps gradient-accumulation accumulation accum ga "
                  "grad-acc accumulate",
    "global-batch": "global-batch-size gbs train-batch-size total-batch-size",
    "seq-len": "sequence-length seq-length seqlen context-length context max-seq-length max-length "
               "max-seq-len ctx block-size s",
    "tp": "tensor-parallel tensor-parallel-size tensor-parallel-degree tensor-model-parallel-size",
    "pp": "pipeline-parallel pipeline-parallel-size pipeline-parallel-degree "
          "pipeline-model-parallel-size",
    "cp": "context-parallel context-parallel-size context-parallel-degree sequence-parallel-size",
    "ep": "expert-parallel expert-parallel-size expert-parallel-degree expert-model-parallel-size",
    "zero": "zero-stage stage",
    "strategy": "parallel parallelism sharding sharding-strategy distributed",
    "strategy fsdp": "fsdp full-shard",
    "strategy ddp": "ddp data-parallel dp",
    "strategy hsdp": "hsdp hybrid-shard",
    "shard-ranks": "data-parallel-shard-degree",
    "precision": "dtype torch-dtype mixed-precision amp data-type",
    "precision bf16": "bf16 bfloat16",
    "precision fp16": "fp16 float16 half",
    "precision fp8": "fp8",
    "recompute": "activation-checkpoint checkpointing ac recompute-granularity",
    "recompute full": "gradient-checkpointing activation-checkpointing",
    "lora-rank": "lora lora-r rank r qlora",
    "lora-targets": "target-modules lora-target-modules",
    "quantised-base": "quantization quantisation quantized-base bits",
    "quantised-base nf4": "load-in-4bit",
    "quantised-base int8": "load-in-8bit",
    "layout": "data-format memory-format",
    "layout nhwc": "channels-last",
    "attention": "attn attn-implementation attention-backend attn-impl",
    "attention flash": "flash-attn use-flash-attn flash-attention flash-attention-2",
    "optimizer": "optim optimiser opt",
    "offload": "cpu-offload offload-optimizer zero-offload",
    "launch": "config-file deepspeed deepspeed-config ds-config launch-file from-config",
    "resolution": "image-size img-size size image",
    "epochs": "num-epochs num-train-epochs",
    "steps": "max-steps train-iters iterations",
    "network": "interconnect bandwidth fabric",
    "compile on": "torch-compile inductor dynamo",
    "grad-clip on": "max-grad-norm clip-grad gradient-clipping clip-grad-norm",
    "optimizer-impl": "foreach",
    "optimizer-impl fused": "fused-optimizer fused-adam apex-fused-adam",
}  # fmt: skip


def word_meant(typed: str, value: object, known: Collection[str]) -> str:
    """What a keyword of another program is among ``known``, as a call would say it: ``micro_batch``
    for ``batch_size``, ``strategy='zero1'`` for ``zero``; nothing where it is no such name.
    """
    name = typed.replace("_", "-").lower()
    if name in ("zero", "zero-stage", "stage"):
        return f"strategy='zero{value if str(value) in ('1', '2', '3') else 'N'}'"
    for ours, theirs in CALLED.items():
        word, _, fixed = ours.replace("-", "_").partition(" ")
        if name in theirs.split() and word in known:
            return f"{word}={fixed!r}" if fixed else word
    return ""
