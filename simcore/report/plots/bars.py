"""Stacked horizontal bars, one per prediction, shared by the plots of time and of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.container import BarContainer

from simcore.answer.result import Prediction
from simcore.memory.result import MemoryResult
from simcore.report.names import told_apart
from simcore.report.plots.canvas import SMALL, TEXT, fill_of, plain
from simcore.report.terms import HIDDEN

#: Terms below this share of the longest bar are drawn together as "other terms".
_LEAST_FRAC = 0.004


@dataclass(frozen=True)
class Bar:
    """One stacked bar: its name, and the length of each term; all bars of a plot share a unit."""

    name: str
    parts: dict[str, float]

    @property
    def total(self) -> float:
        """The length of the bar: the sum of its parts."""
        return sum(self.parts.values())


def time_bar(p: Prediction, name: str = "") -> Bar:
    """The step time of a prediction by term, in seconds."""
    parts = {k: v for k, v in p.time_s.items() if k not in ("compute", HIDDEN) and v > 0}
    return Bar(name, parts)


def memory_bar(m: MemoryResult, scale: float, name: str = "") -> Bar:
    """The peak memory by term, in units of ``scale`` bytes."""
    return Bar(name, {k: v / scale for k, v in m.terms.items() if v > 0})


def names_of(predictions: Sequence[Prediction], *, fitting: bool = False) -> list[str]:
    """The names of the bars: the cluster and all else that differs; "" for a single prediction.

    With ``fitting`` a name also says that the job does not fit, for plots without a memory limit.
    """
    if len(predictions) == 1:
        return [""]
    return [
        "\n".join([*words, *(["does not fit"] if fitting and not p.fits else [])])
        for words, p in zip(told_apart(predictions), predictions, strict=True)
    ]


def title_of(predictions: Sequence[Prediction], what: str) -> str:
    """The title of a plot; for a single prediction it names the job, because its bar does not."""
    if len(predictions) != 1:
        models = {p.model for p in predictions}
        return f"{what}: {models.pop()}" if len(models) == 1 else what
    return f"{what}: {predictions[0].model} on {predictions[0].cluster}"


def stack(axes: Axes, bars: Sequence[Bar], label: object, order: Sequence[str]) -> None:
    """Draw the bars from the top down, their terms stacked in ``order``.

    ``label(term)`` is the term's name in the legend.
    """
    assert callable(label)
    longest = max((b.total for b in bars), default=0.0)
    shown = [t for t in order if any(b.parts.get(t, 0.0) > _LEAST_FRAC * longest for b in bars)]
    starts = [0.0] * len(bars)
    for term in [*shown, "other"]:
        widths = [
            b.parts.get(term, 0.0)
            if term != "other"
            else b.total - sum(b.parts.get(t, 0.0) for t in shown)
            for b in bars
        ]
        if term == "other" and max(widths, default=0.0) < 1e-9 * longest:
            continue
        name = label(term) if term != "other" else "other terms"
        axes.barh(range(len(bars)), widths, left=starts, height=0.62, label=name, **fill_of(term))
        starts = [s + w for s, w in zip(starts, widths, strict=True)]
    axes.set_yticks(range(len(bars)), [b.name for b in bars], fontsize=TEXT)
    axes.invert_yaxis()
    plain(axes, grid="x")
    axes.tick_params(axis="y", length=0)


def order_of(bars: Sequence[Bar], known: Sequence[str]) -> list[str]:
    """The terms of the bars in the order of ``known``; terms not in it come last."""
    terms = dict.fromkeys(t for b in bars for t in b.parts)
    return [t for t in known if t in terms] + [t for t in terms if t not in known]


def legend_right(axes: Axes) -> None:
    """Draw the legend to the right of the axes: first the areas, then lines and marks."""
    handles, labels = axes.get_legend_handles_labels()
    ranked = sorted(
        zip(handles, labels, strict=True), key=lambda pair: not isinstance(pair[0], BarContainer)
    )
    axes.legend(
        [h for h, _ in ranked], [text for _, text in ranked], loc="center left",
        bbox_to_anchor=(1.01, 0.5), fontsize=SMALL, frameon=False, handlelength=2.4,
        handleheight=1.3, labelspacing=0.3,
    )  # fmt: skip
