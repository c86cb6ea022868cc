"""A scaling curve as text: one line a cluster, its efficiency drawn with its interval."""

from __future__ import annotations

from simcore.base.interval import Interval
from simcore.engine.scaling import Scaling
from simcore.report.tables import table
from simcore.report.words import figure, percent

#: Characters of the drawn efficiency: one for each 5 %.
BAR = 20


def bar(frac: Interval) -> str:
    """An efficiency as ``=====-----``: ``=`` up to it, ``-`` where its interval ends, 100 % full.

    The low end of the interval is marked with ``|``.
    """
    at = max(0, min(BAR, round(frac.value * BAR)))
    low = max(0, min(at, round(frac.low * BAR)))
    high = max(at, min(BAR, round(frac.high * BAR)))
    drawn = ["="] * at + ["-"] * (high - at)
    if 0 < low < at:
        drawn[low - 1] = "|"
    return "".join(drawn)


def render_scaling(s: Scaling) -> str:
    """The curve in 80 columns; ``*`` marks what does not fit."""
    measured = {m.n_gpus: m for m in s.measured}
    rows = []
    for p in s.points:
        found = measured.get(p.n_gpus)
        rows.append(
            [
                f"{p.n_gpus:,}{'' if p.fits else '*'}",
                figure(p.samples_per_s.value),
                figure(p.speedup.value),
                f"{figure(p.speedup.low)} to {figure(p.speedup.high)}",
                percent(p.efficiency_frac.value),
                bar(p.efficiency_frac),
                figure(found.speedup) if found else "",
            ]
        )
    unit = f"{s.sample_unit}s/s" if not s.sample_unit.endswith("s") else f"{s.sample_unit}/s"
    head = ["GPUs", unit, "speed-up", "80 %", "effic.", f"0{'100 %':>{BAR - 1}}", "measured"]
    lines = [
        f"{s.model} on {s.gpu}, {s.strategy}, micro-batch {s.micro_batch:,} kept",
        "",
        table(head, rows, right=(0, 1, 2, 3, 4, 6)),
        "",
        "= efficiency, | and - its 80 % interval",
    ]
    if any(m.over == "predicted" for m in s.measured):
        lines.append("measured: the speed-up over the predicted rate of one GPU")
    elif s.measured:
        lines.append("measured: the speed-up over the measured rate of one GPU")
    if any(not p.fits for p in s.points):
        lines.append("* does not fit in memory")
    return "\n".join(lines) + "\n"
