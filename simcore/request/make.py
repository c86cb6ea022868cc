"""From options to a request: names looked up, defaults taken and listed, rules checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from simcore.base.errors import BadQuantity, InvalidConfig
from simcore.base.record import dataclass, first_equal, replace
from simcore.base.units import parse_quantity
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.estimates import leaf, takes_either_layout
from simcore.hardware.profile import Profile
from simcore.request.assumptions import assumptions_of, largest_note, miscounted, round_warnings
from simcore.request.inputs import (
    Attempts,
    Inputs,
    batches_of,
    changed_settings,
    inputs_from,
    look_up_names,
    recompute_of,
)
from simcore.request.model_settings import Lengths, lengths_of, name_of
from simcore.request.resolved import Loading, Request, settings_in_effect
from simcore.step.schedules import schedule_of
from simcore.strategy.layout import AUTO, BALANCED, FREE, UNDIVIDED
from simcore.strategy.optimizers import fitted
from simcore.strategy.options import Options, check_shares, read_options
from simcore.strategy.precision import with_remainders
from simcore.strategy.programs.mechanisms import PLAIN
from simcore.strategy.strategy import (
    Buckets,
    NcclLimits,
    Offload,
    Recompute,
    Strategy,
    single_refused,
    wraps_on_one_gpu,
)
from simcore.workload.graph import Workload
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import ModelSource

if TYPE_CHECKING:
    from simcore.request.placed import Placed


@dataclass(frozen=True)
class ReadRequest:
    """A request as its words say, and the values that a search over predictions has still to find.

    ``largest_batch``: the micro-batch is the largest that fits. ``shares``: how unequal GPUs divide
    the batch; empty where all get the same. ``stages``: the pipeline stages are to be balanced.
    """

    request: Request
    largest_batch: bool
    shares: str
    stages: bool


@dataclass(frozen=True)
class LookedUp:
    """What a request names, looked up, whatever its layers recompute.

    ``tries``: values and problems so far. ``settings``: of the model, that the options change.
    ``every_violation``: as in ``read_request``.
    """

    tries: Attempts
    inputs: Inputs
    settings: Mapping[str, Any]
    every_violation: bool


def read_request(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    *,
    every_violation: bool = True,
    **options: Any,
) -> ReadRequest:
    """The request with names and defaults resolved. Raises InvalidConfig with every violation.

    ``every_violation``: where it is not set, the error may have only the first ones.
    """
    return resolved(look_up(model, gpus, every_violation=every_violation, **options))


def look_up(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    *,
    every_violation: bool = True,
    **options: Any,
) -> LookedUp:
    """The first half of ``read_request``, which requests that differ in recompute share.

    Raises InvalidConfig where nothing more can be said of the request.
    """
    read, problems = read_options(options)
    options = read
    tries = Attempts(problems)
    if not isinstance(gpus, str | ClusterSpec):
        tries.problems.append(f"gpus must be text such as 4x8xA6000ada, not {gpus!r:.60}")
        tries.stop()
    inputs = inputs_from(tries, model, gpus, options)
    look_up_names(tries, inputs)
    settings = changed_settings(tries, inputs)
    tries.make("lengths", lambda: lengths_of(inputs.record, inputs.options, settings))
    if not every_violation:
        tries.stop()
    return LookedUp(tries, inputs, settings, every_violation)


def resolved(found: LookedUp, **recompute: Any) -> ReadRequest:
    """The request of what was looked up. Raises InvalidConfig with every violation.

    ``recompute``: options of that heading, which ``found`` may lack.
    """
    tries, inputs = found.tries.copy(), found.inputs.recomputing(recompute)
    mode = recompute_of(tries, inputs)
    accum, batch = batches_of(tries, inputs)
    lengths: Lengths = tries.get("lengths", Lengths())
    overrides = {**found.settings, **lengths.mean}
    largest = {**_largest(inputs.record, tries.get("overrides", {})), **lengths.longest}
    if not found.every_violation:
        tries.stop()  # before what takes long
    _workloads(tries, inputs, mode, overrides, largest)
    strategy = _strategy(tries, inputs, mode)
    strategy, accum = _placed(tries, inputs, strategy, overrides, accum, batch)
    _place_largest(tries, inputs, strategy, {**overrides, **largest}, bool(lengths.longest))
    _batch_problems(tries, inputs, accum, batch)
    tries.stop()
    record, cluster = inputs.record, inputs.cluster
    assert record is not None and cluster is not None and strategy is not None
    tries.make("loading", lambda: loading_of(record, inputs.options, tries["profile"]))
    tries.stop()
    workload, placed = tries["workload"], tries.get("placed")
    peak = tries.get("peak_workload") if placed is None or "peak_placed" in tries else None
    request = Request(
        workload=workload,
        full_name=name_of(record, overrides),
        cluster=cluster,
        strategy=first_equal(strategy),
        micro_batch=1 if batch == "max" else int(batch),
        grad_accum=accum,
        profile=tries["profile"],
        loading=tries["loading"],
        defaults=tuple(tries.defaults),
        assumptions=(
            *round_warnings(tries, inputs, accum),
            *assumptions_of(tries, inputs, strategy),
            *lengths.notes,
            *(largest_note(largest) if peak and not lengths.longest else ()),
            *(miscounted(record, workload) if not overrides else ()),
        ),
        placed=placed,
        eager_kernels=tries["eager"],
        cudnn_benchmark=tries["searched"],
        growing_segments=tries["growing"],
        compiled=bool(tries.get("compiled")),
        software_assumed=inputs.library.assumed,
        global_batch_given=inputs.options.get("global_batch") is not None,
        peak_workload=peak,
        peak_placed=tries.get("peak_placed"),
        options=settings_in_effect(
            inputs.options, {**_settings(record), **overrides, **lengths.longest}
        ),
    )
    return ReadRequest(request, batch == "max", tries.get("shares", ""), _cut_later(tries))


def _settings(record: ModelSource) -> Mapping[str, Any]:
    """The settings of a model's architecture; empty for a traced model."""
    return record.settings({}) if isinstance(record, ModelRecord) else {}


