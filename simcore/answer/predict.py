"""One prediction: central estimate, interval, breakdown and what-ifs.

All of them are columns of one configuration axis, evaluated together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from itertools import combinations
from math import exp, hypot, log
from random import Random
from statistics import NormalDist
from typing import Any

import numpy as np

from simcore.answer.residual import step_residual, untimed_slowdown, untold, unvalidated
from simcore.answer.result import Prediction, RankClass, Single, StageRun, WhatIf
from simcore.base.arrays import Array
from simcore.base.figures import HIGH_QUANTILE, LOW_QUANTILE, Z80, Interval
from simcore.base.lookup import Later
from simcore.base.record import Same, replace
from simcore.hardware.calibrations import timed_by_shape
from simcore.hardware.cluster import ClusterSpec, NodeGroup
from simcore.hardware.paths import network_assumptions
from simcore.memory.job import memory_result, run_memories
from simcore.memory.result import MemoryResult, Segments
from simcore.memory.spread import plain_and_timed
from simcore.memory.terms import Memory
from simcore.physics.collectives import Library
from simcore.request.resolved import Request, rank_counts, rank_groups, resolved_options
from simcore.strategy.layout import NO_OVERLAP
from simcore.timing.evaluate import Job, Steps, evaluate
from simcore.timing.peaks import conv_notes
from simcore.timing.points import KNOBS, Knob, Points
from simcore.timing.rates import knob_spread_of
from simcore.timing.steps import breakdown, job_of, steps_of, values_on

#: Samples of the uncertain parameters: a Latin hypercube, the same for every prediction.
N_SAMPLES = 40
#: Name of each knob in ``bound_by``.
RESOURCES: dict[Knob, str] = {
    "compute": "compute (matrix units)",
    "memory": "memory bandwidth",
    "intra": "links within the node",
    "inter": "network between nodes",
    "host": "host (kernel launches)",
    "loader": "data loading",
}
#: Value of ``bound_by`` where stages mostly wait for each other, so that no resource is the limit.
BUBBLE = "pipeline bubble"
#: A resource is the limit when doubling it shortens the step by at least this share.
_BINDS_FRAC = 0.01
#: Two are the limit together when doubling both gains at least this share, and this many times
#: what the better one gains alone.
_PAIR_FRAC = 0.05
_PAIR_RATIO = 3.0


def knobs_of(request: Request) -> list[Knob]:
    """The resources that the job uses at all; the others cannot be its limit."""
    cluster = request.cluster
    knobs: list[Knob] = ["compute", "memory", "host"]
    if cluster.n_gpus > cluster.n_nodes:
        knobs.append("intra")
    if cluster.n_nodes > 1:
        knobs.append("inter")
    if request.loading is not None:
        knobs.append("loader")
    return knobs


@lru_cache(maxsize=4)
def _hypercube(n_samples: int, n_dims: int) -> Array:
    """Standard normal Latin hypercube [dims, samples] with a fixed seed."""
    rng = Random(20261121)  # numpy.random would cost a fifth of a first prediction to import
    inverse = NormalDist().inv_cdf
    levels = [inverse((i + 0.5) / n_samples) for i in range(n_samples)]
    return np.array([rng.sample(levels, n_samples) for _ in range(n_dims)])


def _doubled(knobs: Sequence[Knob]) -> list[tuple[Knob, ...]]:
    """The sets of resources to double: each alone, then each pair."""
    return [*((k,) for k in knobs), *combinations(knobs, 2)]


def _what_if(knobs: Sequence[Knob], doubled_s: Array, step_s: float) -> tuple[str, list[WhatIf]]:
    """The limiting resource, and the gain from doubling each resource, largest first.

    ``doubled_s``: step times in the order of ``_doubled``. Two resources limit a step together
    where doubling one only leaves the other as the limit; the pair then comes first.
    """
    # Doubling a resource can lengthen the computed step: with faster compute, collectives overlap
    # with (and slow) a larger part of backward, and a transfer issued earlier can delay another on
    # the same link. Such a resource counts as gaining nothing.
    seconds = np.minimum(doubled_s, step_s).tolist()

    def what_if(together: Sequence[Knob], t: float) -> WhatIf:
        resource = " and ".join(RESOURCES[k] for k in together)
        return WhatIf(resource=resource, step_time_s=t, gain_frac=1.0 - t / step_s)

    each = list(zip(_doubled(knobs), seconds, strict=True))
    alone = sorted((what_if(*one) for one in each[: len(knobs)]), key=lambda w: -w.gain_frac)
    pair = what_if(*min(each[len(knobs) :], key=lambda one: one[1]))
    if pair.gain_frac >= max(_PAIR_FRAC, _PAIR_RATIO * alone[0].gain_frac):
        return pair.resource, [pair, *alone]
    return (alone[0].resource if alone[0].gain_frac >= _BINDS_FRAC else "fixed costs"), alone


def bubble_binds(time_s: Mapping[str, float]) -> bool:
    """Whether the pipeline bubble is the longest term of the step."""
    bubble = time_s.get("pipeline_bubble", 0.0)
    others = (v for k, v in time_s.items() if k not in ("pipeline_bubble", "communication_hidden"))
    return bubble > max(others)


def _columns(request: Request, base: dict[str, Any]) -> tuple[Points, list[Knob], slice]:
    """The configuration axis of a prediction, the resources that it doubles, and its samples.

    Its columns are: the request, one GPU, each resource and pair doubled, the three steps of the
    breakdown (without loader, host, communication), and the samples of the uncertain figures.
    """
    knobs = knobs_of(request)
    spread = dict(
        knob_spread_of(
            request.profile, request.cluster, request.strategy.precision, request.workload
        )
    )
    if timed_by_shape(request.profile.measured):  # figures doubt only kernels that were not timed
        from simcore.answer.timed import timed_frac

        by_figures = 1.0 - (timed_frac(request) or 0.0)
        for knob in ("compute", "memory"):
            spread[knob] *= by_figures
    numbers = tuple((name, float(v)) for name, v in base.items() if name != "library")
    points = _axis(numbers, Same(base["library"]), tuple(knobs), tuple(spread.items()))
    return points, knobs, slice(len(points) - N_SAMPLES, len(points))


@lru_cache(maxsize=32)
def _axis(
    numbers: tuple[tuple[str, float], ...], library: Same[Library], knobs: tuple[Knob, ...],
    spread: tuple[tuple[Knob, float], ...],
) -> Points:  # fmt: skip
    """The axis of ``_columns``. Jobs with equal ``numbers`` share it, and what it keeps.

    ``spread``: standard deviation of the logarithm of each knob.
    """
    doubled = _doubled(knobs)
    first = 2 + len(doubled)
    fixed = first + 3
    size = fixed + N_SAMPLES
    values = {**dict.fromkeys((*KNOBS, "use_host", "use_comm", "use_loader"), 1.0), **dict(numbers)}
    rows = np.repeat(np.array([list(values.values())]).T, size, axis=1)
    column = dict(zip(values, rows, strict=True))
    for name in ("n_ranks", "n_nodes", "gpus_per_node", "compute"):
        column[name][1] = 1.0
    for i, together in enumerate(doubled):
        for knob in together:
            column[knob][2 + i] *= 2.0
    column["use_loader"][first:fixed] = 0.0
    column["use_host"][first + 1 : fixed] = 0.0
    column["use_comm"][first + 2] = 0.0
    widths, normal = dict(spread), _hypercube(N_SAMPLES, len(KNOBS))
    for i, knob in enumerate(KNOBS):
        if widths.get(knob, 0.0):
            column[knob][fixed:] *= np.exp(widths[knob] * normal[i])
    return Points.of({**column, "library": library.it}, size)


def predict(request: Request, *, keep_timeline: bool = False) -> Prediction:
    """The prediction of one configuration."""
    cluster, strategy, workload = request.cluster, request.strategy, request.workload
    job = job_of(request)
    base = values_on(request, cluster)
    points, knobs, samples = _columns(request, base)
    steps = steps_of(request, points, keep_timeline=keep_timeline)
    step = steps.step_s
    interval = _interval(step, samples, request)

    per_step = request.micro_batch * request.grad_accum
    global_batch = per_step * request.data_ranks
    rate, alone_rate = float(global_batch / step[0]), float(per_step / step[1])

    first = 2 + len(_doubled(knobs))
    bound_by, what_if = _what_if(knobs, step[2:first], float(step[0]))
    time_s = breakdown(steps, first, request.micro_steps, offloads=bool(strategy.offload))
    if bubble_binds(time_s):
        bound_by = BUBBLE
    memories = run_memories(request)
    memory = _with_segments(request, memory_result(request, memories))
    classes, gain = _rank_classes(job, cluster, steps, request)
    peak = sum(
        c.n_gpus * r.peak_of(workload.cudnn_frac) for c, r in zip(classes, job.classes, strict=True)
    )
    return Prediction(
        model=workload.name,
        model_full_name=request.full_name,
        n_params=workload.trainable_numel,
        n_frozen_params=workload.frozen_base_numel,
        sample_unit=workload.sample_unit,
        tokens_per_sample=workload.tokens_per_sample,
        cluster=str(cluster),
        n_gpus=cluster.n_gpus,
        n_nodes=cluster.n_nodes,
        strategy=strategy.parallelism,
        shard_ranks=strategy.shard_ranks,
        unwrapped=strategy.unwrapped(cluster.n_gpus),
        precision=strategy.precision.name,
        optimizer=strategy.optimizer.name,
        recompute=strategy.recompute,
        offload=str(strategy.offload),
        layout=str(request.placed.layout) if request.placed else "",
        data_ranks=request.data_ranks,
        micro_batch=request.micro_batch,
        grad_accum=request.grad_accum,
        global_batch=global_batch,
        step_time_s=interval,
        samples_per_s=rate,
        iter_per_s=float(1.0 / step[0]),
        later_single=Later(lambda: _single(request, job, rate, alone_rate)),
        scaled_frac=_scaled_frac(request, time_s, float(step[0])),
        mfu_frac=float(rate * workload.model_flop / peak),
        time_s=time_s,
        memory=memory,
        bound_by=bound_by,
        what_if=tuple(what_if),
        rank_classes=classes,
        uneven_split_gain_frac=gain,
        stages=_stage_runs(request, steps, memories),
        defaults=request.defaults,
        later_options=Later(lambda: resolved_options(request)),
        assumptions=tuple(
            dict.fromkeys(
                (
                    *request.assumptions,
                    *network_assumptions(cluster, request.profile),
                    *(a for c in job.classes for a in c.assumptions),
                    *conv_notes((c.gpu for c in job.classes), strategy.precision, workload),
                    *workload.notes,
                    *_timed_note(request),
                )
            )
        ),
        timeline=steps.timeline if keep_timeline else None,
    )


def _timed_note(request: Request) -> tuple[str, ...]:
    """What an answer says of kernels that its profile timed by shape."""
    if not timed_by_shape(request.profile.measured):
        return ()
    from simcore.answer.timed import timed_note

    return timed_note(request)


def _with_segments(request: Request, memory: MemoryResult) -> MemoryResult:
    """The memory with what the allocator reserves, where the order of allocations is known."""
    if request.placed is not None or request.strategy.reduces_apart:
        return memory
    width = "segments_timed" if plain_and_timed(request) else "segments_replayed"
    spread = request.profile.memory_sd_log(width).value
    segments = Segments(partial(_replayed_bytes, request), spread * memory.allocated_bytes)
    return replace(memory, segments=segments)


def _replayed_bytes(request: Request) -> float:
    """The peak of what the allocator reserves, from a replay of the step's allocations."""
    from simcore.memory.over_time import peak_reserved_bytes  # no other figure needs it

    return peak_reserved_bytes(request)


