"""From plain words to a request: names looked up, defaults taken and listed, rules checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, get_args

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.engine.context import context_told
from simcore.engine.edge import largest_batch
from simcore.engine.evaluate import Loading
from simcore.engine.knob_models import unheeded
from simcore.engine.options import Options
from simcore.engine.placed import Placed
from simcore.engine.placement import layout_of, place, strategy_told, usual_strategy
from simcore.engine.resolved import Request
from simcore.engine.routing import routing_of, routing_told, settings_of
from simcore.engine.sizes import name_of, overrides_of
from simcore.engine.training_library import Library, library_of
from simcore.engine.words import inputs_of, on_or_off, with_files, word_problems
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.profile import load_profile
from simcore.strategy.by_shape import fitted
from simcore.strategy.cuts import AUTO
from simcore.strategy.layout import Layout
from simcore.strategy.nccl import FREE, parse_algorithms, parse_protocols
from simcore.strategy.overlap import parse_overlap
from simcore.strategy.precision import OPTIMIZERS, PRECISIONS, with_main_grads, with_remainders
from simcore.strategy.routing import EVEN
from simcore.strategy.software import PLAIN
from simcore.strategy.strategy import (
    Recompute,
    Strategy,
    hybrid,
    issuer_named,
    node_shard_ranks,
    parallelism_named,
    parse_offload,
    step_impl_named,
)
from simcore.workload.graph import Workload
from simcore.workload.models import ModelRecord
from simcore.workload.recompute import DEFAULT_MODULES, modules_named, offloaded, recomputed
from simcore.workload.resolve import ModelSource, model_of

if TYPE_CHECKING:
    from simcore.engine.launch import Launched

#: ``micro_batch="max"`` looks for the largest batch that fits up to this.
MAX_BATCH = 4096


def make_request(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    **options: Unpack[Options],
) -> Request:
    """Resolve names and defaults. Raises with every violation found."""
    options = cast("Options", with_files(options))
    problems = word_problems(options, Options)
    if not isinstance(gpus, str | ClusterSpec):
        problems.append(f"gpus must be text such as 4x8xA6000ada, not {gpus!r:.60}")
    if problems:
        raise InvalidConfig(problems)
    found: dict[str, Any] = {}

    def attempt(key: str, make: Callable[[], object]) -> None:
        try:
            found[key] = make()
        except InvalidConfig as err:
            problems.extend(err.violations)
        except UsageError as err:
            problems.append(str(err))

    if options.get("launch") is not None:
        attempt("launched", lambda: _launched(str(gpus), options))
    launched: Launched | None = found.get("launched")
    if launched is not None:
        problems.extend(launched.problems)
        options = cast("Options", launched.options)
    inputs = inputs_of(options)
    attempt("record", lambda: model_of(model, inputs))
    attempt("cluster", lambda: _cluster(gpus, options))
    record: ModelSource | None = found.get("record")
    if launched is not None:
        options = cast("Options", launched.heeded(record))
    defaults: list[str] = []

    def chosen(flag: str, value: Any, fallback: Any) -> Any:
        if value is not None:
            return value
        defaults.append(f"{flag} {fallback}")
        return fallback

    t = record.training if record else None
    unknown: list[str] = []  # said once the rest of the layout can be judged
    layout = layout_of(options, unknown)
    attempt(
        "library",
        lambda: library_of(
            options, record, layout, launched.launch.dialect if launched is not None else ""
        ),
    )
    library: Library = found.get("library", Library(PLAIN))
    options = cast("Options", library.words(options))
    usual = usual_strategy(t.strategy if t else "ddp", layout)
    attempt(
        "parallelism",
        lambda: parallelism_named(chosen("strategy", options.get("strategy"), usual)),
    )
    attempt("shard_ranks", lambda: _shard_ranks(options, found.get("cluster"), layout))
    attempt(
        "precision",
        lambda: with_main_grads(
            PRECISIONS[chosen("precision", options.get("precision"), t.precision if t else "fp32")],
            options.get("main_grads") or "weights",
        ),
    )
    attempt(
        "optimizer",
        lambda: OPTIMIZERS[
            chosen("optimizer", options.get("optimizer"), t.optimizer if t else "adamw")
        ],
    )
    attempt("overlap", lambda: parse_overlap(options.get("overlap"), options.get("vpp")))
    attempt("impl", lambda: step_impl_named(options.get("optimizer_impl")))
    attempt("issuer", lambda: issuer_named(options.get("issuer") or "torch"))
    attempt("nccl_algorithms", lambda: parse_algorithms(options.get("nccl_algo")))
    attempt("nccl_protocols", lambda: parse_protocols(options.get("nccl_proto")))
    attempt("offload", lambda: parse_offload(options.get("offload") or "none"))
    attempt("growing", lambda: on_or_off("growing-segments", options.get("growing_segments")))
    attempt("fp8_params", lambda: on_or_off("fp8-params", options.get("fp8_params")))
    attempt("blocking", lambda: on_or_off("launch-blocking", options.get("launch_blocking")))
    usual_mode = library.recompute(t.recompute if t else "none")
    mode = chosen("recompute", options.get("recompute"), usual_mode)
    if mode not in get_args(Recompute):
        problems.append(str(UnknownName("recompute", str(mode), list(get_args(Recompute)))))
    first = options.get("recompute_layers") or 0
    if first and mode == "none":
        problems.append(f"recompute-layers {first} needs recompute full or selective")
    if first and mode == "full":  # as many whole layers: the engine's own full is of all
        mode, options = "selective", cast("Options", {**options, "recompute_modules": "layer"})
    attempt("modules", lambda: _modules(str(mode), options.get("recompute_modules")))
    told = options.get("grad_accum")
    if told is None and options.get("global_batch") is not None:
        told = 1  # follows from the global batch, below
    accum = chosen("grad-accum", told, 1)
    if accum < 1:
        problems.append(f"grad-accum must be at least 1, not {accum}")
    own_batch = t.micro_batch if t else 1
    batch = _batch(chosen("micro-batch", options.get("micro_batch"), own_batch), problems)
    cluster: ClusterSpec | None = found.get("cluster")
    attempt("profile", lambda: options.get("profile") or load_profile(options.get("calibration")))
    attempt("routing", lambda: routing_of(record, options))
    attempt("overrides", lambda: overrides_of(record, options))
    overrides: dict[str, Any] = {**library.settings(record, options), **found.get("overrides", {})}
    overrides |= settings_of(record, found.get("routing", EVEN), layout)

    def built(settings: Mapping[str, Any]) -> Workload:
        assert record is not None
        return offloaded(
            recomputed(
                record.build(**settings),
                found.get("modules", ()),
                first,
                library.software.stops_early,
            ),
            options.get("offload_layers") or 0,
            checkpointed=mode == "full",
        )

    largest = _largest(record, found.get("overrides", {}))
    if record is not None and "overrides" in found:
        attempt("workload", lambda: built(overrides))
        if largest and "workload" in found:
            attempt("peak_workload", lambda: built({**overrides, **largest}))
    chosen_strategy: Strategy | None = None
    needed = {"parallelism", "precision", "optimizer", "offload", "overlap", "library", "issuer"}
    if needed <= found.keys():
        chosen_strategy = Strategy(
            parallelism=found["parallelism"],
            precision=with_remainders(
                found["precision"], library.software.remainders and not found.get("fp8_params")
            ),
            optimizer=(
                fitted(found["optimizer"], found["workload"], found["precision"])
                if "workload" in found
                else found["optimizer"]
            ),
            recompute=mode,
            recompute_modules=found.get("modules", ()),
            recompute_layers=first,
            offload=found["offload"],
            overlap=found["overlap"],
            issuer=found["issuer"],
            launch_blocking=found.get("blocking", False),
            nccl_algorithms=found.get("nccl_algorithms", FREE),
            nccl_protocols=found.get("nccl_protocols", FREE),
            shard_ranks=found.get("shard_ranks", 0),
            gather_tensors=bool(options.get("gather_tensors")),
            software=library.software,
            fp8_params=found.get("fp8_params", False),
            routing=found.get("routing", EVEN),
            offload_layers=options.get("offload_layers") or 0,
            prefetch_blocks=_either_count(options.get("prefetch_blocks"), 1),
            ema=t.ema if t else False,
            grad_clip=_either(options.get("grad_clip"), t.grad_clip if t else False),
            wraps_alone=options.get("strategy") is not None,
            step_impl=found.get("impl") or (t.optimizer_impl if t else "foreach"),
            ema_impl=t.ema_impl if t else "for-loop",
        )
        chosen_strategy = _with_buckets(chosen_strategy, options.get("bucket_numel"))
        if cluster is not None:
            problems += _strategy_violations(chosen_strategy, cluster)
    placed: Placed | None = None
    if record and cluster and chosen_strategy and "workload" in found:
        how = chosen_strategy
        problems += unknown
        attempt("placed", lambda: place(record, found["workload"], cluster, how, layout, overrides))
        placed = found.get("placed")
        if placed is not None:
            spread = placed.layout.data_ranks_of_expert
            chosen_strategy = replace(how, expert_ranks=spread)
        if "placed" in found and options.get("global_batch") is not None:
            accum = _accumulation(options, placed, cluster.n_gpus, batch, problems)
    if options.get("shares") is not None:
        attempt("shares", lambda: _shares(str(options["shares"])))
    cut_later = placed is not None and placed.layout.stages == AUTO
    if batch == "max":
        both = {"--shares": found.get("shares"), "--stages auto": cut_later}
        problems += [f"give {k} or --micro-batch max, not both" for k, v in both.items() if v]
    if placed is not None and accum % placed.layout.directions:
        problems.append(f"schedule dualpipe needs an even grad-accum, not {accum}")
    if problems:
        raise InvalidConfig(list(dict.fromkeys(problems)))
    assert record is not None and cluster is not None and chosen_strategy is not None
    request = Request(
        workload=found["workload"],
        full_name=name_of(record, overrides),
        cluster=cluster,
        strategy=chosen_strategy,
        micro_batch=1 if batch == "max" else int(batch),
        grad_accum=accum,
        profile=found["profile"],
        loading=_loading(record),
        defaults=tuple(defaults),
        assumptions=(
            *(launched.told(getattr(record, "config", {})) if launched else ()),
            *library.told(),
            *strategy_told(options.get("strategy"), record.training.strategy, usual),
            *unheeded(found["profile"], found["workload"].name),
            *routing_told(record, chosen_strategy.routing, layout),
            *context_told(layout, options.get("cp_comm")),
            *_assumptions(record, found["workload"]),
            *_largest_told(largest),
            *(_miscounted(record, found["workload"]) if not overrides else ()),
        ),
        placed=placed,
        eager_kernels=bool(options.get("eager_kernels")),
        growing_segments=found["growing"],
        software_assumed=library.assumed,
        peak_workload=None if placed else found.get("peak_workload"),
    )
    if batch == "max":
        request = _with_largest_batch(request)
    return _uneven(request, found.get("shares", ""), cut_later)


def _shard_ranks(options: Options, cluster: ClusterSpec | None, layout: Layout) -> int:
    """Over how many ranks ZeRO shards; 0: over all."""
    asked = options.get("strategy")
    told = options.get("shard_ranks")
    if told or asked is None or cluster is None or not hybrid(asked):
        return told or 0
    return node_shard_ranks({g.gpus_per_node for g in cluster.groups}, cluster.n_nodes, layout.tp)


def _shares(text: str) -> str:
    from simcore.engine.shares import check_shares  # most requests deal out nothing unevenly

    return check_shares(text)


def _uneven(request: Request, shares: str, cut: bool) -> Request:
    """The request with its batch and its pipeline dealt out as it was asked for."""
    if shares:
        from simcore.engine.shares import with_shares

        request = with_shares(request, shares)
    if cut:
        from simcore.engine.stages import with_balanced_stages

        request = with_balanced_stages(request)
    return request


def _cluster(gpus: str | ClusterSpec, options: Options) -> ClusterSpec:
    if isinstance(gpus, ClusterSpec):
        return gpus
    return parse_cluster(
        gpus,
        network=options.get("network"),
        node=options.get("node"),
        nnodes=options.get("nnodes"),
        nproc_per_node=options.get("nproc_per_node"),
    )


def _with_buckets(strategy: Strategy, numel: int | None) -> Strategy:
    """With gradient buckets of so many elements where that was asked for."""
    if numel is None:
        return strategy
    cap_bytes = numel * strategy.precision.grad_bytes
    return replace(strategy, zero_bucket_numel=numel, bucket_cap_bytes=cap_bytes)


def _strategy_violations(strategy: Strategy, cluster: ClusterSpec) -> list[str]:
    """Why a cluster cannot run a strategy; empty where it can."""
    types = len({g.gpu.name for g in cluster.groups})
    found = strategy.violations(cluster.n_nodes, cluster.n_gpus, types)
    if "nvme" in str(strategy.offload):
        found += [
            f"node {g.node.name!r} has no NVMe in the database to offload to"
            for g in cluster.groups
            if g.node.nvme is None
        ]
    return found


def _with_largest_batch(request: Request) -> Request:
    best = largest_batch(request, MAX_BATCH)
    note = f"micro-batch {best} is the largest that fits" if best else "not even 1 fits"
    return replace(request, micro_batch=max(best, 1), assumptions=(*request.assumptions, note))


def _accumulation(
    options: Options, placed: Placed | None, n_gpus: int, batch: int | str, problems: list[str]
) -> int:
    """Micro-steps that make up the global batch that was asked for."""
    ranks = placed.layout.data_ranks(n_gpus) if placed else n_gpus
    asked = options.get("global_batch") or 0
    if options.get("grad_accum") is not None:
        problems.append("give --global-batch or --grad-accum, not both")
    elif batch == "max":
        problems.append("give --global-batch or --micro-batch max, not both")
    elif asked < 1 or asked % (each := int(batch) * ranks):
        near = [str(n) for n in (asked // each * each, -(-asked // each) * each) if n >= each]
        problems.append(
            f"global-batch {asked} is not a multiple of micro-batch {batch} x {ranks} replicas"
            f": try {' or '.join(near or [str(each)])}"
        )
    else:
        return int(asked // (int(batch) * ranks))
    return 1


def _launched(gpus: str, options: Options) -> Launched:
    from simcore.engine.launch import with_launch  # most requests have no launch file

    others = {k: v for k, v in options.items() if k != "launch"}
    return with_launch(str(options["launch"]), gpus, others)


def _modules(mode: str, text: str | None) -> tuple[str, ...]:
    if mode == "selective":
        return modules_named(text or DEFAULT_MODULES)
    if text:
        raise InvalidConfig([f"recompute modules {text!r} need recompute selective, not {mode}"])
    return ()


def _either_count(given: int | None, fallback: int) -> int:
    return fallback if given is None else given


def _either(given: bool | None, fallback: bool) -> bool:
    return fallback if given is None else given


def _batch(value: int | str, problems: list[str]) -> int | str:
    if isinstance(value, str):
        if value.strip().lower() == "max":
            return "max"
        try:
            value = int(value)
        except ValueError:
            problems.append(f"micro-batch {value!r} is neither a whole number nor 'max'")
            return 1
    if not 1 <= value <= 10**6:
        problems.append(f"micro-batch must be 1 to 1,000,000, not {value}")
        return 1
    return value


def _loading(record: ModelSource) -> Loading | None:
    data = record.dataset
    if data is None or data.sample_load is None:
        return None
    return Loading(
        samples=data.samples.value,
        sample_load_s=data.sample_load.value,
        workers=data.workers,
        persistent=data.persistent_workers,
    )


def _largest(record: ModelSource | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the largest batch that training meets, but for what was asked for."""
    of = record.largest if isinstance(record, ModelRecord) else {}
    return {k: v for k, v in of.items() if k not in asked}