def _workloads(
    tries: Attempts, inputs: Inputs, mode: str, overrides: dict[str, Any], largest: dict[str, Any]
) -> None:
    """Build the model of a mean step, and that of the largest batch where batch sizes vary.

    They are stored in ``tries`` as ``workload`` and ``peak_workload``.
    """
    record = inputs.record
    if record is None or "overrides" not in tries:
        return

    def built(settings: dict[str, Any]) -> Workload:
        model, how = record.build(**settings), inputs.library.program.recompute
        layers = _layers_away(tries, inputs, model)
        if mode == "none" and not layers:
            return model
        from simcore.workload.recompute import (
            head_recomputed,
            held_by_nodes,
            offloaded,
            recomputed,
        )

        modules = tries.get("modules", ())
        model = recomputed(model, modules, inputs.recompute_layers, how.stops_early)
        if mode == "full" and how.full_includes_head:
            model = head_recomputed(model)
        model = offloaded(model, layers, checkpointed=mode == "full")
        return model if how.reentrant else held_by_nodes(model)

    tries.make("workload", lambda: built(overrides))
    if largest and "workload" in tries:
        tries.make("peak_workload", lambda: built({**overrides, **largest}))


def _layers_away(tries: Attempts, inputs: Inputs, model: Workload) -> int:
    """The number of first layers whose activations are kept on the host."""
    if layers := inputs.options.get("offload_layers"):
        return int(layers)
    offload: Offload | None = tries.get("offload")
    if offload is None or offload.activations == "none":
        return 0
    return sum(model.blocks[b].recomputable for b in model.order)


#: Values in ``tries`` without which no strategy can be built.
_NEEDED = ("parallelism", "precision", "optimizer", "offload", "overlap", "library", "issuer")