def _stage_runs(request: Request, steps: Steps, memories: Memory | None) -> tuple[StageRun, ...]:
    """Time and memory of each run of equal pipeline stages; empty without a pipeline."""
    placed = request.placed
    if placed is None or placed.layout.pp == 1 or steps.micro_steps_s is None:
        return ()
    assert memories is not None
    starts = zip(placed.run_starts, placed.runs, memories.device.tolist(), strict=True)
    return tuple(
        StageRun(
            first=first,
            count=count,
            layers=placed.stages[first].n_layers,
            micro_step_s=float(steps.micro_steps_s[part][0]),
            memory_bytes=held,
        )
        for first, (part, count), held in starts
    )


def _interval(step: Array, samples: slice, request: Request) -> Interval:
    """The 80 % interval: quantiles of the sampled steps and the residual, added in quadrature."""
    drawn = np.sort(step[samples])
    # np.quantile would import masked arrays
    ranks = np.arange(len(drawn)) / (len(drawn) - 1)
    centre = float(step[0])
    residual = Z80 * step_residual(request).sd_log
    slower = max(untimed_slowdown(request.profile, g.gpu) for g in request.cluster.groups)
    low, high = (
        hypot(max(0.0, sign * log(float(np.interp(q, ranks, drawn)) / centre)), residual, log(more))
        for sign, q, more in ((-1.0, LOW_QUANTILE, 1.0), (1.0, HIGH_QUANTILE, slower))
    )
    others = untold(request)
    origin = request.profile.origin + (f"; none of {', '.join(others)}" if others else "")
    if unseen := unvalidated(request):
        origin += f"; unvalidated: no measured step of {', '.join(unseen)}"
    if slower > 1.0:
        origin += f"; no op table times this vendor: up to {slower:g} times longer"
    return Interval(centre, centre * exp(-low), centre * exp(high), origin)


