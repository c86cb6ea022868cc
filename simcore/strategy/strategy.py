"""A strategy: how the work is divided over ranks, and what each rank keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, Literal, get_args

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES, MIB
from simcore.strategy.layout import BALANCED, DEFAULT, FREE, Allowed, Overlap, Routing
from simcore.strategy.optimizers import OPTIMIZERS, Optimizer, StepImpl
from simcore.strategy.precision import PRECISIONS, OffloadTarget, Precision
from simcore.strategy.programs.mechanisms import ISSUERS, PLAIN, Issuer, Program

Parallelism = Literal["dp", "manual", "ddp", "zero1", "zero2", "zero3"]
Recompute = Literal["none", "selective", "full"]


#: Parts of a layer that graphs may hold. ``attention``: or the mixer in its place. ``routing``: all
#: between attention and the experts, and the experts that every token passes.
LayerPart = Literal["attention", "routing"]
_REPLAYED: Mapping[Issuer, tuple[LayerPart, ...]] = {
    "megatron_graphs": ("attention", "routing"), "megatron_routing_graphs": ("routing",),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Offload:
    """Where optimizer state, parameters and saved activations are stored if not on the device.

    ``blocks``: repeated blocks of a frozen base whose weights are in host memory. Each pass
    exchanges them with those of as many blocks that it is done with (block swapping). True where
    state is offloaded: optimizer state, parameters or blocks.
    """

    optimizer: OffloadTarget = "none"
    params: OffloadTarget = "none"
    activations: OffloadTarget = "none"
    blocks: int = 0

    def __bool__(self) -> bool:
        return self.optimizer != "none" or self.params != "none" or self.blocks > 0

    def __str__(self) -> str:
        stored = [(f.name, getattr(self, f.name)) for f in fields(self)]
        parts = [f"{what}:{where}" for what, where in stored if where not in ("none", 0)]
        return ",".join(parts) or "none"


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """Buffers in which gradients are reduced together.

    ``cap_bytes``, ``first_bytes``: size of DDP's buckets and of the first one (torch's defaults);
    ``views``: gradients are views of them (gradient_as_bucket_view). ``wraps_alone``: DDP wraps the
    model on a single rank too (``wraps_on_one_gpu``); most scripts wrap only under torchrun.
    ``zero_numel``: elements of a bucket of ZeRO-1 and 2 (default of DeepSpeed's
    ``reduce_bucket_size``).
    """

    cap_bytes: int = 25 * MIB
    first_bytes: int = MIB
    views: bool = False
    wraps_alone: bool = True
    zero_numel: int = 500_000_000


@dataclass(frozen=True, kw_only=True)
class NcclLimits:
    """The algorithms and protocols that a job allows NCCL (NCCL_ALGO, NCCL_PROTO), and its release.

    ``release``: () where it is not given.
    """

    algorithms: Allowed = FREE
    protocols: Allowed = FREE
    release: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.algorithms or self.protocols)


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One way to run a job. Batch sizes are not included: they vary over the configuration axis.

    ``recompute_modules``: modules that run again under selective recompute
    (``workload.recompute``), in the first ``recompute_layers`` layers (0: in all).
    ``prefetch_blocks``: blocks ahead for which ZeRO-3 gathers parameters. ``overlap``:
    communication that hides under compute. ``shard_ranks``: number of neighbouring ranks over
    which ZeRO shards, with replicas of the shard group beyond (HSDP, hybrid ZeRO); 0: over all
    ranks. ``reuse_numel``: parameters gathered for recompute are kept for its backward if at
    most this many elements are used in between; 0: always kept. ``gather_tensors``: ZeRO-3
    gathers and reduces each tensor separately instead of a whole block. ``fp8_copies``: copies
    of the layers' weights that are stored and gathered in 8 bits (Megatron-Core's
    --fp8-param-gather), 2 where products also need them transposed; 0: none.
    ``offload_layers``: number of first layers whose activations are kept on the host.
    ``expert_ranks``: data ranks over which one set of experts is divided, from the layout;
    ``routing``: how unevenly tokens are routed to experts. ``program``: the training program,
    with its temporaries and copies. ``issuer``: the program that issues kernels;
    ``launch_blocking``: the host waits for each kernel to end. ``compiled``: torch.compile has
    joined operators. ``waits_for_gradients``: it issues the update once backward has ended on the
    device. ``nccl``: restrictions on NCCL's
    choice. ``updates_in_backward``: each parameter is updated, and its gradient freed, as soon as
    backward has made it.
    """

    parallelism: Parallelism = "ddp"
    precision: Precision
    optimizer: Optimizer
    recompute: Recompute = "none"
    recompute_modules: tuple[str, ...] = ()
    recompute_layers: int = 0
    offload: Offload = Offload()
    ema: bool = False
    updates_in_backward: bool = False
    grad_clip: bool = False
    step_impl: StepImpl = "foreach"
    ema_impl: StepImpl = "for-loop"
    buckets: Buckets = Buckets()
    prefetch_blocks: int = 1
    reuse_numel: int = 0
    overlap: Overlap = DEFAULT
    shard_ranks: int = 0
    gather_tensors: bool = False
    fp8_copies: int = 0
    offload_layers: int = 0
    expert_ranks: float = 1.0
    routing: Routing = BALANCED
    program: Program = PLAIN
    issuer: Issuer = "torch"
    launch_blocking: bool = False
    compiled: bool = False
    waits_for_gradients: bool = True
    nccl: NcclLimits = NcclLimits()

    def __hash__(self) -> int:
        """Of what mostly differs: strategies are keys of many caches."""
        ranks = self.shard_ranks, self.expert_ranks
        how = self.parallelism, self.recompute, self.recompute_modules, self.optimizer.name
        return hash((*how, *ranks, self.precision, self.program, self.issuer))

    @property
    def eager(self) -> bool:
        """Whether the host issues PyTorch's operators one by one."""
        return self.issuer == "torch" and not self.compiled

    @property
    def replayed(self) -> tuple[LayerPart, ...]:
        """Parts of each layer whose kernels a CUDA graph replays."""
        return _REPLAYED.get(self.issuer, ())

    @property
    def fp8_params(self) -> bool:
        """Whether the layers' weights are stored and gathered in 8 bits."""
        return self.fp8_copies > 0

    @cached_property
    def zero_stage(self) -> int:
        """ZeRO stage; 0 where nothing is sharded."""
        return int(self.parallelism[4]) if self.parallelism.startswith("zero") else 0

    def unwrapped(self, n_gpus: int) -> bool:
        """Whether the job is one process whose model is not wrapped in DDP."""
        return n_gpus == 1 and self.parallelism == "ddp" and not self.buckets.wraps_alone

    @property
    def ema_bytes(self) -> int:
        """Bytes of the moving average of a parameter: a copy of the module, or of fp32 masters."""
        p = self.precision
        return self.ema * (p.param_bytes if p.narrow_state else FP32_BYTES)

    @property
    def keeps_grads(self) -> bool:
        """Whether gradients exist at every moment of a step, also before backward."""
        return self.program.gradients.zeroed_between_steps and self.zero_stage == 0

    @property
    def wide_shards(self) -> bool:
        """Whether shards of weights and gradients are fp32 while products read 16 bit.

        FSDP gathers a 16-bit copy of an fp32 shard and converts what it reduced to the shard's
        width (_fully_shard/_fsdp_collectives.py, foreach_reduce: _to_dtype_if_needed(reduce_output,
        orig_dtype); fsdp/_runtime_utils.py, _cast_grad_to_param_dtype). Accelerate converts trained
        weights to fp32 before it wraps them (accelerator.py, fsdp2_prepare_model; prepare_model).
        """
        p = self.precision
        how = self.program.fsdp
        fsdp = (how.units is not None or p.main_grads) and not how.keeps_low_shards
        return self.zero_stage >= 3 and bool(p.master_bytes) and fsdp

    @property
    def kept_grad_bytes(self) -> int:
        """Bytes an element of the gradients that the update reads, before any fp32 copy."""
        return self.precision.master_bytes if self.wide_shards else self.precision.grad_bytes

    @property
    def early_grads(self) -> bool:
        """Whether all gradients exist before a step's only backward, in permanent buffers.

        Not with FSDP: it creates a shard's gradient when that layer's gradients are reduced.
        """
        return self.keeps_grads or (self.precision.main_grads and not self.reduces_apart)

    @property
    def reduces_apart(self) -> bool:
        """Whether shards of gradients are allocated on a separate stream, as in FSDP.

        FSDP reduces on its own stream (_fully_shard/_fsdp_collectives.py, foreach_reduce;
        fsdp/_runtime_utils.py, _reduce_grad). Tensors of other streams cannot use blocks freed
        there, so the allocator's reserved memory includes them at every moment.
        """
        return self.zero_stage >= 3 and self.program.fsdp.units is not None

    @property
    def widens_gradients(self) -> bool:
        """Whether an update on the device copies 16-bit gradients to fp32 for master weights."""
        p = self.precision
        copied = bool(p.master_bytes) and p.grad_bytes < FP32_BYTES and not self.wide_shards
        return (
            copied
            and self.offload.optimizer == "none"
            and not self.program.optimizer_state.master_lower_halves
        )

    def violations(self, n_nodes: int, n_ranks: int, n_types: int) -> list[str]:
        """Every rule that this strategy breaks on such a cluster; ``n_types``: GPU types."""
        found = []
        if self.parallelism == "dp" and n_nodes > 1:
            found.append(
                f"strategy dp (DataParallel) is one process on one node, not {n_nodes} nodes: "
                "use ddp"
            )
        if self.parallelism == "dp" and n_types > 1:
            found.append("strategy dp (DataParallel) needs GPUs of one type: use ddp")
        if self.offload.params != "none" and self.zero_stage < 3:
            found.append(f"offload of params needs zero3, not {self.parallelism}")
        if self.offload.optimizer != "none" and self.zero_stage < 1:
            found.append(f"offload of the optimizer needs zero1 to zero3, not {self.parallelism}")
        if self.updates_in_backward and self.zero_stage < 3 and n_ranks > 1:
            found.append(
                "update-in-backward on several GPUs needs zero3: gradients are gone before they "
                f"are reduced under {self.parallelism}"
            )
        if self.updates_in_backward and self.grad_clip:
            found.append("update-in-backward cannot clip gradients by their norm: --grad-clip off")
        if self.updates_in_backward and self.precision.main_grads:
            found.append("update-in-backward has no buffer of main gradients: --main-grads weights")
        if self.updates_in_backward and self.offload.optimizer != "none":
            found.append("update-in-backward needs the optimizer on the GPU: leave --offload out")
        if self.offload.blocks and self.offload.params != "none":
            found.append("give offload of params or of blocks, not both")
        if self.offload.blocks and self.zero_stage == 3 and n_ranks > 1:
            found.append(f"offload of blocks needs whole copies of them, not {self.parallelism}")
        if self.shard_ranks and self.zero_stage < 1:
            found.append(f"shard-ranks needs zero1 to zero3, not {self.parallelism}")
        elif self.shard_ranks and (self.shard_ranks < 1 or n_ranks % self.shard_ranks):
            found.append(f"shard-ranks={self.shard_ranks} does not divide {n_ranks} ranks")
        return found


