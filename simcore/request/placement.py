"""From degrees of parallelism to pipeline stages on a cluster, with every rule checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, get_args

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.paths import mesh_share
from simcore.request.context import (
    attending_frac,
    context_refused,
    elements,
    heads_of,
    mixers_of,
    turned,
)
from simcore.request.placed import LayerTraffic, Placed
from simcore.request.routing import expert_groups
from simcore.step.schedules import SCHEDULES, layout_violations, schedule_of
from simcore.strategy.cuts import cut_sizes, normalised, stages_told
from simcore.strategy.layout import (
    DEGREES,
    DISPATCHERS_CALLED,
    CpComm,
    Dispatcher,
    Layout,
)
from simcore.strategy.options.values import on_or_off
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Workload, weight_grad_numel
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.recompute import head_recomputed, offloaded, recomputed
from simcore.workload.resolve import ModelSource
from simcore.workload.sharding import (
    CUT_BY_COLUMNS,
    ONE_INPUT,
    TENSOR_SUMS,
    Stage,
    buffered,
    layer_counts,
    opposite_joined,
    pipeline_stages,
    sequence_parallel,
    tensor_overrides,
    tensor_sums,
    tied_numel,
)


def layout_of(options: Mapping[str, Any], problems: list[str] | None = None) -> Layout:
    """The layout that the options describe; degrees that are not given are 1.

    Where the size of every stage is given, their number sets pp. Unknown names are appended to
    ``problems`` if that is given, so that the rest of the layout can still be checked. Raises
    InvalidConfig, and UnknownName if ``problems`` is None.
    """
    degrees = {k: int(options[k]) for k in DEGREES if options.get(k) is not None}
    stages = normalised(str(options.get("stages") or ""))
    if "pp" not in degrees and (stated := stages_told(stages)) is not None:
        degrees["pp"] = stated
    sequence: bool | str | None = options.get("sequence_parallel")
    try:
        cut = sequence is None or on_or_off("sequence-parallel", sequence)
    except InvalidConfig as wrong:
        if problems is None:
            raise
        problems += wrong.violations
        cut = True

    def one_of(kind: str, names: Sequence[str], also: Mapping[str, str] | None = None) -> Any:
        """The named value of an option, by default its first; ``also``: other spellings."""
        name = str(options.get(kind) or names[0]).strip().lower()
        name = (also or {}).get(name, name)
        if name in names:
            return name
        error = UnknownName(kind.replace("_", "-"), name, names)
        if problems is None:
            raise error
        problems.append(str(error))
        return names[0]

    return Layout(
        **degrees,
        sequence_parallel=cut,
        schedule=one_of("schedule", tuple(SCHEDULES)),
        expert_tp=int(options.get("expert_tp") or 1),
        dispatcher=one_of("dispatcher", get_args(Dispatcher), DISPATCHERS_CALLED),
        cp_comm=one_of("cp_comm", get_args(CpComm)),
        stages=stages,
    )


#: Strategies that gather or reduce a layer's parameters or gradients in every micro-batch.
_EVERY_MICRO_BATCH = ("zero2", "zero3")
#: Default strategy of the data ranks where a layout divides the model: shards the optimizer only.
BESIDE_CUTS = "zero1"


def usual_strategy(own: str, layout: Layout) -> str:
    """The strategy where none is given: the model's own, unless tp or pp divides the model.

    With tp or pp it is Megatron's distributed optimizer (Narayanan et al. 2021;
    megatron/core/distributed). DeepSpeed's pipeline refuses ZeRO-2 and -3 (runtime/pipe/engine.py),
    and torchtitan does not shard weights again after a pipeline's forward (parallelize:
    reshard_after_forward).
    """
    if own not in _EVERY_MICRO_BATCH:
        return own
    return BESIDE_CUTS if max(layout.tp, layout.pp) > 1 else own


def strategy_note(named: str | None, own: str, usual: str) -> tuple[str, ...]:
    """A sentence where the default strategy is another than the model's own."""
    if named or own == usual:
        return ()
    return (f"strategy: {usual}, as Megatron uses with tp or pp; without these the model's {own}",)