def _scaled_frac(request: Request, time_s: Mapping[str, float], step_s: float) -> float | None:
    """Share of the step in which ranks do not wait for each other; None where each holds all.

    Of what is sharded, one GPU alone would hold and update everything, which no rank of the job
    does.
    """
    if not request.strategy.zero_stage and request.placed is None:
        return None
    waiting = sum(time_s.get(k, 0.0) for k in ("communication_exposed", "pipeline_bubble"))
    return 1.0 - waiting / step_s


def _single(request: Request, job: Job, rate: float, alone_rate: float) -> Single:
    """The job, of ``rate`` [samples/s], beside the same work on one GPU.

    ``alone_rate``: of one rank in the job's own step, if it is like that of a GPU alone.
    """
    cluster = request.cluster
    # Host memory, PCIe roots and NVMe are shared by the devices of a node, so with offload one
    # device alone has other rates. The same holds for ranks that share a host's cores.
    gpu, per_node = cluster.groups[0].gpu, cluster.groups[0].gpus_per_node
    alone = request.profile.shared_rate(gpu, per_node) == (1.0, 1.0)
    whole = (
        alone and len(job.classes) == 1 and not request.strategy.offload and request.placed is None
    )
    if whole:
        efficiency = rate / (alone_rate * cluster.n_gpus)
        return Single(gpu=gpu.name, speedup=rate / alone_rate, efficiency_frac=efficiency)
    total, best = 0.0, (0.0, "")
    for i, group in enumerate(cluster.groups):
        step_s = _one_device_s(_on_one_device(request, i))
        one_rate = request.micro_batch * request.grad_accum / step_s
        total += one_rate * group.n_gpus
        best = max(best, (one_rate, group.gpu.name))
    return Single(gpu=best[1], speedup=rate / best[0], efficiency_frac=rate / total)