def _strategy(tries: Attempts, inputs: Inputs, mode: str) -> Strategy | None:
    """The strategy of the options; None where one of its names is unknown."""
    if not all(key in tries for key in _NEEDED):
        return None
    options, t, library = inputs.options, inputs.training, inputs.library
    fp8_params = tries.get("fp8_params", False)
    gpus = [g.gpu for g in inputs.cluster.groups] if inputs.cluster else []
    either = all(takes_either_layout(g) for g in gpus) and not tries["precision"].block_scaled
    optimizer = tries["optimizer"]
    if "workload" in tries:
        optimizer = fitted(optimizer, tries["workload"], tries["precision"])
    strategy = Strategy(
        parallelism=tries["parallelism"],
        precision=with_remainders(
            tries["precision"],
            library.program.optimizer_state.master_lower_halves and not fp8_params,
        ),
        optimizer=optimizer,
        recompute=cast("Recompute", mode),  # an unknown one is among the problems
        recompute_modules=tries.get("modules", ()),
        recompute_layers=inputs.recompute_layers,
        offload=tries["offload"],
        overlap=tries["overlap"],
        issuer=tries["issuer"],
        launch_blocking=tries.get("blocking", False),
        compiled=bool(tries.get("compiled")),
        waits_for_gradients=(
            t is None
            or t.waits_for_gradients
            or library.program is not PLAIN
            or tries["precision"].peak == "fp16"  # GradScaler.step reads whether any is infinite
        ),
        nccl=NcclLimits(
            algorithms=tries.get("nccl_algorithms", FREE),
            protocols=tries.get("nccl_protocols", FREE),
            release=tries.get("nccl_release", ()),
        ),
        shard_ranks=tries.get("shard_ranks", 0),
        gather_tensors=tries.get("gathered", False) or bool(library.program.zero3.tensor_lists),
        program=library.program,
        fp8_copies=(1 if either else 2) if fp8_params else 0,
        routing=tries.get("routing", BALANCED),
        offload_layers=_layers_away(tries, inputs, tries["workload"]) if "workload" in tries else 0,
        prefetch_blocks=_either_count(
            options.get("prefetch_blocks"), 0 if library.program.zero3.tensor_lists else 1
        ),
        reuse_numel=_either_count(options.get("reuse_numel"), library.program.zero3.reuse_numel),
        ema=tries.get("ema", t.ema if t else False),
        updates_in_backward=tries.get("early_update", False),
        grad_clip=tries.get("clip", t.grad_clip if t else False),
        buckets=Buckets(
            wraps_alone=wraps_on_one_gpu(options.get("strategy"), bool(t and t.wraps_one_gpu))
        ),
        step_impl=tries.get("impl") or (t.optimizer_impl if t else "foreach"),
        ema_impl=t.ema_impl if t else "for-loop",
    )
    strategy = _with_buckets(strategy, options.get("bucket_numel"))
    if strategy.offload.blocks and "workload" in tries:
        tries.problems += _not_swapped(tries["workload"], strategy.offload.blocks)
    if inputs.cluster is not None:
        tries.problems += single_refused(options.get("strategy"), inputs.cluster.n_gpus)
        tries.problems += _strategy_violations(strategy, inputs.cluster)
    return first_equal(strategy)


def _not_swapped(workload: Workload, blocks: int) -> list[str]:
    """Why so many blocks of a model cannot be exchanged with the host; empty where they can."""
    frozen = [b for b in workload.instances() if b.recomputable and b.base_bytes(1.0)]
    if not frozen:
        return [f"offload blocks:{blocks} needs a frozen base: give --lora-rank"]
    if blocks > len(frozen):
        return [f"offload blocks:{blocks} is more than the {len(frozen)} blocks of the model"]
    return []


