"""The step of a model replica that is divided over tensor, context, expert and pipeline ranks.

Each pipeline stage is a job of its own on its data-parallel group. The exchanges of tensor, context
and expert ranks delay compute unless the job overlaps them, and are added to every micro-step. The
pipeline adds the time that stages wait for each other, by its schedule (``step.schedules``).

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from simcore.base.arrays import NDArray
from simcore.request.placed import Placed
from simcore.timing.evaluate import Job, Steps
from simcore.timing.micro_step import of_slowest
from simcore.timing.points import Points
from simcore.timing.stage_steps import stage_steps

Array = NDArray[np.float64]


def evaluate_layout(
    jobs: tuple[Job, ...],
    placed: Placed,
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> Steps:
    """The step time of the stage that holds up all others: its work, exchanges and waiting.

    ``jobs``: one for each of ``placed.distinct_stages``, which differ only in their part of the
    model. ``terms``: names of breakdown terms; None for all.
    """
    parts = stage_steps(jobs, placed, points, keep_timeline=keep_timeline, terms=terms)
    runs = [part for part, _ in placed.runs]
    bubbles = placed.schedule.bubble_s(
        placed.layout,
        np.stack([p.passing_s * p.forward_frac for p in parts])[runs],
        np.stack([p.passing_s * (1.0 - p.forward_frac) for p in parts])[runs],
        [n for _, n in placed.runs],
        points.grad_accum / placed.schedule.directions,
    )
    whole = np.stack([p.total_s for p in parts])[runs] + bubbles
    held_up = np.argmax(whole, axis=0)
    slowest = np.array(runs)[held_up]
    step, bubble = (x[held_up, np.arange(len(points))] for x in (whole, bubbles))
    of_stages = [
        {
            name: x
            for name, x in (*p.steps.terms_s.items(), *p.in_step_s.items())
            if terms is None or name in terms
        }
        for p in parts
    ]
    held = parts[int(slowest[0])]
    steps = held.steps
    return Steps(
        step_s=step,
        makespan_s=step,
        load_period_s=steps.load_period_s,
        comm_s=steps.comm_s + held.exchanged_s,
        comm_beside_s=steps.comm_beside_s,
        terms_s={**of_slowest(of_stages, slowest), "pipeline bubble": bubble},
        host_micro_s=steps.host_micro_s,
        timeline=steps.timeline,
        micro_steps_s=np.stack([p.passing_s - p.messages_hidden_s for p in parts]),
    )
