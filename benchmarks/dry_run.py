"""A dry run of a large job: python -m benchmarks.dry_run.

A Llama of 7 billion parameters under FSDP2 in bf16 runs two optimizer steps as rank 0 of 64 GPUs.
It prints the processor seconds with all imports, those of the clock and the most memory held; exit
code 1 where the clock says more than 30 s, or the memory was more than 2 GB.
"""

from __future__ import annotations

import resource
import sys
import time

import simcore
from simcore.base.units import GIGA, KIB
from simcore.workload.trace.zoos import ready_torchvision

MOST_S, MOST_BYTES = 30.0, 2e9


def train() -> None:
    """Two steps of the script that is captured."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
        vocab_size=32000, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2):
        tokens = torch.randint(0, 32000, (1, 4096), device="cuda")
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def main() -> int:
    """Run it and print what it took."""
    begun = time.monotonic()
    ready_torchvision()  # transformers imports it where it is installed
    with simcore.dry_run("8x8xH100", world_size=64) as job:
        train()
    step_s = job.predict().step_time_s.value
    taken_s = time.monotonic() - begun
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB
    print(  # noqa: T201
        f"captured and predicted ({step_s:.3f} s a step) in {time.process_time():.1f} processor "
        f"seconds, {taken_s:.1f} s by the clock; {held / GIGA:.2f} GB"
    )
    return int(taken_s > MOST_S or held > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
