"""The roofline plot: a model's ops against the peak and the memory bandwidth of a GPU."""

from __future__ import annotations

from math import hypot, log10

from matplotlib.axes import Axes

from simcore.answer.views import OpPoint, Roofline
from simcore.base.units import TERA, format_si
from simcore.report.formatting import percent
from simcore.report.plots.canvas import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    TEXT,
    VERMILION,
    YELLOW,
    Drawing,
    finish,
    plain_numbers,
    single,
)

#: Mark and colour by kind of kernel; variants such as conv_winograd have those of their kind.
_KINDS = {
    "gemm": ("o", BLUE),
    "conv": ("s", GREEN),
    "attention": ("^", VERMILION),
    "chunk": ("p", YELLOW),
    "elementwise": ("v", SKY),
    "norm": ("D", ORANGE),
    "softmax": ("P", PURPLE),
    "reduction": ("X", YELLOW),
    "gather": ("<", GREY),
    "copy": (">", GREY),
}
#: Area in square points of the mark of an op that takes all of the time, and the smallest area.
_AREA, _LEAST = 1800.0, 14.0
#: The number of ops that are named, and the distance in decades below which ops share a label.
_NAMED, _NEAR = 6, 0.06


def _is_of(op: OpPoint, kind: str) -> bool:
    return op.kind == kind or op.kind.startswith(f"{kind}_")


def draw(data: Roofline) -> Drawing:
    """One mark per op, its area by the share of the time; the legend sums up ops without FLOP."""
    figure, axes = single(8.0, 4.8)
    total = sum(op.time_s for op in data.ops)
    shown = [op for op in data.ops if op.flop > 0 and op.n_bytes > 0]
    for kind, (mark, colour) in _KINDS.items():
        rows = [op for op in shown if _is_of(op, kind)]
        if not rows:
            continue
        share = sum(op.time_s for op in data.ops if _is_of(op, kind)) / total
        axes.scatter(
            [op.intensity_flop_per_byte for op in rows],
            [op.achieved_flop_per_s / TERA for op in rows],
            s=[max(_LEAST, _AREA * op.time_s / total) for op in rows],
            marker=mark, facecolor=colour, edgecolor=INK, linewidth=0.7, alpha=0.75, zorder=4,
            label=f"{kind}, {percent(share)} of the time",
        )  # fmt: skip
    moved = sum(op.time_s for op in data.ops if op not in shown) / total
    low = min((op.intensity_flop_per_byte for op in shown), default=1.0) / 2
    high = max((op.intensity_flop_per_byte for op in shown), default=1.0)
    low, high = min(low, data.ridge_flop_per_byte / 30), 4 * max(high, data.ridge_flop_per_byte)
    roof = [low, data.ridge_flop_per_byte, high]
    peak = data.peak_flop_per_s / TERA
    axes.plot(roof, [low * data.bw_bytes_per_s / TERA, peak, peak], color="black", linewidth=2.0,
              label=f"datasheet: {format_si(data.peak_flop_per_s, 'FLOP/s')}, "
                    f"{format_si(data.bw_bytes_per_s, 'B/s')}")  # fmt: skip
    axes.axvline(data.ridge_flop_per_byte, color=INK, linestyle=":", linewidth=1.0)
    _name(axes, shown, total)
    axes.set(xscale="log", yscale="log", xlim=(low, high))
    slowest = min((op.achieved_flop_per_s / TERA for op in shown), default=peak / 100)
    axes.set_ylim(max(slowest / 2, peak / 20000), 3.0 * peak)
    bottom, top = axes.get_ylim()
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis, subs=(1.0, 2.0, 5.0) if top / bottom < 100 else (1.0,))
    title = (
        f"{data.model} in {data.precision} on {data.gpu}, micro-batch {data.micro_batch:g}: "
        "ops of one micro-step"
    )
    finish(axes, title, "arithmetic intensity [FLOP/byte]", "predicted rate [TFLOP/s]")
    if moved > 0.001:
        axes.plot([], [], " ", label=f"ops without FLOP: {percent(moved)} of the time")
    legend = axes.legend(loc="lower right", fontsize=SMALL, framealpha=0.95, markerscale=1.0)
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([45.0])
    return figure


def _name(axes: Axes, ops: list[OpPoint], total_s: float) -> None:
    """Number the ops that take longest and list them; ops close to each other share a number."""
    places: list[tuple[float, float, list[OpPoint]]] = []
    for op in ops[:_NAMED]:
        x, y = log10(op.intensity_flop_per_byte), log10(op.achieved_flop_per_s / TERA)
        near = next((p for p in places if hypot(p[0] - x, p[1] - y) < _NEAR), None)
        if near is None:
            places.append((x, y, [op]))
        else:
            near[2].append(op)
    lines = ["ops that take longest, share of the time"]
    for number, (x, y, here) in enumerate(places, 1):
        axes.annotate(
            str(number), (10**x, 10**y), xytext=(0, 22), textcoords="offset points", ha="center",
            va="center", fontsize=TEXT, zorder=7, bbox={"boxstyle": "circle,pad=0.2",
            "facecolor": "white", "edgecolor": INK, "linewidth": 0.7},
            arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.7},
        )  # fmt: skip
        for op in here:
            lines.append(f"{number}  {op.name} {op.part}, {percent(op.time_s / total_s)}")
    axes.text(0.02, 0.97, "\n".join(lines), transform=axes.transAxes, ha="left", va="top",
              fontsize=SMALL, linespacing=1.35, zorder=7,
              bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2.0},
              )  # fmt: skip
