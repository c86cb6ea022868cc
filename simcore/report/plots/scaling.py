"""Speed-up and efficiency against the number of GPUs, with 80 % intervals and measured points."""

from __future__ import annotations

from matplotlib.axes import Axes

from simcore.answer.scaling import MeasuredPoint, Scaling, ScalingPoint
from simcore.base.units import PERCENT
from simcore.report.plots.canvas import (
    BLUE,
    INK,
    SKY,
    SMALL,
    VERMILION,
    Drawing,
    canvas,
    finish,
    label_counts,
)

#: The mark of a measured speed-up, by whether the rate of one GPU is measured or predicted.
_MARKS = {
    "measured": {"marker": "D", "markerfacecolor": VERMILION},
    "predicted": {"marker": "s", "markerfacecolor": "white"},
}
_OVER = {
    "measured": "measured",
    "predicted": "measured, over the predicted one GPU",
}


def draw(scaling: Scaling) -> Drawing:
    """Two panels over the number of GPUs on a logarithmic axis: speed-up and efficiency."""
    figure = canvas(8.0, 4.2)
    left, right = figure.subplots(1, 2)
    gpus = [p.n_gpus for p in scaling.points]
    left.plot(gpus, gpus, linestyle=":", color=INK, linewidth=1.2, label="ideal")
    _curve(left, scaling, "speedup", 1.0)
    left.set_yscale("log")
    label_counts(left.yaxis, _apart(gpus))
    left.set_ylim(0.9 * min(p.speedup.low for p in scaling.points), 1.25 * max(gpus))
    finish(left, f"{scaling.model} on {scaling.gpu}", "GPUs", "speed-up over one GPU")
    right.axhline(PERCENT, linestyle=":", color=INK, linewidth=1.2)
    _curve(right, scaling, "efficiency_frac", PERCENT)
    right.set_ylim(0.0, 112.0)
    title = f"{scaling.strategy}, micro-batch {scaling.micro_batch} at every size"
    finish(right, title, "GPUs", "scaling efficiency [%]")
    for axes in (left, right):
        axes.set_xscale("log")
        label_counts(axes.xaxis, _apart(gpus))
        axes.set_xlim(min(gpus) * 0.9, max(gpus) * 1.12)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=SMALL,
                  frameon=False)  # fmt: skip
    return figure


def _curve(axes: Axes, scaling: Scaling, what: str, scale: float) -> None:
    points = scaling.points
    gpus = [p.n_gpus for p in points]
    values = [getattr(p, what) for p in points]
    axes.fill_between(
        gpus, [scale * i.low for i in values], [scale * i.high for i in values], facecolor=SKY,
        alpha=0.45, edgecolor=BLUE, linewidth=0.8, label="80 % interval",
    )  # fmt: skip
    axes.plot(gpus, [scale * i.value for i in values], "o-", color=BLUE, markersize=5,
              linewidth=1.8, label="predicted")  # fmt: skip
    _unfit(axes, points, what, scale)
    for over, style in _MARKS.items():
        rows = [m for m in scaling.measured if m.over == over]
        if rows:
            axes.plot(
                [m.n_gpus for m in rows], [scale * _measured(m, what) for m in rows],
                linestyle="none", markeredgecolor=INK, markersize=8, zorder=5, label=_OVER[over],
                **style,  # type: ignore[arg-type]
            )  # fmt: skip


def _unfit(axes: Axes, points: tuple[ScalingPoint, ...], what: str, scale: float) -> None:
    """Cross out the points that do not fit in memory."""
    rows = [p for p in points if not p.fits]
    if rows:
        axes.plot([p.n_gpus for p in rows], [scale * getattr(p, what).value for p in rows], "x",
                  color="black", markersize=10, markeredgewidth=2.2, zorder=6,
                  label="does not fit")  # fmt: skip


def _measured(point: MeasuredPoint, what: str) -> float:
    return point.speedup if what == "speedup" else point.speedup / point.n_gpus


def _apart(gpus: list[int]) -> list[int]:
    """The numbers of GPUs of the curve, without those whose labels would overlap."""
    ticks: list[int] = []
    for n in gpus:
        if not ticks or n / ticks[-1] >= (max(gpus) / min(gpus)) ** 0.07:
            ticks.append(n)
    return ticks