def place(
    record: ModelSource,
    workload: Workload,
    cluster: ClusterSpec,
    strategy: Strategy,
    layout: Layout,
    overrides: Mapping[str, Scalar],
) -> Placed | None:
    """Stages and exchanges of a layout; None where the model is not divided.

    Raises InvalidConfig with every violation.
    """
    n_layers = layer_counts(workload)
    problems = layout_violations(layout, cluster.n_gpus, n_layers)
    if layout.trivial and not problems:
        return None
    if len({g.gpu.name for g in cluster.groups}) > 1:
        problems.append("tensor, pipeline, context and expert parallelism need GPUs of one type")
    if strategy.parallelism in ("dp", "manual"):
        problems.append(
            f"strategy {strategy.parallelism} cannot be combined with tp, pp, cp or ep: use ddp "
            "or zero1 to zero3"
        )
    problems += context_refused(record, layout, overrides)
    own: dict[str, Scalar] = {}
    try:
        own = _own_settings(record, layout, overrides)
    except InvalidConfig as err:
        problems += err.violations
    if problems:
        raise InvalidConfig(problems)
    part, config = workload, {}
    if isinstance(record, ModelRecord):
        config = record.settings(overrides)
        part = record.build(**{**overrides, **own}) if own else workload
    if part is not workload:
        part = recomputed(
            part,
            strategy.recompute_modules,
            strategy.recompute_layers,
            strategy.program.recompute.stops_early,
        )
        if strategy.recompute == "full" and strategy.program.recompute.full_includes_head:
            part = head_recomputed(part)
        part = offloaded(part, strategy.offload_layers, checkpointed=strategy.recompute == "full")
    if layout.sequence_parallel:
        part = sequence_parallel(part, layout.tp, bool(config.get("gathered_inputs")))
    heads, mixers = heads_of(record.name, config, layout), mixers_of(config, layout)
    again = _again_frac(strategy, n_layers)
    again = 1.0 if "core_attn" in strategy.recompute_modules else again
    if heads is not None and layout.cp > 1 and layout.cp_comm == "ulysses":
        part = turned(part, heads, strategy.recompute_modules, mixers)
    sums = tensor_sums(record.arch, config) if isinstance(record, ModelRecord) else TENSOR_SUMS
    part = _with_exchanges(part, layout, sums)
    layers = _layers(workload)
    sizes = cut_sizes(layout.stages, n_layers, layout.pp, strategy.program.pipeline.cut, config)
    hidden = max((b.boundary.high + b.boundary.low for b, _ in layers), default=0.0)
    routed = sum(n for b, n in layers if any(op.name.startswith("expert") for op in b.ops))
    column_grads_frac = _column_grads_frac(workload, strategy.recompute == "full")
    gathered_frac, bare_frac = strategy.precision.gathered_frac, 0.0
    if layout.sequence_parallel and (shared := _adapted_inputs(workload)):
        # each such input is gathered once, in 16 bit, and its gradient summed up once
        gathered_frac += (1.0 - gathered_frac) * shared / (2.0 * sums)
        bare_frac = shared / (sums * (1.0 + gathered_frac))
    gpus_per_node = max(g.gpus_per_node for g in cluster.groups)
    return Placed(
        layout=layout,
        gpus_per_node=gpus_per_node,
        part=part,
        stages=_stages(part, layout, sizes, strategy),
        traffic=LayerTraffic(
            hidden=hidden,
            context=elements(
                heads, layout, workload.tokens_per_sample, mixers, attending_frac(config)
            ),
            hidden_copies=float(config.get("top_k", 0) or 0),
            dispatched_frac=_dispatched_frac(config),
            width_bytes=float(strategy.precision.low_bytes),
            tensor_sums=sums,
            expert_rows=strategy.routing.rows(layout.ep, layout.dispatcher).sent,
            expert_groups=expert_groups(config),
            weights_frac=_weights_frac(config, layout, strategy, gpus_per_node),
        ),
        recompute_frac=_again_frac(strategy, n_layers) * _sums_again_frac(strategy, layout, sums),
        attention_again_frac=again,
        experts_again=strategy.recompute == "full" or "moe" in strategy.recompute_modules,
        overlap=strategy.overlap,
        expert_layers_frac=routed / sum(n for _, n in layers) if layers else 0.0,
        column_grads_frac=column_grads_frac,
        more_sums=_more_sums(layers, layout, strategy),
        ring_shares=_ring_shares(cluster),
        gathers_again=layout.sequence_parallel
        and layout.tp > 1
        and column_grads_frac > 0  # a frozen base needs no weight gradients
        and not config.get("gathered_inputs"),
        gathered_frac=gathered_frac,
        bare_frac=bare_frac,
        sends_whole=strategy.program.pipeline.sends_whole_output and not layout.sequence_parallel,
        # a rank that is fed from both ends holds both stages, and the table once
        tied_bytes=(layout.pp > 1 and schedule_of(layout).directions == 1)
        * strategy.precision.grad_bytes
        * float(tied_numel(part)),
    )