#: zero3 within each node, with replicas across nodes (torch.distributed.fsdp, HYBRID_SHARD).
HYBRID = "hsdp"
#: One process on one GPU without a wrapper: ``ddp`` without its gradient buckets.
SINGLE = "single"
#: Strategies for several GPUs: the values of ``--strategy all`` in a sweep.
STRATEGIES: tuple[str, ...] = (*get_args(Parallelism), HYBRID)
#: Values of ``--strategy``.
STRATEGY_NAMES: tuple[str, ...] = (*STRATEGIES, SINGLE)
#: torch's names of strategies (torch.distributed.fsdp, ShardingStrategy; fully_shard is FSDP2).
TORCH_NAMES: Mapping[str, str] = {
    "dataparallel": "dp", "distributeddataparallel": "ddp", "fsdp": "zero3", "fsdp2": "zero3",
    "fullshard": "zero3", "fullyshard": "zero3", "shardgradop": "zero2", "hybridshard": HYBRID,
}  # fmt: skip


#: Those that are suggested for an unknown name.
_TOLD_NAMES: Mapping[str, str] = {n: TORCH_NAMES[n] for n in ("fsdp", "fsdp2")}


def parse_offload(text: str) -> Offload:
    """Offload from ``none``, ``optimizer``, ``optimizer:nvme``, ``blocks:18`` and so on.

    ``cpu`` is pinned memory of the near NUMA node, ``cpu-far`` that of the other socket. Raises
    UnknownName, InvalidConfig.
    """
    chosen: dict[str, Any] = {}
    text = text.strip().lower()
    if text in ("", "none"):
        return Offload()
    targets = [t for t in get_args(OffloadTarget) if t != "none"]
    for part in text.replace("+", ",").split(","):
        what, _, where = part.strip().replace("=", ":").partition(":")
        if what == "blocks":
            if not (where.isdecimal() and int(where)):
                raise InvalidConfig([f"offload {part.strip()!r}: write blocks:18 for 18 blocks"])
            chosen[what] = int(where)
            continue
        where = where or "cpu"
        if what in ("cpu", "nvme", "cpu-far") and where == "cpu":
            what, where = "optimizer", what
        if what == "parameters":
            what = "params"
        if what not in (names := [f.name for f in fields(Offload)]):
            raise UnknownName("offload", what, [*names, "none"])
        # activations: copies in each layer, to pinned memory near the device
        allowed = ["cpu"] if what == "activations" else targets
        if where not in allowed:
            raise UnknownName("offload target", where, allowed)
        chosen[what] = where
    if not chosen:
        raise InvalidConfig([f"offload {text!r} names nothing: try optimizer:cpu"])
    return Offload(**chosen)