def _alone(
    request: Request,
    index: int,
    micro_batch: Array | float | None = None,
    *,
    terms: Collection[str] | None = None,
) -> Steps:
    """The same job on one device of one group, with its micro-batch or others.

    ``terms`` as in ``evaluate``.
    """
    alone = _on_one_device(request, index)
    batch = np.atleast_1d(request.micro_batch if micro_batch is None else micro_batch)
    values = {**values_on(alone, alone.cluster), "micro_batch": batch}
    return evaluate(job_of(alone), Points.of(values, len(batch)), terms=terms)


def _on_one_device(request: Request, index: int) -> Request:
    """The same work on one device of one group; equal for jobs that differ only in the cluster."""
    strategy = request.strategy
    if not strategy.offload:  # one rank sends nothing: the smallest graph gives the same times
        strategy = replace(
            strategy, parallelism="manual", overlap=NO_OVERLAP, shard_ranks=0, expert_ranks=1.0
        )
    return Request(
        workload=request.workload,
        full_name="",
        cluster=request.cluster.alone(index),
        strategy=strategy,
        micro_batch=request.micro_batch,
        grad_accum=request.grad_accum,
        profile=request.profile,
        loading=request.loading,
    )


@lru_cache(maxsize=1000)
def _one_device_s(alone: Request) -> float:
    """Step time of a job on one device [s]; cached, since many jobs are compared with the same."""
    values = values_on(alone, alone.cluster)
    return float(evaluate(job_of(alone), Points.of(values, 1), terms=()).step_s[0])


