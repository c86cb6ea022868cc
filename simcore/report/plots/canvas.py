"""What all pictures share: a Figure that shows itself, fills and marks that need no colour."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from simcore.report.plots import svg_file

#: Colours told apart with every common colour vision (Okabe & Ito 2002, Color Universal Design).
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT, WHITE = "#999999", "#DDDDDD", "#FFFFFF"
INK = "0.15"
TITLE, TEXT, SMALL = 11, 9, 8

#: Colour and hatch of a term; neighbours in a stack differ in hatch, so that grey paper will do.
#: Hatches of lines only: a field of dots is a hundred kilobytes of SVG.
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
}
#: Terms in the order in which they are stacked.
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
)
#: Of the notebooks' own pictures.
LINES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
SERIES = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK)


class Drawing(Figure):
    """A Figure that a notebook shows as a picture, without pyplot and its global state."""

    def _repr_svg_(self) -> str:
        return svg_file(self)


def canvas(width_in: float = 8.0, height_in: float = 4.5) -> Drawing:
    """An empty page."""
    return Drawing(figsize=(width_in, height_in), layout="constrained", facecolor="white")


def fill_of(term: str) -> dict[str, Any]:
    """Face, hatch and edge of a term's area."""
    colour, hatch = FILLS.get(term, (WHITE, "+++"))
    return {"facecolor": colour, "hatch": hatch, "edgecolor": INK, "linewidth": 0.6,
            "hatch_linewidth": 0.5}  # fmt: skip


def plain(axes: Axes, *, grid: str | None = "y") -> None:
    """Only the lines that carry something."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TEXT)
    if grid:
        axes.grid(visible=True, axis=grid, color="0.85", linewidth=0.6)  # type: ignore[arg-type]
        axes.set_axisbelow(True)


def plain_numbers(axis: Any, *, subs: tuple[float, ...] = (1.0,)) -> None:
    """Ticks of a logarithmic axis as people write numbers: 0.1, 20, 1,000."""
    axis.set_major_locator(LogLocator(base=10.0, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 10 else f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())


def headline(axes: Axes, text: str) -> None:
    """A title at the left edge."""
    axes.set_title(text, loc="left", fontsize=TITLE)
