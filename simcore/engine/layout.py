"""A step of a replica that is cut over ranks: tensor, context, expert and pipeline parallelism.

Each pipeline stage is a job of its own on its data-parallel group. What tensor, context and
expert ranks exchange stands in the way of compute, unless the job overlaps it, and is added to
every micro-step. The pipeline adds what its stages wait for each other (physics.pipeline): for 1F1B
and its interleaved form (Narayanan et al. 2021); nothing for zero-bubble schedules (Qi et al.
2023).

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.engine import messages
from simcore.engine.compute import pass_seconds, phases_of_parts
from simcore.engine.evaluate import Job, Steps, evaluate_parts
from simcore.engine.exchanges import (
    TRANSFER,
    beside_host,
    data_points,
    exchanges_of,
    exposed,
    shared_nic_s,
    tied_s,
)
from simcore.engine.micro_step import forward_share, micro_step_s, of_slowest
from simcore.engine.pace import stage_paces
from simcore.engine.placed import Placed
from simcore.engine.points import Points
from simcore.physics.pipeline import bubble_s
from simcore.step.together import together

Array = NDArray[np.float64]

#: Terms of a stage's breakdown that its micro-step is made of.
_MICRO_STEP = ("forward", "backward", "accumulation")
#: Terms of what the device does once a step, before its last micro-step.
_BEFORE = ("input copy", "frozen")


def evaluate_layout(
    jobs: tuple[Job, ...],
    placed: Placed,
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> Steps:
    """The step of the stage that holds up the others: its own, exchanges, and its waiting.

    ``jobs``: of each of ``placed.distinct_stages``, alike but for their part of the model.
    ``terms``: of the breakdown, None: all.
    """
    layout = placed.layout
    needed = None if terms is None else {*terms, *_MICRO_STEP, *_BEFORE}
    local = data_points(points, placed)
    exchanges = exchanges_of(points, placed)
    first, n_parts = jobs[0], len(jobs)
    tables = [job.table for job in jobs]
    counts = tuple(count for _, count in placed.distinct_stages)
    paces = stage_paces(points, layout, counts, first.classes[0].device_sd_frac)
    spread = first.workload.work_sd_frac
    phases = phases_of_parts(
        first.strategy, tables * 2, first.classes, local, first.shares, spread,
        np.concatenate([paces.slowest, [paces.typical] * n_parts]),
    )  # fmt: skip
    of_parts, average = (
        [np.concatenate(of_class) for of_class in zip(*half, strict=True)]
        for half in (phases[:n_parts], phases[n_parts:])
    )
    every = evaluate_parts(jobs, local, keep_timeline=keep_timeline, terms=needed, phases=of_parts)
    # What passes through all stages meets average ones on its way.
    computing = together([job.program for job in jobs]).computing
    there, here = (
        pass_seconds(computing, first.strategy, first.classes, local, p, spread)
        for p in (average, of_parts)
    )
    slowdown = first.classes[0].overlap_slowdown_frac / points.overlap
    tied = tied_s(points, placed)
    totals, forwards, backwards, own, parts = [], [], [], [], []
    for n, (steps, (index, _)) in enumerate(zip(every, placed.distinct_stages, strict=True)):
        busy = micro_step_s(steps, local)
        whole_s = exchanges.of_stage(placed.stages[index].n_layers)
        exchange = exposed(whole_s, placed, busy, slowdown)
        earlier = beside_host(exchange, placed, busy, steps.host_micro_s)
        spent = sum(earlier.values(), np.zeros(len(points)))
        passing = busy * there[n] / np.maximum(here[n], TINY)
        once = np.maximum(passing, steps.host_micro_s) + spent
        shared = shared_nic_s(steps, whole_s, exchange, placed, local, slowdown)
        share = forward_share(steps)
        hidden = np.zeros(len(points))
        if placed.hides_messages:
            sent, halves = exchange[TRANSFER], (busy * share, busy * (1.0 - share))
            behind, count = placed.behind[n], local.grad_accum
            seen = messages.seen_s(layout, behind, count, sent, halves, slowdown)
            exchange, hidden = {**exchange, TRANSFER: seen}, sent - seen
            earlier = {**earlier, TRANSFER: seen}
        last = _last(exchange, placed, busy, steps)
        in_step = {name: (local.grad_accum - 1.0) * earlier[name] + last[name] for name in exchange}
        spent = sum(in_step.values(), tied * (index in (0, layout.pp - 1)))
        totals.append(steps.step_s + spent + shared)
        forwards.append(once * share)
        backwards.append(once * (1.0 - share))
        own.append(once - hidden)
        parts.append((steps, in_step, spent))
    runs = [part for part, _ in placed.runs]
    bubbles = bubble_s(
        layout.schedule,
        np.stack(forwards)[runs],
        np.stack(backwards)[runs],
        [n for _, n in placed.runs],
        local.grad_accum,
        layout.vpp,
    )
    whole = np.stack(totals)[runs] + bubbles
    held_up = np.argmax(whole, axis=0)
    slowest = np.array(runs)[held_up]
    step, bubble = (x[held_up, np.arange(len(points))] for x in (whole, bubbles))
    steps, _, spent = parts[int(slowest[0])]
    of_stages = [
        {
            name: x
            for name, x in (
                *s.terms_s.items(),
                *in_step.items(),
            )
            if terms is None or name in terms
        }
        for s, in_step, _ in parts
    ]
    return Steps(
        step_s=step,
        makespan_s=step,
        load_period_s=steps.load_period_s,
        restart_s=steps.restart_s,
        comm_s=steps.comm_s + spent,
        comm_beside_s=steps.comm_beside_s,
        terms_s={**of_slowest(of_stages, slowest), "pipeline bubble": bubble},
        host_micro_s=steps.host_micro_s,
        timeline=steps.timeline,
        micro_steps_s=np.stack(own),
    )


def _last(
    exchange: dict[str, Array], placed: Placed, busy_s: Array, steps: Steps
) -> dict[str, Array]:
    """What is seen of the exchanges of the last micro-step.

    What comes once, and before it, takes of the room that its host leaves. Where gradients travel
    beside its backward they may hold up the step instead of the host: then no room is counted on.
    """
    before = sum(steps.terms_s.get(name, 0.0) for name in _BEFORE)
    seen = beside_host(exchange, placed, busy_s + before, steps.host_micro_s)
    alone = steps.comm_beside_s <= 0
    return {name: np.where(alone, x, exchange[name]) for name, x in seen.items()}
