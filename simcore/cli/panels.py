"""Options of a job under headings, in the help of commands that have many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

#: Commands of fewer options list them as they are.
FEW = 25
OWN = "Options"
#: Heading -> parameters, in this order; what none names is the command's own, ``OWN``.
PANELS: dict[str, tuple[str, ...]] = {
    "Job": (
        "model", "inputs", "gpus", "strategy", "zero", "micro_batch", "grad_accum", "global_batch",
        "precision", "optimizer", "recompute", "launch",
    ),
    OWN: (),
    "Model": (
        "settings", "seq_len", "resolution", "frames", "layout", "attention", "lora_rank",
        "lora_targets", "quantised_base", "compile",
    ),
    "Parallelism": (
        "tp", "sequence_parallel", "pp", "vpp", "stages", "schedule", "cp", "cp_comm", "ep",
        "expert_tp", "dispatcher", "expert_imbalance", "expert_capacity", "expert_padding",
        "shard_ranks", "overlap", "shares",
    ),
    "Memory": (
        "recompute_modules", "recompute_layers", "offload", "offload_layers", "main_grads",
        "fp8_params", "growing_segments", "software",
    ),
    "Cluster and software": (
        "network", "node", "nnodes", "nproc_per_node", "nccl_algo", "nccl_proto", "issuer",
        "optimizer_impl", "grad_clip", "launch_blocking", "calibration",
    ),
    "For experts": (
        "prefetch_blocks", "reuse_numel", "gather_tensors", "bucket_numel", "eager_kernels",
    ),
}  # fmt: skip
_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}


def in_panels(params: Iterable[Any]) -> Iterator[tuple[str, list[Any]]]:
    """(heading, its parameters) of a command; one heading where it has few."""
    params = list(params)
    if len(params) < FEW:
        yield OWN, params
        return
    for panel, names in PANELS.items():
        found = [p for p in params if _PANEL_OF.get(p.name, OWN) == panel]
        yield panel, sorted(found, key=lambda p: names.index(p.name)) if names else found
