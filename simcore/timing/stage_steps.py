"""One optimizer step of each kind of pipeline stage, without the time that stages wait.

The rate of a stage is that of its slowest device. The variation among equal devices is one normal
value for each (``physics.collectives``). The devices of one stage wait for each other in every
micro-batch (tensor, context and expert ranks) or at the end of the step (data-parallel replicas).
Devices of different stages only pass on their results. So a stage waits for the slowest of its own
devices, not of the whole job's. Where the last stage has the head and therefore most work, it alone
sets the rate of the pipeline.

# N (or S) kinds of stages, C configs; arrays [C], [N, C] or [S, C]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import TINY, Array, NDArray, distinct_columns, equal_neighbours
from simcore.base.record import Same, dataclass, replace
from simcore.physics.collectives import slowest_rates
from simcore.request.placed import Placed, joined
from simcore.step.kernels import KernelTable, joined_table
from simcore.strategy.layout import Layout
from simcore.timing.compute import issue_s, kernel_seconds, pass_seconds, phases_of_parts
from simcore.timing.evaluate import Job, Steps, evaluate_parts
from simcore.timing.exchanges import (
    TRANSFER,
    alone_frac,
    beside_host,
    data_points,
    exchanges_of,
    exposed,
    shared_nic_s,
    tied_s,
)
from simcore.timing.points import Points, together
from simcore.timing.rates import KernelRates


@dataclass(frozen=True)
class Paces:
    """Compute rates over that of the job's slowest device; 1 or more.

    ``slowest`` [S, C]: of the slowest device in all replicas of such a stage. ``typical`` [C]: of
    the average group of ranks that wait for each other in every micro-batch; their times add up
    where one micro-batch passes through all stages.
    """

    slowest: Array
    typical: Array


def stage_paces(
    points: Points, layout: Layout, counts: tuple[int, ...], device_sd_frac: float
) -> Paces:
    """The rates of each kind of stage.

    ``points`` of the whole job; ``counts``: number of stages of each kind; ``device_sd_frac``:
    standard deviation of a device's rate.
    """
    meeting = float(max(layout.tp * layout.cp, layout.ep * layout.expert_tp))
    return points.keeps(
        ("paces", meeting, counts, device_sd_frac),
        lambda: _paces(points, meeting, counts, device_sd_frac),
    )


def _paces(points: Points, meeting: float, counts: tuple[int, ...], device_sd_frac: float) -> Paces:
    """``stage_paces``; ``meeting``: ranks that wait for each other in every micro-batch."""
    starts, lengths = equal_neighbours(points.n_ranks)
    ranks = points.n_ranks[starts]
    shares = np.array(counts, dtype=np.float64) / sum(counts)
    group = np.minimum(meeting, ranks / sum(counts))
    every, typical, *own = slowest_rates(
        np.array([ranks, group, *(ranks * shares[:, None])]), device_sd_frac
    )
    return Paces(
        np.repeat(np.array(own) / every, lengths, axis=1), np.repeat(typical / every, lengths)
    )


#: Breakdown terms that a micro-step consists of.
_MICRO_STEP = ("forward", "backward", "accumulation")
#: Breakdown terms of work that the device does once a step, before its last micro-step.
_BEFORE = ("input copy", "frozen")


@dataclass(frozen=True)
class StageSteps:
    """One step of each kind of stage, without waiting for other stages; arrays [N, C].

    ``steps``: their data-parallel jobs alone. ``busy_s``: compute of a micro-step, of which the
    share ``forward_frac`` is forward. ``passing_s``: a micro-step on an average rank of the stage
    while the pipeline fills, with every message exposed; ``messages_hidden_s``: the part of its
    messages and exchanges that other micro-batches hide on average.
    ``exchanges_s``: exposed time of each dimension's exchanges in a micro-step, ``in_step_s``: in
    the whole step; ``exchanged_s``: all exchanges of the step, hidden time included. ``tied_s``:
    all-reduce of a table that both ends of the pipeline hold. ``shared_s``: extra time because
    gradients and hidden exchanges share the NICs.
    """

    steps: Steps
    busy_s: Array
    forward_frac: Array
    passing_s: Array
    messages_hidden_s: Array
    exchanges_s: dict[str, Array]
    in_step_s: dict[str, Array]
    exchanged_s: Array
    tied_s: Array
    shared_s: Array

    @property
    def spent_s(self) -> Array:
        """Exposed time of exchanges in the whole step."""
        return sum(self.in_step_s.values(), self.tied_s)

    @property
    def total_s(self) -> Array:
        """Time of the whole step."""
        return self.steps.step_s + self.spent_s + self.shared_s

    def of(self, kind: int) -> StageSteps:
        """The step of one kind of stage, arrays [C]."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        shape, found["steps"] = self.busy_s.shape, self.steps.of_part(kind)
        for name, value in found.items():
            if isinstance(value, dict):
                found[name] = {k: np.broadcast_to(x, shape)[kind] for k, x in value.items()}
            elif name != "steps":
                found[name] = np.broadcast_to(value, shape)[kind]
        return StageSteps(**found)