def _ring_shares(cluster: ClusterSpec) -> tuple[float, ...]:
    group = cluster.groups[0]
    used = group.gpus_per_node
    if not group.node.mesh_rings or used == 1:
        return ()
    shares = [mesh_share(group.node, n) for n in range(2, used + 1)]
    return (1.0, *(share / shares[-1] for share in shares))


def _own_settings(
    record: ModelSource, layout: Layout, overrides: Mapping[str, Scalar]
) -> dict[str, Scalar]:
    """Settings of one tensor and expert rank's part. Raises InvalidConfig with every violation."""
    if min(layout.tp, layout.ep, layout.expert_tp) < 1:
        return {}  # ``place`` reports the error in the layout
    if isinstance(record, ModelRecord):
        changed = record.model_copy(update={"config": {**record.config, **overrides}})
        return tensor_overrides(changed, layout.tp, layout.ep, layout.expert_tp)
    if layout.tp > 1 or layout.ep > 1:
        raise InvalidConfig([f"{record.name}: tensor parallelism needs a transformer record"])
    return {}


def _more_sums(layers: Sequence[tuple[Block, int]], layout: Layout, strategy: Strategy) -> int:
    """Sums over tensor ranks in backward beyond one for each input of column-parallel products."""
    if (
        not strategy.program.ranks.input_gradients_summed_apart
        or layout.sequence_parallel
        or not layers
    ):
        return 0
    names = {op.name.split(".")[-1] for op in layers[0][0].ops if weight_grad_numel(op)}
    return sum(len(names & set(of)) - 1 for of in ONE_INPUT if names & set(of))


def _layers(workload: Workload) -> list[tuple[Block, int]]:
    """(repeated layer, how often it runs) for each kind of layer."""
    times = Counter(workload.order)
    return [(b, times[i]) for i, b in enumerate(workload.blocks) if b.recomputable and times[i]]


@lru_cache(maxsize=256)
def _column_grads_frac(workload: Workload, again: bool) -> float:
    """Share of the layers' FLOP in a micro-step in weight gradients of column-parallel products."""
    found = whole = 0.0
    for block, times in _layers(workload):
        for op in block.ops:
            forward = sum(k.flop for k in op.fwd)
            whole += times * (forward * (2 if again else 1) + sum(k.flop for k in op.bwd))
            if weight_grad_numel(op) and op.name.split(".")[-1] in CUT_BY_COLUMNS:
                found += times * forward  # weight gradients have as many FLOP as forward
    return found / whole if whole else 0.0


@lru_cache(maxsize=256)
def _adapted_inputs(workload: Workload) -> float:
    """Average number of a layer's inputs that column-parallel products share with their adapters.

    A product that gathers its input piece by piece leaves adapters no whole input to read.
    Megatron-Core turns this off for them (TransformerConfig.tp_comm_overlap_disable_qkv; MLPerf's
    train.py of Llama 2 70B sets it) and gathers in 16 bit, which adapters read (Transformer Engine,
    module/layernorm_linear.py: return_layernorm_output_gathered).
    """
    found = layers = 0
    for block, times in _layers(workload):
        adapted = {op.name.removesuffix(".lora_a").split(".")[-1] for op in block.ops
                   if op.name.endswith(".lora_a")}  # fmt: skip
        heads = adapted & {"qkv", "in_proj"} | {of[0] for of in ONE_INPUT if adapted & {*of}}
        found += times * len(heads | adapted & {"gate_up"})
        layers += times
    return found / layers if layers else 0.0