def _placed(
    tries: Attempts, inputs: Inputs, strategy: Strategy | None, overrides: dict[str, Any],
    accum: int, batch: int | str,
) -> tuple[Strategy | None, int]:  # fmt: skip
    """The strategy with its ranks placed, and the micro-steps that follow from a global batch."""
    cluster = inputs.cluster
    if inputs.record is None or cluster is None or strategy is None or "workload" not in tries:
        return strategy, accum
    tries.problems += inputs.unknown
    how = strategy
    tries.make("placed", lambda: _place(inputs, tries["workload"], how, overrides))
    placed: Placed | None = tries.get("placed")
    if placed is not None and strategy.expert_ranks != placed.layout.data_ranks_of_expert:
        strategy = replace(strategy, expert_ranks=placed.layout.data_ranks_of_expert)
    if "placed" in tries and inputs.options.get("global_batch") is not None:
        accum = _accumulation(inputs.options, placed, cluster.n_gpus, batch, tries.problems)
    return strategy, accum


def _place(
    inputs: Inputs, workload: Workload, strategy: Strategy, settings: dict[str, Any]
) -> Placed | None:
    """``placement.place``, which is not loaded for jobs that divide nothing."""
    if inputs.layout == UNDIVIDED:
        return None
    if workload.encoder_blocks:
        raise InvalidConfig([f"{inputs.layout} does not divide a trained encoder of images: "
                             "leave the layout out or freeze it (--set trained=none)"])  # fmt: skip
    from simcore.request.placed import place

    assert inputs.record is not None and inputs.cluster is not None
    return place(inputs.record, workload, inputs.cluster, strategy, inputs.layout, settings)


def _place_largest(
    tries: Attempts, inputs: Inputs, strategy: Strategy | None, settings: dict[str, Any],
    varied: bool,
) -> None:  # fmt: skip
    """Store in ``tries``, as ``peak_placed``, what each rank holds of the largest batch.

    Not with pipeline stages, an error if ``varied``: the options say that lengths of sequences
    vary. ``settings``: the model's with that batch.
    """
    placed: Placed | None = tries.get("placed")
    peak = tries.get("peak_workload")
    if placed is None or peak is None or strategy is None:
        return
    if placed.layout.pp > 1:
        if varied:
            tries.problems.append("mean-seq-len with pipeline stages (pp) is not supported yet")
        return
    how = strategy
    tries.make("peak_placed", lambda: _place(inputs, peak, how, settings))


def _cut_later(tries: Attempts) -> bool:
    """Whether the pipeline stages are to be balanced after everything else is known."""
    placed: Placed | None = tries.get("placed")
    return placed is not None and placed.layout.stages == AUTO


def _batch_problems(tries: Attempts, inputs: Inputs, accum: int, batch: int | str) -> None:
    """Check the batch size and the number of micro-batches; add each problem to ``tries.problems``.

    Also reads the option ``shares`` (the parts of the batch that unequal GPUs get) and stores the
    result in ``tries``.
    """
    shares = inputs.options.get("shares")
    if shares is not None:
        tries.make("shares", lambda: check_shares(str(shares)))
    if batch == "max":
        both = {"--shares": tries.get("shares"), "--stages auto": _cut_later(tries)}
        tries.problems += [f"give {k} or --micro-batch max, not both" for k, v in both.items() if v]
    placed: Placed | None = tries.get("placed")
    if accum > 1 and tries.get("early_update"):
        tries.problems.append(f"update-in-backward needs grad-accum 1, not {accum}")
    if placed is not None and accum % placed.schedule.multiple_of:
        rule = placed.schedule.grad_accum_rule
        tries.problems.append(f"schedule {placed.layout.schedule} {rule}, not {accum}")
    library = inputs.library
    if inputs.layout.vpp > 1 and not library.program.pipeline.interleaves:
        tries.problems.append(
            f"{library.program.name} has no interleaved pipeline schedule: vpp={inputs.layout.vpp} "
            "needs a program that has one (--software megatron), or vpp 1"
        )
    counted = placed is not None or inputs.options.get("global_batch") is None
    if counted and library.program.pipeline.whole_rounds and not library.assumed:
        refused = schedule_of(inputs.layout).rounds_refused(inputs.layout, accum)
        tries.problems += [f"{library.program.name}: {refused}"] if refused else []