def strategy_named(name: str) -> str:
    """One of ``STRATEGY_NAMES``, from its name or torch's name. Raises UnknownName."""
    folded = folded_strategy(name)
    if folded not in STRATEGY_NAMES:
        raise UnknownName("strategy", name, STRATEGY_NAMES, aliases=_TOLD_NAMES)
    return folded


def folded_strategy(name: str) -> str:
    """simcore's name of a strategy that may have torch's name; an unknown name in lower case."""
    plain = name.strip().lower().replace("-", "").replace("_", "")
    return TORCH_NAMES.get(plain, plain)


def parallelism_named(name: str) -> Parallelism:
    """The parallelism of a strategy: dp, manual, ddp, zero1, zero2 or zero3.

    hsdp is a zero3, single a ddp. Raises UnknownName.
    """
    found = strategy_named(name)
    return {HYBRID: "zero3", SINGLE: "ddp"}.get(found, found)  # type: ignore[return-value]


def hybrid(name: str) -> bool:
    """Whether a strategy's name stands for hybrid sharding; unknown names do not."""
    return folded_strategy(name) == HYBRID


def wraps_on_one_gpu(name: str | None, script_wraps: bool) -> bool:
    """Whether DistributedDataParallel wraps the model even on a single GPU.

    ``name``: the strategy that the user names, None for none. Without a name it is what the model's
    own script does (``script_wraps``): most wrap only under torchrun, some always.
    """
    return script_wraps if name is None else folded_strategy(name) != SINGLE