def _largest_told(largest: Mapping[str, Any]) -> tuple[str, ...]:
    if not largest:
        return ()
    sizes = ", ".join(f"{k} {v}" for k, v in largest.items())
    return (f"memory is of the largest batch that training meets ({sizes})",)


def _miscounted(record: ModelSource, workload: Workload) -> tuple[str, ...]:
    """Of a file whose settings do not make the parameters that it states."""
    stated = record.params.value if isinstance(record, ModelRecord) else None
    made = workload.trainable_numel
    if stated is None or round(stated) == made:
        return ()
    return (f"{record.name}: its file states {stated:,.0f} parameters, its settings make {made:,}",)


def _assumptions(record: ModelSource, workload: Workload) -> tuple[str, ...]:
    data, spread, norms = record.dataset, workload.work_sd_frac, workload.sync_norms
    uneven = f"samples differ in work by {spread:.0%} (sd): ranks wait" if spread else ""
    synced = f"{norms} batch norms average over all ranks, forward and backward" if norms else ""
    beside = tuple(text for text in (uneven, synced) if text)
    if data is None or data.sample_load is None:
        return ("data loading keeps up (no data set described)", *beside)
    return (
        f"data set {data.name}: {data.samples.value:.0f} samples, {data.workers} loader workers a "
        f"rank, {data.sample_load.value:g} s of processor time a sample",
        *beside,
    )