@lru_cache(maxsize=256)
def _with_exchanges(part: Workload, layout: Layout, sums: float) -> Workload:
    """The part with the number of collectives that each layer's passes issue among tensor ranks."""
    if layout.tp == 1:
        return part
    each = round(sums * (2 if layout.sequence_parallel else 1))
    return part.replace(
        blocks=tuple(replace(b, exchanges=each if b.recomputable else 0) for b in part.blocks)
    )


def _stages(
    part: Workload, layout: Layout, sizes: tuple[int, ...] | None, strategy: Strategy
) -> tuple[Stage, ...]:
    """The stage that each pipeline rank holds; fed from both ends, also the opposite rank's."""
    both_ends = schedule_of(layout).directions > 1
    stages = pipeline_stages(part, layout.pp, sizes, one_table=both_ends)
    library = strategy.program
    if strategy.zero_stage < 3 and any(b.recomputable for b in part.blocks):
        stages = buffered(
            stages,
            library.pipeline.received_copies,
            library.pipeline.sent_copies,
            library.pipeline.logits_bytes,
        )
    return opposite_joined(stages) if both_ends else stages


def _sums_again_frac(strategy: Strategy, layout: Layout, sums: float) -> float:
    """Share of a recomputed layer's sums over tensor ranks that recompute repeats.

    Where recompute stops early it omits the last product's sum; with sequence parallelism half of
    that (the gather) has been repeated by then.
    """
    if not strategy.program.recompute.stops_early:
        return 1.0
    return max(0.0, 1.0 - (0.5 if layout.sequence_parallel else 1.0) / sums)


def _dispatched_frac(config: Mapping[str, Scalar]) -> float:
    """Width of a row sent to an expert over the model's width: experts may work in a latent space.

    Megatron-Core, moe_layer.py: fc1_latent_proj runs before dispatch, fc2_latent_proj after
    combine.
    """
    latent = int(config.get("expert_latent", 0) or 0)
    return latent / int(config["hidden"]) if latent else 1.0


def _weights_frac(
    config: Mapping[str, Scalar], layout: Layout, strategy: Strategy, gpus_per_node: int
) -> float:
    """Bytes of fp32 routing weights over those of the row that they accompany.

    Weights go where the tokens go, and their gradients come back with the tokens'. HybridEP sends
    the weights of all experts of an NVLink domain, most of them zero (DeepEP, docs/
    Hybrid-EP_Implementation.md). DeepEP sends those of the token's choices, and on the way there
    their int64 indices (Megatron-Core, fused_a2a.py). A plain exchange sends the row's own weight
    where rows are weighted early (token_dispatcher.py, all_to_all of permuted_probs).
    """
    experts, hidden = (int(config.get(word, 0) or 0) for word in ("experts", "hidden"))
    if layout.ep == 1 or not experts or not hidden:
        return 0.0
    row = hidden * _dispatched_frac(config) * strategy.precision.low_bytes
    if layout.dispatcher == "hybridep":
        here = min(1.0, gpus_per_node / (layout.ep * layout.expert_tp))
        return FP32_BYTES * experts * here / row
    if layout.dispatcher == "deepep":
        chosen = int(config.get("top_k", 0) or 0)
        return (FP32_BYTES + 0.5 * INT64_BYTES) * chosen / row  # 0.5: indices go one way only
    return FP32_BYTES / row if config.get("weighed_early") else 0.0


def _again_frac(strategy: Strategy, n_layers: int) -> float:
    """Share of the layers whose whole forward recompute repeats, exchanges included."""
    if "layer" in strategy.recompute_modules:
        return min(1.0, (strategy.recompute_layers or n_layers) / max(1, n_layers))
    return float(strategy.recompute == "full")