def alone_s(request: Request, group: NodeGroup, micro_batches: Array) -> Array:
    """Step time of one device of a group alone, for each micro-batch [C]."""
    return _alone(request, request.cluster.groups.index(group), micro_batches, terms=()).step_s


def _rank_classes(
    job: Job, cluster: ClusterSpec, steps: Steps, request: Request
) -> tuple[tuple[RankClass, ...], float]:
    """Compute seconds of each rank class, and the gain from an uneven division of the batch.

    If all ranks finish together, the step's compute falls from the slowest class's time to the
    harmonic mean weighted by ranks.
    """
    groups = rank_groups(cluster)
    parts = ("forward", "backward", "frozen")

    def busy_s(found: Steps) -> float:
        return float(sum(found.terms_s[t][0] for t in parts if t in found.terms_s))

    # With several classes, finish times include waits for others: each is evaluated alone.
    batches = request.shares or (request.micro_batch,) * len(groups)
    seconds = [
        busy_s(steps if len(groups) == 1 else _alone(request, cluster.groups.index(group), b))
        for group, b in zip(groups, batches, strict=True)
    ]
    counts = rank_counts(cluster)
    made = tuple(
        RankClass(gpu=g.gpu.name, n_gpus=n, compute_s=s, micro_batch=b)
        for g, n, s, b in zip(groups, counts, seconds, batches, strict=True)
    )
    if len(groups) == 1:
        return made, 0.0
    samples = [n * b for n, b in zip(counts, batches, strict=True)]
    ideal = sum(samples) / sum(x / s for x, s in zip(samples, seconds, strict=True))
    gain_s = request.grad_accum * (max(seconds) - ideal)
    return made, max(0.0, gain_s / float(steps.step_s[0]))


def evaluation_pass_s(request: Request, n_samples: float) -> float:
    """Seconds that every rank spends on ``n_samples`` forward-only samples, independently."""
    points = Points.of(values_on(request, request.cluster), 1)
    return n_samples * float(evaluation_s_per_sample(request, points)[0])


def evaluation_s_per_sample(request: Request, points: Points) -> Array:
    """Seconds [C] of a forward-only sample on a rank.

    Common scripts do not divide evaluation over the ranks. A batch takes the longer of its forward
    pass and its loading.
    """
    one = np.ones(len(points))
    # The slowest of equal devices limits a training step, but nothing waits for it in evaluation.
    slowest = values_on(request, request.cluster)["compute"]
    alone = replace(points, n_ranks=one, n_nodes=one, compute=points.compute / slowest)
    steps = evaluate(job_of(request), alone)
    loading = np.maximum(steps.load_period_s, steps.terms_s["loader"])
    return np.maximum(steps.terms_s["forward"], loading) / request.micro_batch
