"""The style of all plots: the figure, colours, hatches, marks and axes.

Areas and series also differ in hatch or mark, so that the plots are readable without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from simcore.report.plots import svg_file

#: Colours that people with colour blindness can distinguish (Okabe & Ito 2002, Color Universal
#: Design).
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT, WHITE = "#999999", "#DDDDDD", "#FFFFFF"
INK = "0.15"
TITLE, TEXT, SMALL = 11, 9, 8

#: Colour and hatch of a term. Neighbours in a stack differ in hatch, so that a grey print will do.
#: All hatches are lines: an area filled with dots takes a hundred kilobytes of SVG.
FILLS: dict[str, tuple[str, str]] = {
    "input_copy": (LIGHT, "xxx"),
    "frozen_networks": (GREEN, "|||"),
    "forward": (SKY, ""),
    "backward": (BLUE, "///"),
    "accumulation": (GREY, "xx"),
    "offload": (PURPLE, "+++"),
    "communication_exposed": (VERMILION, "xx"),
    "pipeline_bubble": (WHITE, "///"),
    "optimizer": (ORANGE, "\\\\\\"),
    "ema": (YELLOW, ""),
    "host": (LIGHT, "|||"),
    "loader": (WHITE, "---"),
    "cuda_context": (LIGHT, "+++"),
    "nccl_buffers": (GREY, "|||"),
    "outside": (LIGHT, "+++"),
    "parameters": (BLUE, "///"),
    "replicas": (PURPLE, "+++"),
    "optimizer_state": (ORANGE, "\\\\\\"),
    "frozen_models": (GREEN, "|||"),
    "gradient_buckets": (VERMILION, "xx"),
    "gradients": (PURPLE, "///"),
    "gradient_copies": (PURPLE, "xxx"),
    "gradient_stubs": (LIGHT, "---"),
    "gathered_parameters": (BLUE, "+++"),
    "autocast_weights": (GREY, "\\\\\\"),
    "activations": (SKY, ""),
    "working_set": (VERMILION, "---"),
    "workspace": (WHITE, "\\\\\\"),
    "allocator_rounding": (WHITE, "xx"),
    "allocator_holes": (LIGHT, ".."),
}
#: Terms of time, and of memory, in the order in which they are stacked.
TIME_ORDER = (
    "input_copy",
    "frozen_networks",
    "forward",
    "backward",
    "accumulation",
    "offload",
    "communication_exposed",
    "pipeline_bubble",
    "optimizer",
    "ema",
    "host",
    "loader",
)
MEMORY_ORDER = (
    "cuda_context",
    "nccl_buffers",
    "parameters",
    "replicas",
    "optimizer_state",
    "ema",
    "frozen_models",
    "gradient_buckets",
    "gradients",
    "gradient_copies",
    "gradient_stubs",
    "gathered_parameters",
    "autocast_weights",
    "activations",
    "working_set",
    "workspace",
    "allocator_rounding",
    "allocator_holes",
)
#: Line styles, marks and colours of the series of a plot; the notebooks use them too.
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
SERIES = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)


class Drawing(Figure):
    """A Figure that a notebook displays as SVG, without pyplot and its global state."""

    def _repr_svg_(self) -> str:
        return svg_file(self)


def canvas(width_in: float = 8.0, height_in: float = 4.5) -> Drawing:
    """An empty figure of the given size in inches."""
    return Drawing(figsize=(width_in, height_in), layout="constrained", facecolor="white")


def single(width_in: float = 8.0, height_in: float = 4.5) -> tuple[Drawing, Axes]:
    """An empty figure of the given size in inches, and its only axes."""
    figure = canvas(width_in, height_in)
    return figure, figure.add_subplot()


def nothing(figure: Drawing, why: str) -> Drawing:
    """The figure with a sentence that says why it shows nothing."""
    figure.text(0.5, 0.5, why, ha="center", fontsize=TEXT)
    return figure


def fill_of(term: str) -> dict[str, Any]:
    """matplotlib's keyword arguments for the area of a term: colour, hatch and outline."""
    colour, hatch = FILLS.get(term, (WHITE, "+++"))
    return {"facecolor": colour, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6,
            "hatch_linewidth": 0.5}  # fmt: skip


def plain(axes: Axes, *, grid: str | None = "y") -> None:
    """Style the axes: no line at the top and right, and a light ``grid`` behind the data.

    ``grid`` is "x", "y" or "both"; None draws no grid.
    """
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TEXT)
    if grid:
        axes.grid(visible=True, axis=grid, color="0.85", linewidth=0.6)  # type: ignore[arg-type]
        axes.set_axisbelow(True)


def plain_numbers(axis: Any, *, subs: tuple[float, ...] = (1.0,)) -> None:
    """Label a logarithmic axis with plain numbers: 0.1, 20, 1,000.

    Ticks are at the multiples ``subs`` of every power of ten.
    """
    axis.set_major_locator(LogLocator(base=10.0, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 100 else f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())


def readable_log(axis: Any) -> None:
    """Label a logarithmic axis with at least three plain numbers, by the range that it shows."""
    low, high = axis.get_view_interval()
    plain_numbers(axis, subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,))
    if high / low < 5:
        axis.set_major_locator(MaxNLocator(6))
        axis.set_minor_locator(NullLocator())


def label_counts(axis: Any, counts: Sequence[int]) -> None:
    """Label a logarithmic axis at these whole numbers, and nowhere else."""
    axis.set_major_locator(FixedLocator([float(n) for n in counts]))
    axis.set_major_formatter(FixedFormatter([f"{n:,}" for n in counts]))
    axis.set_minor_locator(NullLocator())


def finish(
    axes: Axes, title: str, x: str, y: str = "", *, grid: str | None = "both", legend: str = ""
) -> None:
    """Set title and labels, style the axes, and draw the legend at the place ``legend``, if any."""
    axes.set_xlabel(x, fontsize=TEXT)
    if y:
        axes.set_ylabel(y, fontsize=TEXT)
    headline(axes, title)
    plain(axes, grid=grid)
    if legend:
        axes.legend(loc=legend, fontsize=SMALL, framealpha=0.95)


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the rows of horizontal bars, the first at the top."""
    axes.set_yticks(range(len(names)), names, fontsize=TEXT)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)


def interval(axes: Axes, at: float, row: int, low: float, high: float) -> None:
    """Draw the 80 % interval of the bar in a row; the first row names it in the legend."""
    axes.errorbar(
        at, row, xerr=[[at - low], [high - at]], fmt="none", ecolor=INK, elinewidth=1.4,
        capsize=5, capthick=1.4, zorder=5, label="80 % interval" if row == 0 else None,
    )  # fmt: skip


def headline(axes: Axes, text: str) -> None:
    """Set a title that is aligned to the left."""
    axes.set_title(text, loc="left", fontsize=TITLE)
