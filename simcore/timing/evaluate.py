"""Evaluate a job along the configuration axis: price its tasks, schedule them, add data loading.

# C configs, D distinct durations, N parts of a model (stages of a pipeline) priced at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.base.arrays import TINY, Array, NDArray
from simcore.base.record import dataclass, first_equal, replace
from simcore.request.resolved import Loading
from simcore.step.graph import Timeline, makespan_s, schedule
from simcore.step.kernels import KernelTable, joined_table, table_of
from simcore.step.parallel import PARALLELISMS
from simcore.step.program import Program, ProgramBuilder, outline, recomputing
from simcore.strategy.strategy import Strategy
from simcore.timing.collectives import messages_s, through_lists_s
from simcore.timing.compute import (
    ComputeTimes,
    compute_times,
    host_s,
    issue_s,
    issuing_devices,
    launch_s,
)
from simcore.timing.points import Points, TermCounts, Together, together
from simcore.timing.quantities import HOST_DRAM_FRAC, Quantities
from simcore.timing.rates import ClassRates
from simcore.workload.graph import Workload

if TYPE_CHECKING:
    from simcore.timing.loading import Loader

#: Approximate number of configurations evaluated together. Fewer mean more calls; more no longer
#: fit in the processor's cache.
CHUNK = 8192


@dataclass(frozen=True)
class Job:
    """Everything about a run that does not vary along the configuration axis.

    ``shares``: micro-batch of a rank of each class over the mean micro-batch; empty where all are
    equal.
    """

    workload: Workload
    strategy: Strategy
    classes: tuple[ClassRates, ...]
    loading: Loading | None = None
    shares: tuple[float, ...] = ()

    @cached_property
    def loader(self) -> Loader | None:
        """The loader of its ranks; None where loading is assumed to keep up."""
        if self.loading is None:
            return None
        from simcore.timing.loading import Loader

        return Loader(
            self.loading,
            # DataParallel is one process: its loader supplies every device.
            one_process=self.strategy.parallelism == "dp",
            cores=float(min(c.cores for c in self.classes)),
            slower=max(c.issue_over_torch.get("torch", 1.0) for c in self.classes),
            share=max(self.shares, default=1.0),
            dram_bytes_per_s=HOST_DRAM_FRAC
            * min(c.dram_bytes_per_s * c.sockets for c in self.classes),
        )

    @cached_property
    def table(self) -> KernelTable:
        """Its kernels, cached by workload, precision and recompute."""
        return table_of(self.workload, self.strategy)

    @cached_property
    def program(self) -> Program:
        """The step graph of the job, cached by what shapes it."""
        return program_of(self.workload, self.strategy, len(self.classes))


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Times of one optimizer step for every configuration; arrays [C] in seconds.

    Of several parts of a model they are [N, C]. ``step_s``: mean over an epoch: the step graph's
    makespan, and what it waits for the loader. ``load_period_s``: time between two steps where
    loading is the limit. ``comm_beside_s``: the collectives that run during backward. ``terms_s``:
    the requested lines of the breakdown. ``host_micro_s``: host time to issue one micro-step.
    ``timelines``: of each part, where they are kept. ``micro_steps_s`` [N, C]: one micro-step of
    each kind of pipeline stage, with its exposed exchanges.
    """

    step_s: Array
    makespan_s: Array
    load_period_s: Array
    comm_s: Array
    comm_beside_s: Array
    host_micro_s: Array
    terms_s: dict[str, Array]
    timelines: tuple[Timeline, ...] = ()
    micro_steps_s: Array | None = None

    @property
    def timeline(self) -> Timeline | None:
        """The timeline of a single part; None where it is not kept."""
        return self.timelines[0] if self.timelines else None

    def of_part(self, number: int) -> Steps:
        """Those of one of several parts."""
        terms = {name: x[number] for name, x in self.terms_s.items()}
        times: dict[str, Any] = {name: getattr(self, name)[number] for name in _TIMES}
        return Steps(terms_s=terms, timelines=self.timelines[number : number + 1], **times)


#: Arrays that ``Steps`` always have.
_TIMES = ("step_s", "makespan_s", "load_period_s", "comm_s", "comm_beside_s", "host_micro_s")


@lru_cache(maxsize=1000)
def program_of(workload: Workload, strategy: Strategy, n_classes: int) -> Program:
    """The step graph of a workload under a strategy."""
    # Recompute within layers is in their kernels; the graph only knows recompute of whole layers.
    recomputed = strategy.recompute == "full" and not strategy.program.recompute.stops_early
    return _program(outline(workload), without_recompute(strategy), n_classes, recomputed)


@lru_cache(maxsize=1000)
def without_recompute(strategy: Strategy) -> Strategy:
    """What a strategy has in common with those that differ from it in recompute alone."""
    return first_equal(
        replace(strategy, recompute="none", recompute_modules=(), recompute_layers=0)
    )