def _with_buckets(strategy: Strategy, numel: int | None) -> Strategy:
    """The strategy with gradient buckets of ``numel`` elements, where that is given."""
    if numel is None:
        return strategy
    cap_bytes = numel * strategy.precision.grad_bytes
    buckets = replace(strategy.buckets, zero_numel=numel, cap_bytes=cap_bytes)
    return replace(strategy, buckets=buckets)


def _strategy_violations(strategy: Strategy, cluster: ClusterSpec) -> list[str]:
    """Reasons why a cluster cannot run a strategy; empty where it can."""
    types = len({g.gpu.name for g in cluster.groups})
    found = strategy.violations(cluster.n_nodes, cluster.n_gpus, types)
    if "nvme" in str(strategy.offload):
        found += [
            f"node {g.node.name!r} has no NVMe in the database to offload to"
            for g in cluster.groups
            if g.node.nvme is None
        ]
    return found


def _accumulation(
    options: Options, placed: Placed | None, n_gpus: int, batch: int | str, problems: list[str]
) -> int:
    """Micro-steps that make up the global batch in the options; 1 where that is not possible."""
    ranks = placed.layout.data_ranks(n_gpus) if placed else n_gpus
    total = options.get("global_batch") or 0
    if options.get("grad_accum") is not None:
        problems.append("give --global-batch or --grad-accum, not both")
    elif batch == "max":
        problems.append("give --global-batch or --micro-batch max, not both")
    elif total < 1 or total % (each := int(batch) * ranks):
        near = [str(n) for n in (total // each * each, -(-total // each) * each) if n >= each]
        problems.append(
            f"global-batch {total} is not a multiple of micro-batch {batch} x {ranks} replicas"
            f": try {' or '.join(near or [str(each)])}"
        )
    else:
        return int(total // (int(batch) * ranks))
    return 1


def _either_count(given: int | None, fallback: int) -> int:
    return fallback if given is None else given


#: Batches that a worker of torch's DataLoader reads ahead where nobody says so: prefetch_factor,
#: torch/utils/data/dataloader.py (PyTorch 2.13), DataLoader.__init__.
PREFETCH = 2


def load_time_s(text: str) -> float:
    """A time such as 3.7ms. Raises InvalidConfig."""
    try:
        return parse_quantity(text, "seconds")
    except BadQuantity as err:
        raise InvalidConfig([f"--sample-load: {err}"]) from None


def loading_of(record: ModelSource, options: Mapping[str, Any], profile: Profile) -> Loading | None:
    """How samples are loaded; None where nothing says what a sample takes."""
    data, given = record.dataset, options.get
    known = data.sample_load.value if data and data.sample_load else None
    own = given("sample_load")
    load_s = load_time_s(own) if own else known
    traffic = data.sample_traffic if data else None
    if load_s is None and traffic is None:
        return None
    spread = data.load_sd_frac if data else None
    table = profile.runtime["loader_worker"]
    return Loading(
        samples=given("epoch_samples") or (data.samples.value if data else None),
        sample_load_s=load_s or 0.0,
        workers=_either_count(given("num_workers"), data.workers if data else 0),
        persistent=bool(data and data.persistent_workers),
        prefetch=_either_count(given("prefetch"), PREFETCH),
        load_sd_frac=spread.value if spread else 0.0,
        measured_here=bool(own),
        sample_traffic_bytes=traffic.value if traffic else 0.0,
        worker_start_s=sum(leaf(table[part], "seconds").value for part in ("start", "end")),
    )


def _largest(record: ModelSource | None, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the largest batch in training, except those that the user gave."""
    of = record.largest if isinstance(record, ModelRecord) else {}
    return {k: v for k, v in of.items() if k not in inputs}
