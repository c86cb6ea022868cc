"""The simulated schedule of a fleet of jobs as text."""

from __future__ import annotations

from simcore.base.units import HOUR, format_seconds
from simcore.planning.fleet import Fleet
from simcore.report.formatting import counted, figure, labelled, percent
from simcore.report.text_of import text_of


@text_of.register
def render_fleet(f: Fleet) -> str:
    """Jobs, utilisation, waiting times and preemptions of a fleet as text of 80 columns."""
    waits = ", ".join(f"p{q} {format_seconds(f.wait_s(q / 100))}" for q in (50, 90, 95, 99))
    lines = [
        f"FLEET       {counted(len(f.done), 'job')} on {f.gpus:,} GPUs, {f.policy}, "
        f"{format_seconds(f.makespan_s)} until the last ends",
        f"USED        {percent(f.utilisation_frac)} of all GPU time",
        *labelled("WAIT", f"mean {format_seconds(f.mean_wait_s)}, {waits}"),
    ]
    if f.preemptions:
        lines.append(
            f"PREEMPTED   {f.preemptions:,} times, {figure(f.lost_gpu_s / HOUR)} GPU-hours lost"
        )
    return "\n".join(lines) + "\n"
