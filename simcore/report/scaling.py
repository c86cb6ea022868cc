"""A scaling curve as text: one line per cluster, with a bar for its efficiency and interval."""

from __future__ import annotations

from simcore.answer.scaling import Scaling
from simcore.base.figures import Interval
from simcore.report.formatting import WIDTH, figure, percent, plural
from simcore.report.tables import table

#: Widths of the efficiency bar in characters; the first with which the table fits is used.
BARS = (20, 16, 12, 10)


def bar(frac: Interval, width: int) -> str:
    """An efficiency as a bar such as ``==|====---``; ``width`` characters are 100 %.

    ``=`` up to the value, ``|`` at the low end of its interval, ``-`` up to the high end.
    """
    at = max(0, min(width, round(frac.value * width)))
    low = max(0, min(at, round(frac.low * width)))
    high = max(at, min(width, round(frac.high * width)))
    drawn = ["="] * at + ["-"] * (high - at)
    if 0 < low < at:
        drawn[low - 1] = "|"
    return "".join(drawn)


def render_scaling(s: Scaling) -> str:
    """The curve as text of 80 columns; ``*`` marks clusters on which the job does not fit."""
    drawn = ""
    for width in BARS:
        drawn = _table(s, width)
        if max(map(len, drawn.splitlines())) <= WIDTH:
            break
    lines = [
        f"{s.model} on {s.gpu}, {s.strategy}, micro-batch {s.micro_batch:,} at every size",
        "",
        drawn,
        "",
        "= efficiency, | and - its 80 % interval",
    ]
    for over in dict.fromkeys(m.over for m in s.measured):
        lines.append(f"measured: the speed-up over the {over} rate of one GPU")
    if any(not p.fits for p in s.points):
        lines.append("* does not fit in memory")
    return "\n".join(lines) + "\n"


def _table(s: Scaling, width: int) -> str:
    measured = {m.n_gpus: figure(m.speedup) for m in s.measured}
    head = ["GPUs", f"{plural(s.sample_unit)}/s", "speed-up", "80 %", "effic.",
            f"0{'100 %':>{width - 1}}"]  # fmt: skip
    rows = [
        [
            f"{p.n_gpus:,}{'' if p.fits else '*'}",
            figure(p.samples_per_s.value),
            figure(p.speedup.value),
            f"{figure(p.speedup.low)} to {figure(p.speedup.high)}",
            percent(p.efficiency_frac.value),
            bar(p.efficiency_frac, width),
        ]
        for p in s.points
    ]
    if measured:
        head.append("measured")
        rows = [[*row, measured.get(p.n_gpus, "")] for row, p in zip(rows, s.points, strict=True)]
    return table(head, rows, right=(0, 1, 2, 3, 4, 6))