class Divided(NamedTuple):
    """A divided job: one job for each of ``placed.distinct_stages``, with its part of the model."""

    jobs: tuple[Job, ...]
    placed: Placed


def stage_steps(
    alike: Sequence[Divided],
    points: Points,
    *,
    keep_timeline: bool,
    terms: Collection[str] | None = None,
) -> StageSteps:
    """The steps of the stages of several jobs, of one after another.

    The jobs differ in what recompute changes alone. ``terms``: names of breakdown terms; None for
    all.
    """
    jobs, placed = [job for one in alike for job in one.jobs], alike[0].placed
    needed = None if terms is None else {*terms, *_MICRO_STEP, *_BEFORE}
    local = data_points(points, placed)
    first, tables = jobs[0], [job.table for job in jobs]
    counts = tuple(count for _, count in placed.distinct_stages)
    paces = stage_paces(points, placed.layout, counts, first.classes[0].device_sd_frac)
    spread, waits = first.workload.work_sd_frac, any(t.waits for t in tables)
    of_parts, average = _phases(first, tables, local, paces)
    steps = evaluate_parts(jobs, local, keep_timeline=keep_timeline, terms=needed, phases=of_parts)
    # A micro-batch that passes through all stages meets average ranks on its way.
    computing = together([job.program for job in jobs]).computing
    there, here = (
        pass_seconds(computing, first.strategy, first.classes, local, p, spread, waits)
        for p in (average, of_parts)
    )
    return _with_exchanges(
        alike, points, local, steps, there / np.maximum(here, TINY),
        products_fracs(jobs, placed, local), awaited_s(jobs, local) if waits else 0.0,
    )  # fmt: skip


def awaited_s(jobs: Sequence[Job], points: Points) -> Array:
    """Seconds of a micro-step in which the device of each stage is idle [N, C].

    It waits for host work that depends on its results, and so hides no exchange.
    """
    first, batch = jobs[0], points.micro_batch
    awaited = joined_table(tuple(job.table for job in jobs)).awaited_per_phase
    computing = together([job.program for job in jobs]).computing
    issues = computing.whole[0] @ (awaited[:, :1] + awaited[:, 1:] * batch)
    found: Array = issues * issue_s(first.strategy, first.classes, points)
    return found


