"""One optimizer step of each kind of pipeline stage, without the time that stages wait.

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.base.record import dataclass
from simcore.request.placed import Placed
from simcore.step.together import together
from simcore.timing.compute import pass_seconds, phases_of_parts
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
from simcore.timing.micro_step import forward_share, micro_step_s
from simcore.timing.points import Points
from simcore.timing.stage_rates import stage_paces

Array = NDArray[np.float64]

#: Breakdown terms that a micro-step consists of.
_MICRO_STEP = ("forward", "backward", "accumulation")
#: Breakdown terms of work that the device does once a step, before its last micro-step.
_BEFORE = ("input copy", "frozen")


@dataclass(frozen=True)
class StageStep:
    """One step of a stage, without waiting for other stages.

    ``steps``: its data-parallel job alone. ``busy_s``: compute of a micro-step, of which the share
    ``forward_frac`` is forward. ``passing_s``: a micro-step on an average rank of the stage while
    the pipeline fills, with every message exposed; ``messages_hidden_s``: the part of its messages
    and exchanges that other micro-batches hide on average.
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
        found: Array = self.steps.step_s + self.spent_s + self.shared_s
        return found


def stage_steps(
    jobs: tuple[Job, ...],
    placed: Placed,
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> list[StageStep]:
    """The step of each of ``placed.distinct_stages``, whose jobs differ only in their part.

    ``terms``: names of breakdown terms; None for all.
    """
    layout = placed.layout
    needed = None if terms is None else {*terms, *_MICRO_STEP, *_BEFORE}
    local = data_points(points, placed)
    exchanges = exchanges_of(points, placed)
    first, tables = jobs[0], [job.table for job in jobs]
    counts = tuple(count for _, count in placed.distinct_stages)
    paces = stage_paces(points, layout, counts, first.classes[0].device_sd_frac)
    spread, waits = first.workload.work_sd_frac, any(t.waits for t in tables)
    of_parts, average = phases_of_parts(
        first.strategy, tables, first.classes, local, first.shares, spread,
        (paces.slowest, np.broadcast_to(paces.typical, paces.slowest.shape)),
    )  # fmt: skip
    every = evaluate_parts(jobs, local, keep_timeline=keep_timeline, terms=needed, phases=of_parts)
    # A micro-batch that passes through all stages meets average ranks on its way.
    computing = together([job.program for job in jobs]).computing
    there, here = (
        pass_seconds(computing, first.strategy, first.classes, local, p, spread, waits)
        for p in (average, of_parts)
    )
    slowdown = first.classes[0].overlap_slowdown_frac / points.overlap
    tied = tied_s(points, placed)
    alone = alone_frac(placed, points.grad_accum)
    found = []
    for n, (steps, (index, _)) in enumerate(zip(every, placed.distinct_stages, strict=True)):
        busy = micro_step_s(steps, local)
        n_layers = placed.stages[index].n_layers
        whole_s, sent_s = exchanges.of_stage(n_layers), exchanges.collectives_s(n_layers)
        exchange = exposed(whole_s, placed, busy, slowdown, alone)
        earlier = beside_host(exchange, placed, busy, steps.host_micro_s)
        filling = exposed(whole_s, placed, busy, slowdown, 1.0)
        filling = beside_host(filling, placed, busy, steps.host_micro_s)
        spent = sum(filling.values(), np.zeros(len(points)))
        passing = busy * there[n] / np.maximum(here[n], TINY)
        once = np.maximum(passing, steps.host_micro_s) + spent
        shared = shared_nic_s(steps, whole_s, exchange, placed, local, slowdown)
        share = forward_share(steps)
        hidden = spent - sum(earlier.values(), np.zeros(len(points)))
        if placed.hides_messages:
            sent, halves = exchange[TRANSFER], (busy * share, busy * (1.0 - share))
            behind, count = placed.behind[n], local.grad_accum
            seen = placed.schedule.exposed_messages_s(layout, behind, count, sent, halves, slowdown)
            exchange, hidden = {**exchange, TRANSFER: seen}, hidden + sent - seen
            earlier = {**earlier, TRANSFER: seen}
        last = _last(exchange, placed, busy, steps)
        ends = tied * (index in (0, layout.pp - 1))
        in_step = {name: (local.grad_accum - 1.0) * earlier[name] + last[name] for name in exchange}
        found.append(
            StageStep(
                steps=steps,
                busy_s=busy,
                forward_frac=share,
                passing_s=once,
                messages_hidden_s=hidden,
                exchanges_s=earlier,
                in_step_s=in_step,
                exchanged_s=sum((local.grad_accum * x for x in sent_s.values()), ends),
                tied_s=ends,
                shared_s=shared,
            )
        )
    return found


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
