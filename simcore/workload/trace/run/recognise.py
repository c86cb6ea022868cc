"""The options of ``simcore predict`` that a script stands for, from what was seen of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from simcore.workload.trace.run.exchanges import exchanges, split, told
from simcore.workload.trace.run.meter import Collective
from simcore.workload.trace.run.watch import Seen

#: Optimizers by the name of their class, without the libraries' prefixes.
_OPTIMIZERS = {
    "adamw": "adamw", "adam": "adam", "rmsprop": "rmsprop", "adagrad": "adagrad",
    "adafactor": "adafactor", "lion": "lion", "muon": "muon", "lamb": "lamb",
    "prodigy": "prodigy", "adamwschedulefree": "adamw-schedule-free", "adamw8bit": "adamw-8bit",
    "lion8bit": "lion-8bit", "ademamix": "ademamix", "ademamix8bit": "ademamix-8bit",
}  # fmt: skip
#: Strategies of FSDP1 (torch/distributed/fsdp/api.py, ShardingStrategy).
_FSDP1 = {
    "FULL_SHARD": "zero3", "SHARD_GRAD_OP": "zero2", "NO_SHARD": "ddp", "HYBRID_SHARD": "hsdp",
    "_HYBRID_SHARD_ZERO2": "hsdp",
}  # fmt: skip
_SCHEDULES = {
    "ScheduleGPipe": "gpipe", "Schedule1F1B": "1f1b", "ScheduleInterleaved1F1B": "1f1b",
    "ScheduleInterleavedZeroBubble": "zb-1p", "ScheduleDualPipeV": "dualpipe",
}  # fmt: skip
_HALF = {torch.bfloat16: "bf16", torch.float16: "fp16"}


@dataclass(slots=True)
class Recognised:
    """Options of the job by name, and what could not be expressed by them.

    ``words``: values of options; ``recompute``: none or full; ``exchanges``: plain data of the
    script's own collectives.
    """

    words: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    exchanges: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class _Data:
    """How gradients are reduced. ``shard``: ranks of a shard group; ``low``: what FSDP casts to."""

    strategy: str = "manual"
    shard: int = 0
    replicas: int = 1
    low: Any = None


def recognised(
    seen: Seen, world_size: int, repeated: int, batch: int, collectives: Sequence[Collective]
) -> Recognised:
    """The options of the job.

    ``repeated``: number of the model's repeated modules; ``batch``: samples of a micro-step;
    ``collectives``: those of a step.
    """
    found = Recognised()
    words = found.words
    roots = list(seen.roots.values())
    trained = [p for m in roots for p in m.parameters() if p.requires_grad]
    data = _data_parallel(roots, seen)
    tp = _tensor_ranks(trained, data)
    stages = _pipeline(seen, words)
    if world_size > 1 or data.strategy not in ("manual",):
        words["strategy"] = data.strategy
    else:
        words["strategy"] = "single"
    ranks = world_size // max(1, tp * stages)
    if data.strategy == "hsdp" or 1 < data.shard < ranks:
        words["strategy"], words["shard_ranks"] = "hsdp", data.shard
    averaging, own = split(collectives, seen.held.gradients)
    if data.strategy == "manual" and world_size > 1:
        divided = tp * stages > 1
        words["strategy"] = "ddp" if divided else "manual"
        if ranks > 1 and not averaging:
            found.notes.append(
                f"the script averages no gradients over its {ranks} replicas, as "
                "DistributedDataParallel does: it is priced as if it did"
            )
        elif averaging and divided:
            found.notes.append("gradients that the script averages by hand are priced as DDP's")
    else:
        own = averaging + own
    context = [c for c in collectives if c.issuer == "context"]
    if context:
        words["cp"] = context[0].group_size
        words["cp_comm"] = "ring" if context[0].kind == "all-to-all" else "all-gather"
    found.exchanges = exchanges(own, ranks, max(1, seen.micro_steps_of_step), batch)
    found.notes += told(own, stages > 1)
    if tp > 1:
        words["tp"] = tp
        words["sequence_parallel"] = any(
            c.kind == "reduce-scatter" and c.phase == "forward" and c.group_size == tp
            for c in collectives
        )
    if data.strategy == "zero1":
        found.notes.append(
            "ZeroRedundancyOptimizer reduces whole gradients and broadcasts parameters one by one; "
            "it is priced as zero1, which scatters the reduced gradients and gathers parameters"
        )
    if data.strategy in ("zero2", "zero3", "hsdp"):
        words["software"] = "fsdp"
    words["precision"] = _precision(trained, seen.autocast, data)
    if seen.optimizers:
        words.update(_optimizer(seen.optimizers[0], found.notes))
    _recompute(seen, repeated, words)
    if stages == 1 and seen.micro_steps_of_step > 1:
        words["grad_accum"] = seen.micro_steps_of_step
    if seen.clips:
        words["grad_clip"] = True
    return found


def _data_parallel(roots: Iterable[nn.Module], seen: Seen) -> _Data:
    for root in roots:
        for module in root.modules():
            name = type(module).__name__
            if name == "DistributedDataParallel":
                is_zero = seen.wrapper == "ZeroRedundancyOptimizer"
                return _Data("zero1" if is_zero else "ddp")
            if name == "DataParallel":
                return _Data("dp")
            if name == "FullyShardedDataParallel":
                mixed = getattr(module, "mixed_precision", None)
                group = getattr(module, "process_group", None)
                return _Data(_FSDP1[module.sharding_strategy.name], group.size() if group else 0,
                             low=getattr(mixed, "param_dtype", None))  # fmt: skip
            sharded = any(c.__name__ == "FSDPModule" for c in type(module).__mro__)
            if sharded and (data := _of_fsdp2(module)):
                return data
    return _Data()


def _of_fsdp2(module: Any) -> _Data | None:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
    group = next((g for g in groups if g is not None), None)
    if group is None:
        return None
    mesh = group.mesh_info
    replicas = int(getattr(mesh, "replicate_mesh_size", 1))
    strategy = "hsdp" if replicas > 1 else "zero3"
    return _Data(strategy, int(mesh.shard_mesh_size), replicas, group.mp_policy.param_dtype)


def _tensor_ranks(trained: Iterable[Any], data: _Data) -> int:
    """Tensor-parallel ranks: the meshes' size beyond that over which FSDP shards."""
    sizes = [p.device_mesh.size() for p in trained if isinstance(p, DTensor)]
    of_data = max(1, data.shard * data.replicas) if data.strategy in ("zero3", "hsdp") else 1
    return max(1, max(sizes, default=1) // of_data)


def _pipeline(seen: Seen, words: dict[str, Any]) -> int:
    """Number of pipeline ranks; the options of the pipeline are added to ``words``."""
    if seen.schedule is None:
        return 1
    stages, schedule = seen.stages, seen.schedule
    ranks = int(stages[0].group_size)
    words["pp"] = ranks
    if stages[0].num_stages > ranks:
        words["vpp"] = stages[0].num_stages // ranks
    if kind := _SCHEDULES.get(type(schedule).__name__):
        words["schedule"] = kind
    words["grad_accum"] = int(schedule._n_microbatches) * seen.micro_steps_of_step
    return ranks


def _precision(trained: list[Any], autocast: str, data: _Data) -> str:
    width = max((p.dtype for p in trained), key=lambda d: d.itemsize, default=torch.float32)
    if width in _HALF:
        return f"{_HALF[width]}-true"
    if autocast:
        return f"amp-{autocast}"
    if data.low in _HALF:  # FSDP keeps the shards in fp32 and gathers them in 16 bit
        return _HALF[data.low]
    return "tf32" if torch.get_float32_matmul_precision() != "highest" else "fp32"


def _optimizer(optimizer: Any, notes: list[str]) -> dict[str, Any]:
    inner = getattr(optimizer, "optim", optimizer)
    name = type(inner).__name__.lower().replace("_", "")
    words: dict[str, Any] = {}
    if name == "sgd":
        words["optimizer"] = "sgd" if inner.defaults.get("momentum") else "sgd-plain"
    elif name in _OPTIMIZERS:
        words["optimizer"] = _OPTIMIZERS[name]
    else:
        words["optimizer"] = "adamw"
        notes.append(f"the optimizer {type(inner).__name__} is not known and priced as AdamW")
    if inner.defaults.get("fused"):
        words["optimizer_impl"] = "fused"
    elif inner.defaults.get("foreach") is False:
        words["optimizer_impl"] = "for-loop"
    return words


def _recompute(seen: Seen, repeated: int, words: dict[str, Any]) -> None:
    n = seen.last_checkpoints
    if n and repeated and n < repeated:
        words["recompute_layers"] = n
    words["recompute"] = "full" if n else "none"