def single_refused(name: str | None, n_gpus: int) -> list[str]:
    """The error for ``single`` on several GPUs; empty where there is none."""
    if name is None or folded_strategy(name) != SINGLE or n_gpus == 1:
        return []
    return [f"strategy single is one process on one GPU, not {n_gpus} GPUs: use ddp"]


def node_shard_ranks(gpus_per_node: Collection[int], n_nodes: int, tp: int) -> int:
    """Number of ranks over which ``hsdp`` shards: the data ranks of a node; 0 (all) for one node.

    torch's default groups are the devices of a node (``_init_intra_and_inter_node_groups``); tensor
    ranks are assigned first, as everywhere. Raises InvalidConfig.
    """
    if len(set(gpus_per_node)) > 1:
        counts = ", ".join(map(str, sorted(set(gpus_per_node))))
        raise InvalidConfig(
            [f"strategy hsdp needs nodes of equally many GPUs, not {counts}: use zero3"]
        )
    here = max(gpus_per_node) // tp
    if n_nodes == 1:
        return 0
    if here < 2:
        raise InvalidConfig(
            [f"strategy hsdp shards within a node, where tp={tp} leaves one rank: use ddp or zero3"
             if tp > 1 else "strategy hsdp shards within a node of several GPUs: use ddp or zero3"]
        )  # fmt: skip
    return here


def issuer_named(name: str) -> Issuer:
    """``name`` if it is a known issuer (torch, megatron, graph, ...). Raises UnknownName."""
    if name not in ISSUERS:
        raise UnknownName("issuer", name, ISSUERS)
    return name


__all__ = [
    "OPTIMIZERS",
    "PRECISIONS",
    "Offload",
    "Parallelism",
    "Strategy",
    "parallelism_named",
    "parse_offload",
    "strategy_named",
]