@lru_cache(maxsize=1000)
def _program(workload: Workload, strategy: Strategy, n_classes: int, recomputed: bool) -> Program:
    may_gather_again = recomputed and strategy.reuse_numel > 0  # under ZeRO-3
    built = _built(workload, strategy, n_classes, may_gather_again)
    return recomputing(built, workload) if recomputed else built


@lru_cache(maxsize=1000)
def _built(workload: Workload, strategy: Strategy, n_classes: int, recomputed: bool) -> Program:
    builder = ProgramBuilder(workload, n_classes, recomputed)
    PARALLELISMS[strategy.parallelism].build(builder, strategy)
    by_function = strategy.nccl.algorithms.by_function or strategy.nccl.protocols.by_function
    return builder.finish(by_function=bool(by_function))


def evaluate(
    job: Job,
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> Steps:
    """Step times of every configuration. ``terms``: names of breakdown terms; None for all."""
    return evaluate_parts((job,), points, keep_timeline=keep_timeline, terms=terms).of_part(0)


def evaluate_parts(
    jobs: Sequence[Job],
    points: Points,
    *,
    keep_timeline: bool,
    terms: Collection[str] | None = None,
    phases: Sequence[Array] | None = None,
) -> Steps:
    """``evaluate`` of jobs that differ in their part of one model, or its recompute; arrays [N, C].

    ``phases``: device seconds of all their kernels (see ``compute_times``), if already computed.
    """
    first = jobs[0]
    joined = together([job.program for job in jobs])
    table = joined_table(tuple(job.table for job in jobs))
    computed = compute_times(
        joined.computing, first.strategy, table, first.classes, points, first.shares, phases,
        first.workload.work_sd_frac,
    )  # fmt: skip
    n_chunks = round(len(points) / CHUNK)
    if n_chunks < 2:
        return _evaluate(jobs, joined, table, points, computed, keep_timeline, terms)
    size = -(-len(points) // n_chunks)  # equal slices, without a short one at the end
    slices = [slice(i, i + size) for i in range(0, len(points), size)]
    return _along([
        _evaluate(jobs, joined, table, points.take(part), computed.take(part), False, terms)
        for part in slices
    ])  # fmt: skip


def _along(pieces: Sequence[Steps]) -> Steps:
    """Consecutive slices of the configuration axis joined into one."""

    def joined(name: str) -> Array:
        return np.concatenate([getattr(p, name) for p in pieces], axis=-1)

    terms = {k: np.concatenate([p.terms_s[k] for p in pieces], axis=-1) for k in pieces[0].terms_s}
    times: dict[str, Any] = {name: joined(name) for name in _TIMES}
    return Steps(terms_s=terms, **times)


def _evaluate(
    jobs: Sequence[Job],
    joined: Together,
    table: KernelTable,
    points: Points,
    computed: ComputeTimes,
    keep_timeline: bool,
    wanted: Collection[str] | None,
) -> Steps:
    loader, zero = jobs[0].loader, np.zeros(len(points))
    blocked = loader.blocking_s(points) if loader else zero
    priced = price(jobs, joined, table, points, computed, blocked)
    timelines: tuple[Timeline, ...] = ()
    if keep_timeline:
        timelines = tuple(
            schedule(program.graph, priced.duration_s[rows])
            for program, rows in zip(joined.programs, joined.rows, strict=True)
        )
        ends = np.stack([line.makespan_s for line in timelines])
    else:
        ends = _ends_s(joined, priced.duration_s)
    step, period = loader.step_s(points, ends) if loader else (ends, zero)
    return Steps(
        step_s=step,
        makespan_s=ends,
        load_period_s=np.broadcast_to(period, ends.shape),
        comm_s=priced.comm_total_s,
        comm_beside_s=priced.comm_beside_s,
        terms_s=_terms(joined.term_counts, priced.duration_s, wanted),
        host_micro_s=np.broadcast_to(priced.host_micro_s, ends.shape),
        timelines=timelines,
    )


def _ends_s(joined: Together, duration_s: Array) -> Array:
    """End of the last task of each part [N, C]."""
    ends, durations = np.empty((len(joined.programs), duration_s.shape[1])), list(duration_s)
    for graph, parts, rows in joined.graphs:
        if len(parts) == 1:
            ends[parts[0]] = makespan_s(graph, [durations[row] for row in rows[:, 0].tolist()])
        else:
            ends[parts] = makespan_s(graph, list(duration_s[rows]))
    return ends


def _terms(
    counts: Sequence[TermCounts], duration_s: Array, wanted: Collection[str] | None
) -> dict[str, Array]:
    """Busy seconds by term [N, C], without host time; of several rank classes the slowest one's."""
    n_columns = duration_s.shape[1]

    def summed(names: Sequence[str], sums: Array) -> dict[str, Array]:
        seconds = sums.reshape(-1, sums.shape[-1]) @ duration_s
        return dict(zip(names, seconds.reshape(*sums.shape[:2], n_columns), strict=True))

    if wanted is not None and len(counts) == 2:  # one class, and what classes share
        found: dict[str, Array] = {}
        for names, sums in counts:
            rows = [i for i, name in enumerate(names) if name in wanted]
            if rows:
                found |= summed([names[i] for i in rows], sums[rows])
        return found
    *own, common = (summed(*of_class) for of_class in counts)
    if len(own) == 1:
        return {**own[0], **common}
    slowest = np.stack([sum(o.values(), np.zeros(())) for o in own]).argmax(axis=0)
    mine = {term: np.choose(slowest, [o[term] for o in own]) for term in own[0]}
    return {
        term: mine.get(term, 0.0) + common.get(term, np.zeros(slowest.shape))
        for term in dict.fromkeys([*mine, *common])
    }


@dataclass(frozen=True)
class Priced:
    """Durations of the tasks of all parts [D, C]; ``Together.rows`` has the row of each task.

    ``comm_total_s`` [N, C]: seconds of all collectives; ``comm_beside_s`` [N, C]: of those that run
    during backward. ``host_micro_s`` [N, C]: host seconds to issue one micro-step.
    """

    duration_s: Array
    comm_total_s: Array
    comm_beside_s: Array
    host_micro_s: Array


def price(
    jobs: Sequence[Job], joined: Together, table: KernelTable, points: Points,
    computed: ComputeTimes, loader: Array,
) -> Priced:  # fmt: skip
    """Durations of the tasks of several step graphs, one for each job.

    ``jobs``: as for ``evaluate_parts``; ``joined``, ``table``: their step graphs and their kernels.
    ``loader``: load time that blocks a step [C].
    """
    strategy, classes = jobs[0].strategy, jobs[0].classes
    duration = np.empty((joined.n_rows, len(points)))
    tasks, sending = joined.computing, joined.sending
    issue, launch = issue_s(strategy, classes, points), launch_s(classes, points)
    threads = issuing_devices(strategy, points)
    issued = issue * threads, launch * threads, points.n_ranks > 1
    duration[tasks.host_at] = host_s(tasks.host_weights, table, *issued)
    host_micro_s = host_s(tasks.host_sums, table, *issued)

    # Compute and collectives that run at the same time slow each other. Sums are over messages and
    # distinct columns, of which there are few, not over tasks.
    column = computed.column
    wire_s = message_s = messages_s(sending, points, strategy)
    if lists := strategy.program.zero3.tensor_lists:
        torch_s = issue_s(replace(strategy, issuer="torch"), classes, points)
        message_s = through_lists_s(lists, sending, wire_s, points, strategy, torch_s, classes)
    # A message that is sent after backward has ended (DDP's last bucket) slows nothing.
    sent = sending.sent_counts @ message_s
    window = computed.overlapped_s.max(axis=0)[:, column]
    shared = np.minimum(sent, window)
    slowdown = max(c.overlap_slowdown_frac for c in classes) / points.overlap
    slower = 1.0 + slowdown * shared / np.maximum(window, TINY)
    duration[sending.after_at] = sending.after_counts @ message_s
    if len(sending.sent_at):
        slowing = max(c.comm_slowdown_frac for c in classes) / points.overlap
        longer = 1.0 + slowing * shared / np.maximum(sent, TINY)
        longer_s = message_s * _spread(longer, sending.message_part)
        duration[sending.sent_at] = sending.sent_task_counts @ longer_s

    alone, slowed = (
        computed.task_s[rows].take(column, axis=1) for rows in (tasks.alone, tasks.slowed)
    )
    slowed *= _spread(slower, tasks.slowed_part)
    duration[tasks.at[tasks.alone]] = alone
    duration[tasks.at[tasks.slowed]] = slowed

    comm_micro = sending.micro_counts @ message_s
    alone_s, overlapped_s = (
        of_column[:, :, column] for of_column in (computed.micro_step_s, computed.overlapped_s)
    )
    micro_s = alone_s + comm_micro
    if sending.hides.any():
        beside_s = np.maximum(alone_s + (slower - 1.0) * overlapped_s, comm_micro)
        micro_s = np.where(sending.hides, beside_s, micro_s)

    largest = replace(points, micro_batch=points.micro_batch * max(jobs[0].shares, default=1.0))
    quantities = Quantities(
        workloads=tuple(job.workload for job in jobs), strategy=strategy, points=largest,
        classes=classes, loader=loader, issue_s=issue, launch_s=launch, micro_s=micro_s,
        host_micro_s=host_micro_s,
    )  # fmt: skip
    for name, index, at, part in joined.misc:
        duration[at] = _spread(quantities.quantity(name, index), part)
    host_micro_s = host_micro_s + quantities.sums_host_s
    total = sending.all_counts @ wire_s + quantities.broadcasts_s
    return Priced(duration, total, sent, host_micro_s)


def _spread(of_part: Array, part: NDArray[np.intp]) -> Array:
    """Rows for each task: from a number, a row for all parts ([C], [1, C]) or one a part [N, C]."""
    return of_part if of_part.ndim < 2 or len(of_part) == 1 else of_part[part]
