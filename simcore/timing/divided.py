"""The step of a model replica that is divided over tensor, context, expert and pipeline ranks.

Each pipeline stage is a job of its own on its data-parallel group. The exchanges of tensor, context
and expert ranks delay compute unless the job overlaps them, and are added to every micro-step. The
pipeline adds the time that stages wait for each other, by its schedule (``step.schedules``).

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from simcore.request.placed import Placed
from simcore.timing.evaluate import Steps
from simcore.timing.points import Points
from simcore.timing.stage_steps import Divided, StageSteps, of_slowest, stage_steps


def evaluate_layouts(
    alike: Sequence[Divided],
    points: Points,
    *,
    keep_timeline: bool,
    terms: Collection[str] | None = None,
) -> list[Steps]:
    """The step times of divided jobs that differ in what recompute changes alone.

    ``terms``: names of breakdown terms; None for all.
    """
    each = stage_steps(alike, points, keep_timeline=keep_timeline, terms=terms)
    return [
        _in_pipeline(one.placed, parts, points, terms)
        for one, parts in zip(alike, each, strict=True)
    ]


def _in_pipeline(
    placed: Placed, parts: StageSteps, points: Points, terms: Collection[str] | None
) -> Steps:
    """The step time of the stage that holds up all others: its work, exchanges and waiting."""
    runs = [part for part, _ in placed.runs]
    bubbles = placed.schedule.bubble_s(
        placed.layout,
        (parts.passing_s * parts.forward_frac)[runs],
        (parts.passing_s * (1.0 - parts.forward_frac))[runs],
        [n for _, n in placed.runs],
        points.grad_accum / placed.schedule.directions,
    )
    whole = parts.total_s[runs] + bubbles
    held_up = np.argmax(whole, axis=0)
    slowest = np.array(runs)[held_up]
    step, bubble = (x[held_up, np.arange(len(points))] for x in (whole, bubbles))
    lines = {
        name: x
        for name, x in (*parts.steps.terms_s.items(), *parts.in_step_s.items())
        if terms is None or name in terms
    }
    held = int(slowest[0])
    steps = parts.steps.of_part(held)
    return Steps(
        step_s=step,
        makespan_s=step,
        load_period_s=steps.load_period_s,
        comm_s=steps.comm_s + parts.exchanged_s[held],
        comm_beside_s=steps.comm_beside_s,
        terms_s={**of_slowest(lines, slowest), "pipeline bubble": bubble},
        host_micro_s=steps.host_micro_s,
        timelines=() if steps.timeline is None else (steps.timeline,),
        micro_steps_s=parts.passing_s - parts.messages_hidden_s,
    )
