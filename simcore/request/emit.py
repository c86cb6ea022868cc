"""A predicted job written as the launch file of a training program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.request.placed import Placed
from simcore.request.resolved import Request, as_given, main_grads
from simcore.strategy.cuts import written
from simcore.strategy.dialects import Job, emit
from simcore.strategy.dialects.runnable import folder_of
from simcore.strategy.layout import DEFAULT_SCHEDULE, DEGREES, default_overlap
from simcore.strategy.options import OPTIONS, shown
from simcore.strategy.programs.mechanisms import PLAIN
from simcore.strategy.strategy import Strategy

#: Options that the program reading the file decides, with their default.
_OF_PROGRAM = {"software": PLAIN.name, "issuer": "torch"}
#: Options of adapters, nothing to set where all weights are trained.
_OF_ADAPTERS = ("lora_rank", "lora_targets", "quantised_base")


@dataclass(frozen=True)
class LaunchFile:
    """``text`` of the file; ``left``: options of the job that the format cannot express.

    ``implied``: what the program that reads the file does on its own, other than the job predicted.
    ``files``: a folder that starts the job, by the files' names: ``launch.sh`` and what it needs.
    """

    dialect: str
    text: str
    left: tuple[str, ...]
    implied: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def launch_file(
    dialect: str,
    request: Request,
    seq_len: int | None,
    attention: str | None = None,
    shape: Mapping[str, Any] | None = None,
) -> LaunchFile:
    """A request as a launch file.

    ``seq_len``: sequence length, None where the model has none; ``attention``: attention kernel
    that the request names, if any; ``shape``: settings of a language model. Raises UnknownName, or
    InvalidConfig with everything that the format cannot express.
    """
    strategy, cluster = request.strategy, request.cluster
    per_node = {g.gpus_per_node for g in cluster.groups}
    if len(per_node) > 1:
        counts = ", ".join(map(str, sorted(per_node)))
        raise InvalidConfig(
            [f"--emit {dialect} is for nodes with equal counts of GPUs, not {counts} in {cluster}"]
        )
    usual = default_overlap(request.placed.layout.vpp if request.placed else None)
    job = Job(
        said={w: request.options.get(w) for w in OPTIONS.in_launch() if as_given(OPTIONS[w])},
        model=request.workload.name,
        shape=shape or {},
        strategy=strategy.parallelism,
        micro_batch=request.micro_batch,
        grad_accum=request.grad_accum,
        precision=strategy.precision.name,
        **_recompute(strategy),
        optimizer=strategy.optimizer.name,
        offload=str(replace(strategy.offload, blocks=0)),
        nnodes=cluster.n_nodes,
        nproc_per_node=per_node.pop(),
        seq_len=seq_len,
        grad_clip=strategy.grad_clip,
        **_degrees(request.placed),
        expert_capacity=strategy.routing.capacity,
        expert_padding=strategy.routing.padding if strategy.routing.capacity else None,
        shard_ranks=strategy.shard_ranks or None,
        attention=attention,
        compile=request.compiled or None,
        growing_segments=request.growing_segments or None,
        offload_layers=strategy.offload_layers * (strategy.offload.activations == "none") or None,
        fp8_params=strategy.fp8_params or None,
        update_in_backward=strategy.updates_in_backward or None,
        software=None if strategy.program is PLAIN else strategy.program.name,
        issuer=None if strategy.issuer == "torch" else strategy.issuer,
        overlap=None if strategy.overlap == usual else str(strategy.overlap),
        main_grads="fp32" if main_grads(request) == "fp32" else None,
        bucket_numel=strategy.buckets.zero_numel if strategy.zero_stage in (1, 2) else None,
    )
    emitted = emit(dialect, job)
    words = {**job.words(), "model": job.model}
    none = () if words.get("lora_rank") else _OF_ADAPTERS
    outside = _of_no_file(request)
    unset = [w for w in emitted.left if w in words and w not in (*none, *outside)]
    left = [f"{w.replace('_', '-')} {shown(words[w])}" for w in unset]
    left += [f"{word} {value}" for word, value in outside.items()]
    implied = [
        f"{word} {emitted.program.get(word, plain)}"
        for word, plain in {**_OF_PROGRAM, "overlap": str(usual)}.items()
        if word not in emitted.left and emitted.program.get(word, plain) != words.get(word, plain)
    ]
    folder = folder_of(dialect, job)
    return LaunchFile(dialect, emitted.text, tuple(left), tuple(implied), folder)


def _of_no_file(request: Request) -> dict[str, str]:
    """Options that no format can express: environment variables and settings inside scripts."""
    s = request.strategy
    found = {
        "nccl-algo": str(s.nccl.algorithms),
        "nccl-proto": str(s.nccl.protocols),
        "offload": str(s.offload) if s.offload.blocks else "",
        "launch-blocking": "on" if s.launch_blocking else "",
        "expert-imbalance": "" if s.routing.imbalance == 1.0 else f"{s.routing.imbalance:g}",
        "shares": request.shares_text,
    }
    return {word: value for word, value in found.items() if value}


def _recompute(strategy: Strategy) -> dict[str, Any]:
    """The recompute options; recompute of whole layers, the first few, is written as ``full``."""
    if strategy.recompute_modules == ("layer",):
        found: dict[str, Any] = {"recompute": "full"}
    else:
        found = {"recompute": strategy.recompute}
        if strategy.recompute_modules:
            found["recompute_modules"] = ",".join(strategy.recompute_modules)
    if strategy.recompute_layers:
        found["recompute_layers"] = strategy.recompute_layers
    return found


def _degrees(placed: Placed | None) -> dict[str, Any]:
    """The degrees above 1, and the options of tensor, pipeline, context and expert ranks."""
    if placed is None:
        return {}
    layout = placed.layout
    found: dict[str, Any] = {w: n for w in DEGREES if (n := getattr(layout, w)) > 1}
    if "tp" in found:
        found["sequence_parallel"] = layout.sequence_parallel
    sizes = [s.n_layers for s in placed.stages]
    if len(set(sizes)) > 1:  # programs divide layers evenly unless stage sizes are given
        found["stages"] = written(sizes)
    if layout.schedule != DEFAULT_SCHEDULE:
        found["schedule"] = layout.schedule
    if layout.vpp_group > layout.pp:
        found["vpp_group"] = layout.vpp_group
    if layout.deferred_heads:
        found["deferred_heads"] = layout.deferred_heads
    if "ep" in found and "tp" in found:
        found["expert_tp"] = layout.expert_tp
    if "cp" in found and layout.cp_comm != "ring":
        found["cp_comm"] = layout.cp_comm
    if "ep" in found and layout.dispatcher != "alltoall":
        found["dispatcher"] = layout.dispatcher
    return found
