"""Step time and peak memory by term: stacked horizontal bars, one per prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.container import BarContainer

from simcore.answer.result import Prediction
from simcore.base.units import GIGA, MILLI
from simcore.memory.result import MemoryResult
from simcore.report.formatting import told_apart
from simcore.report.plots.canvas import (
    INK,
    MEMORY_ORDER,
    SMALL,
    TIME_ORDER,
    Drawing,
    canvas,
    fill_of,
    finish,
    interval,
    rows,
    single,
)
from simcore.report.terms import HIDDEN, memory_label, time_label

#: Length of each term of a bar; all bars of a plot have one unit.
Bar = Mapping[str, float]

#: Terms below this share of the longest bar are drawn together as "other terms".
_LEAST_FRAC = 0.004
#: Shorter steps are drawn in milliseconds.
_MS_BELOW_S = 1.0


def draw_time(predictions: Sequence[Prediction]) -> Drawing:
    """One bar of step time per prediction; the whisker is the 80 % interval."""
    figure, axes = single(8.0, 2.6 + 0.45 * (len(predictions) - 1))
    time_panel(axes, predictions)
    return figure


def draw_memory(results: Sequence[Prediction] | MemoryResult) -> Drawing:
    """One bar of memory per prediction; the thick line is the capacity of its device."""
    several = [] if isinstance(results, MemoryResult) else results
    figure, axes = single(8.0, 3.0 + 0.45 * (max(len(several), 1) - 1))
    memories = [results] if isinstance(results, MemoryResult) else [p.memory for p in results]
    memory_panel(axes, memories, several)
    return figure


def draw_overview(predictions: Sequence[Prediction]) -> Drawing:
    """The step time in the upper panel, the memory of the fullest GPU in the lower one."""
    figure = canvas(8.0, 5.0 + 0.9 * (len(predictions) - 1))
    above, below = figure.subplots(2, 1)
    time_panel(above, predictions)
    moment = f", at its peak in {predictions[0].memory.moment}" if len(predictions) == 1 else ""
    memories = [p.memory for p in predictions]
    memory_panel(below, memories, predictions, f"memory of the fullest GPU{moment}")
    return figure


def time_panel(axes: Axes, predictions: Sequence[Prediction]) -> None:
    """Draw the bars of step time on given axes, with 80 % intervals and measured step times."""
    seconds = max(p.step_time_s.high for p in predictions)
    scale, unit = (1.0, "s") if seconds >= _MS_BELOW_S else (MILLI, "ms")
    bars = [
        {k: v / scale for k, v in p.time_s.items() if k not in ("compute", HIDDEN) and v > 0}
        for p in predictions
    ]
    stack(axes, bars, time_label, TIME_ORDER)
    for i, p in enumerate(predictions):
        t = p.step_time_s
        interval(axes, t.value / scale, i, t.low / scale, t.high / scale)
        _measured(axes, p, i, "step_time_s", scale)
    rows(axes, names_of(predictions, fitting=True))
    axes.set_xlim(left=0.0)
    finish(axes, title_of(predictions, "step time"), f"step time [{unit}]", grid="x")
    legend_right(axes)


def memory_panel(
    axes: Axes,
    memories: Sequence[MemoryResult],
    predictions: Sequence[Prediction] = (),
    title: str = "",
) -> None:
    """Draw the bars of memory on given axes, with 80 % intervals, device limits, measured peaks.

    ``predictions`` supply the names of the bars, the measured peaks and the default title.
    """
    bars = [{k: v / GIGA for k, v in m.terms.items() if v > 0} for m in memories]
    stack(axes, bars, memory_label, MEMORY_ORDER)
    for i, m in enumerate(memories):
        interval(axes, m.device_bytes / GIGA, i, m.low_bytes / GIGA, m.high_bytes / GIGA)
    for i, p in enumerate(predictions):
        _measured(axes, p, i, "peak_memory_bytes", GIGA)
    limits = [m.capacity_bytes / GIGA for m in memories]
    same = len(set(limits)) == 1
    named = f"device limit, {limits[0]:.1f} GB" if same else "device limit"
    for i, limit in enumerate(limits):
        axes.plot([limit, limit], [i - 0.45, i + 0.45], color="black", linewidth=2.6,
                  solid_capstyle="butt", zorder=6, label=named if i == 0 else None)  # fmt: skip
    rows(axes, names_of(predictions) if predictions else [""])
    axes.set_xlim(0.0, 1.05 * max([*limits, *(m.high_bytes / GIGA for m in memories)]))
    title = title or title_of(predictions, "memory of the fullest GPU")
    finish(axes, title, "memory [GB]", grid="x")
    legend_right(axes)


def _measured(axes: Axes, p: Prediction, row: int, quantity: str, scale: float) -> None:
    for step in p.measured:
        if step.quantity == quantity:
            axes.plot(
                step.measured / scale, row, "D", markerfacecolor="white", markeredgecolor=INK,
                markersize=7, zorder=7, linestyle="none", label=f"measured ({step.source})",
            )  # fmt: skip


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


def stack(
    axes: Axes, bars: Sequence[Bar], label: Callable[[str], str], known: Sequence[str]
) -> None:
    """Draw the bars from the top down, their terms in the order of ``known``, others last.

    ``label(term)`` is the term's name in the legend.
    """
    longest = max((sum(b.values()) for b in bars), default=0.0)
    terms = dict.fromkeys(t for b in bars for t in b)
    order = [t for t in known if t in terms] + [t for t in terms if t not in known]
    shown = [t for t in order if any(b.get(t, 0.0) > _LEAST_FRAC * longest for b in bars)]
    named = [(label(t), t, [b.get(t, 0.0) for b in bars]) for t in shown]
    others = [sum(b.values()) - sum(b.get(t, 0.0) for t in shown) for b in bars]
    if max(others, default=0.0) >= 1e-9 * longest:
        named.append(("other terms", "other", others))
    starts = [0.0] * len(bars)
    for name, term, widths in named:
        axes.barh(range(len(bars)), widths, left=starts, height=0.62, label=name, **fill_of(term))
        starts = [s + w for s, w in zip(starts, widths, strict=True)]


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
