"""The step of a model replica that is divided over tensor, context, expert and pipeline ranks.

Each pipeline stage is a job of its own on its data-parallel group. The exchanges of tensor, context
and expert ranks delay compute unless the job overlaps them, and are added to every micro-step. The
pipeline adds the time that stages wait for each other, by its schedule (``step.schedules``).

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import replace
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
    parts = stage_steps(alike, points, keep_timeline=keep_timeline, terms=terms)
    return _in_pipeline(alike[0].placed, parts, points, terms)


def _in_pipeline(
    placed: Placed, parts: StageSteps, points: Points, terms: Collection[str] | None
) -> list[Steps]:
    """The step time of the stage that holds up all others: its work, exchanges and waiting.

    Of each of several jobs with pipelines as in ``placed``, one after another in ``parts``.
    """
    runs, n_kinds, n = [part for part, _ in placed.runs], len(placed.distinct_stages), len(points)
    n_jobs = len(parts.busy_s) // n_kinds

    def of_runs(seconds: Array) -> Array:
        """The jobs' points one after another [runs, jobs x C]."""
        by_job = seconds.reshape(n_jobs, n_kinds, n)
        return by_job.swapaxes(0, 1)[runs].reshape(len(runs), -1)

    bubbles = placed.schedule.bubble_s(
        placed.layout,
        of_runs(parts.passing_s * parts.forward_frac),
        of_runs(parts.passing_s * (1.0 - parts.forward_frac)),
        [n for _, n in placed.runs],
        np.tile(points.grad_accum / placed.schedule.directions, n_jobs),
    )
    whole = of_runs(parts.total_s) + bubbles
    held_up = np.argmax(whole, axis=0)
    of_points = held_up, np.arange(len(held_up))
    step, bubble = (seconds[of_points].reshape(n_jobs, n) for seconds in (whole, bubbles))
    slowest = np.array(runs)[held_up].reshape(n_jobs, n) + n_kinds * np.arange(n_jobs)[:, None]
    lines = {
        name: x
        for name, x in (*parts.steps.terms_s.items(), *parts.in_step_s.items())
        if terms is None or name in terms
    }
    passing = (parts.passing_s - parts.messages_hidden_s).reshape(n_jobs, n_kinds, n)
    found = []
    for job in range(n_jobs):
        held = int(slowest[job, 0])
        steps = parts.steps.of_part(held)
        found.append(
            replace(
                steps,
                step_s=step[job],
                makespan_s=step[job],
                comm_s=steps.comm_s + parts.exchanged_s[held],
                terms_s={**of_slowest(lines, slowest[job]), "pipeline bubble": bubble[job]},
                micro_steps_s=passing[job],
            )
        )
    return found
