"""Six jobs described by hand, by a launch file and by a dry run have one prediction."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from llama import CONFIG, Llama  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import simcore  # noqa: E402

GPUS, BATCH, LENGTH = "2x8xH100", 2, 512


def steps(model: nn.Module, *, accumulate: int = 1, autocast: bool = True, clip: bool = False,
          fused: bool = False) -> None:  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused)
    for _ in range(2):
        for _ in range(accumulate):
            x, y = (torch.randint(0, CONFIG.vocab_size, (BATCH, LENGTH), device="cuda")
                    for _ in range(2))  # fmt: skip
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def sharded(model: Llama, **how: Any) -> Llama:
    for layer in model.layers:
        fully_shard(layer, **how)
    fully_shard(model, **how)
    return model


def ddp() -> None:
    model = nn.parallel.DistributedDataParallel(Llama().cuda(), device_ids=[0])
    steps(model, accumulate=2)


def fsdp() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    steps(sharded(Llama(), mp_policy=policy), autocast=False, clip=True, fused=True)


def hsdp() -> None:
    mesh = init_device_mesh("cuda", (2, 8), mesh_dim_names=("replicate", "shard"))
    steps(sharded(Llama(), mesh=mesh))


def recompute() -> None:
    steps(sharded(Llama(recompute=True)))


def tensor() -> None:
    model, mesh = Llama(), init_device_mesh("cuda", (8, 2), mesh_dim_names=("data", "tensor"))
    for layer in model.layers:
        columns = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj",
                   "mlp.up_proj")  # fmt: skip
        plan = {name: ColwiseParallel() for name in columns}
        plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
        parallelize_module(layer, mesh["tensor"], plan)
    steps(sharded(model, mesh=mesh["data"]))


def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(Llama())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW)
    for _ in range(2):
        x = torch.randint(0, CONFIG.vocab_size, (BATCH, LENGTH))
        F.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()


class Way(NamedTuple):
    """A job: its script, the options by hand, and a launch file with the options beside it."""

    script: Callable[[], None]
    by_hand: dict[str, Any]
    launch: str
    beside: dict[str, Any]


_FSDP = "distributed_type: FSDP\nnum_machines: 2\nnum_processes: 16\nfsdp_config:\n"
JOBS = {
    "ddp": Way(
        ddp, {"strategy": "ddp", "precision": "amp-bf16", "grad_accum": 2},
        "torchrun --nnodes 2 --nproc_per_node 8 train.py",
        {"strategy": "ddp", "precision": "amp-bf16", "grad_accum": 2},
    ),
    "fsdp": Way(
        fsdp,
        {"strategy": "zero3", "precision": "bf16", "grad_clip": "on", "optimizer_impl": "fused",
         "software": "fsdp"},
        f"{_FSDP}  fsdp_version: 2\n  fsdp_reshard_after_forward: true\nmixed_precision: bf16\n",
        {"grad_clip": "on", "optimizer_impl": "fused", "software": "fsdp"},
    ),
    "hsdp": Way(
        hsdp,
        {"strategy": "hsdp", "shard_ranks": 8, "precision": "amp-bf16", "software": "fsdp"},
        f"{_FSDP}  fsdp_sharding_strategy: HYBRID_SHARD\n",
        {"precision": "amp-bf16", "software": "fsdp"},
    ),
    "recompute": Way(
        recompute,
        {"strategy": "zero3", "precision": "amp-bf16", "recompute": "full", "software": "fsdp"},
        f"{_FSDP}  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_activation_checkpointing: true\n",
        {"precision": "amp-bf16", "software": "fsdp"},
    ),
    "tensor": Way(
        tensor,
        {"strategy": "zero3", "precision": "amp-bf16", "tp": 2, "sequence_parallel": "off",
         "software": "fsdp"},
        f"{_FSDP}  fsdp_sharding_strategy: FULL_SHARD\n"
        "parallelism_config:\n  parallelism_config_tp_size: 2\n",
        {"precision": "amp-bf16", "software": "fsdp", "tp": 2, "sequence_parallel": "off"},
    ),
    "zero": Way(
        zero, {"strategy": "zero1", "precision": "fp32"},
        "torchrun --nnodes 2 --nproc_per_node 8 train.py",
        {"strategy": "zero1", "precision": "fp32"},
    ),
}  # fmt: skip


def collectives(found: simcore.Prediction) -> dict[str, str]:
    """Kind of each collective of a step: how many messages, and their bytes."""
    inputs = found.explain("communication").inputs
    return {kind: said for kind, said in inputs if "message" in said or "exchanges" in said}


@pytest.mark.parametrize("name", JOBS)
def test_by_hand_by_launch_file_and_by_dry_run(name: str, tmp_path: Path) -> None:
    way = JOBS[name]
    config, launch = tmp_path / "config.json", tmp_path / "launch.yaml"
    config.write_text(json.dumps(CONFIG.to_dict()))
    launch.write_text(way.launch)
    with simcore.dry_run(GPUS) as job:
        way.script()
    dry = job.predict()
    sizes = {"seq_len": LENGTH, "micro_batch": BATCH, "optimizer": "adamw"}
    by_hand = simcore.predict(str(config), GPUS, **sizes, **way.by_hand)
    line = way.launch if way.launch.startswith("torchrun") else str(launch)
    launched = simcore.predict(str(config), GPUS, launch=line, **sizes, **way.beside)
    for other in (by_hand, launched):
        assert dry.memory.terms == pytest.approx(other.memory.terms)
        assert collectives(dry) == collectives(other) != {}
        assert dry.step_time_s.value == pytest.approx(other.step_time_s.value, rel=0.03)
        assert dry.time_s == pytest.approx(other.time_s, rel=0.03)
