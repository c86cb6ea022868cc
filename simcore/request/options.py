"""The options of a job as a typed dictionary, for calls within the package and for type checkers.

Their meaning is in the option table (``strategy.options``); ``tests/strategy/options`` compares its
names and types with these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from simcore.hardware.profile import Profile


class Options(TypedDict, total=False):
    """The options of a job; one that is missing or None takes its default."""

    strategy: str | None
    micro_batch: int | str | None
    grad_accum: int | None
    precision: str | None
    recompute: str | None
    recompute_modules: str | None
    recompute_layers: int | None
    main_grads: str | None
    optimizer: str | None
    offload: str | None
    network: str | None
    nccl_algo: str | None
    nccl_proto: str | None
    node: str | None
    nnodes: int | None
    nproc_per_node: int | None
    seq_len: int | None
    resolution: str | None
    frames: int | None
    layout: str | None
    attention: str | None
    issuer: str | None
    compile: bool | str | None
    lora_rank: int | None
    lora_targets: str | None
    quantised_base: str | None
    calibration: str | Path | None
    profile: Profile | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    stages: str | None
    sequence_parallel: bool | str | None
    schedule: str | None
    overlap: str | None
    shard_ranks: int | None
    prefetch_blocks: int | None
    reuse_numel: int | None
    gather_tensors: bool | str | None
    expert_tp: int | None
    dispatcher: str | None
    cp_comm: str | None
    expert_imbalance: float | str | None
    expert_capacity: float | str | None
    expert_padding: bool | str | None
    global_batch: int | None
    shares: str | None
    inputs: Sequence[str] | str | None
    settings: Mapping[str, Any] | Sequence[str] | str | None
    grad_clip: bool | str | None
    optimizer_impl: str | None
    bucket_numel: int | None
    eager_kernels: bool | str | None
    launch_blocking: bool | str | None
    growing_segments: bool | str | None
    fp8_params: bool | str | None
    offload_layers: int | None
    software: str | None
    launch: str | Path | None