def _phases(
    job: Job, tables: Sequence[KernelTable], points: Points, paces: Paces
) -> list[list[Array]]:
    """Device seconds of all kernels on the slowest and on average ranks of their stages.

    ``job``: the first of those with these ``tables``. Strategies that divide nothing but state and
    gradients differently share them.
    """
    how, classes = job.strategy, job.classes
    shape = len(tables), len(points)
    slowest = np.tile(paces.slowest, (len(tables) // len(paces.slowest), 1))
    key = (
        "phases", *map(Same, (joined_table(tuple(tables)), paces, *classes)), job.shares,
        job.workload.work_sd_frac, how.issuer, how.launch_blocking,
    )  # fmt: skip
    return points.keeps(
        key,
        lambda: phases_of_parts(
            how, tables, classes, points, job.shares, job.workload.work_sd_frac,
            (slowest, np.broadcast_to(paces.typical, shape)),
        ),
    )  # fmt: skip


def products_fracs(jobs: Sequence[Job], placed: Placed, local: Points) -> Array | None:
    """Share of each stage's compute that its matrix products take [N, C].

    None where no exchange hides under its own product.
    """
    if not any(pair.by_products for ranks in placed.dimensions for pair in ranks.pairs):
        return None
    table, rates = joined_table(tuple(job.table for job in jobs)), jobs[0].classes[0].kernels
    first, of_column = distinct_columns((local.micro_batch, local.memory))
    pairs = (tuple(column[first].tolist()) for column in (local.micro_batch, local.memory))
    computing = together([job.program for job in jobs]).computing
    whole, products = computing.whole[0] @ _phases_and_products(table, rates, *pairs)
    fracs: Array = products / np.maximum(whole, TINY)
    return fracs[:, of_column]


@lru_cache(maxsize=256)
def _phases_and_products(
    table: KernelTable, rates: KernelRates, batches: tuple[float, ...], memory: tuple[float, ...]
) -> Array:
    """Seconds of all kernels of each phase, and of its matrix products [2, P, M].

    For pairs of batch and multiplier on bandwidth; jobs that differ in accumulation share them.
    """
    one = np.ones(len(batches))
    seconds = kernel_seconds(table, rates, np.array(batches), one, np.array(memory))
    products = np.zeros_like(seconds)
    products[table.products.rows] = seconds[table.products.rows]
    found: Array = np.add.reduceat(np.stack([seconds, products]), table.phase_start, axis=1)
    return found


def _with_exchanges(
    alike: Sequence[Divided], points: Points, local: Points, steps: Steps, pace: Array,
    products: Array | None, idle_s: Array | float,
) -> StageSteps:  # fmt: skip
    """The steps of the stages of jobs from ``steps`` without exchanges.

    ``points``: of the whole job, ``local``: of each stage's; ``pace`` [N, C]: compute time of
    average ranks over that of the slowest ones; ``products`` [N, C]: ``products_fracs``;
    ``idle_s`` [N, C]: the part of a micro-step in which the device waits for its host.
    """
    layout, placed = alike[0].placed.layout, joined([one.placed for one in alike])
    # Recompute decides how often something is exchanged, not what one exchange is.
    exchanges = replace(exchanges_of(points, alike[0].placed), placed=placed)
    slowdown = alike[0].jobs[0].classes[0].overlap_slowdown_frac / points.overlap
    busy, share = micro_step_s(steps, local), forward_share(steps)
    stages = [(one.placed.stages[i], i, behind) for one in alike for (i, _), behind in
              zip(one.placed.distinct_stages, one.placed.behind, strict=True)]  # fmt: skip
    n_layers = np.array([[float(stage.n_layers)] for stage, *_ in stages])
    whole_s, sent_s = exchanges.of_stage(n_layers), exchanges.collectives_s(n_layers)
    alone = alone_frac(placed, points.grad_accum)
    kernels_s = busy - idle_s
    products_s = kernels_s if products is None else kernels_s * products
    exchange = exposed(whole_s, placed, kernels_s, slowdown, alone, products_s)
    earlier = beside_host(exchange, placed, busy, steps.host_micro_s)
    filling = exposed(whole_s, placed, kernels_s, slowdown, 1.0, products_s)
    filling = beside_host(filling, placed, busy, steps.host_micro_s)
    spent = sum(filling.values(), np.zeros(len(points)))
    once = np.maximum(busy * pace, steps.host_micro_s) + spent
    shared = shared_nic_s(steps, whole_s, exchange, placed, local, slowdown)
    hidden = spent - sum(earlier.values(), np.zeros(len(points)))
    if placed.hides_messages:
        sent, halves = exchange[TRANSFER], (busy * share, busy * (1.0 - share))
        behind, count = np.array([[float(n)] for *_, n in stages]), local.grad_accum
        seen = placed.schedule.exposed_messages_s(layout, behind, count, sent, halves, slowdown)
        exchange, hidden = {**exchange, TRANSFER: seen}, hidden + sent - seen
        earlier = {**earlier, TRANSFER: seen}
    last = _last(exchange, placed, busy, steps)
    at_an_end = np.array([[index in (0, layout.pp - 1)] for _, index, _ in stages])
    ends = tied_s(points, placed) * at_an_end
    return StageSteps(
        steps=steps,
        busy_s=busy,
        forward_frac=share,
        passing_s=once,
        messages_hidden_s=hidden,
        exchanges_s=earlier,
        in_step_s={n: (local.grad_accum - 1.0) * earlier[n] + last[n] for n in exchange},
        exchanged_s=sum((local.grad_accum * x for x in sent_s.values()), ends),
        tied_s=ends,
        shared_s=shared,
    )


def _last(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, steps: Steps
) -> dict[str, Array]:
    """Exposed time of the exchanges of the last micro-step, by dimension.

    Work that runs once, before it, uses some of the time for which the host is behind. Where
    gradients are sent during its backward they may delay the step instead of the host; then no
    exchange is taken to be hidden by a slow host.
    """
    before = sum(steps.terms_s.get(name, 0.0) for name in _BEFORE)
    seen = beside_host(exchange, placed, busy_s + before, steps.host_micro_s)
    alone = steps.comm_beside_s <= 0
    return {name: np.where(alone, x, exchange[name]) for name, x in seen.items()}


def micro_step_s(steps: Steps, points: Points) -> Array:
    """Compute seconds of one micro-step [C], with the gradient sum where there are several."""
    once = steps.terms_s["forward"] + steps.terms_s["backward"]
    more = np.maximum(points.grad_accum - 1.0, 1.0)
    return np.where(points.grad_accum > 1, steps.terms_s["accumulation"] / more, once)


def forward_share(steps: Steps) -> Array:
    """Share of a micro-step's compute that is forward."""
    forward, backward = steps.terms_s["forward"], steps.terms_s["backward"]
    return forward / np.maximum(forward + backward, TINY)


def of_slowest(terms_s: dict[str, Array], slowest: NDArray[np.intp]) -> dict[str, Array]:
    """The terms [N, C] of the slowest kind of stage of each configuration [C]."""
    if (slowest == slowest[0]).all():
        return {name: x[slowest[0]] for name, x in terms_s.items()}
    return {name: x[slowest, np.arange(len(slowest))] for name, x in terms_s.items()}
