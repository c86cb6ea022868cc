"""Memory after every allocation and free of one step: terms, reserved memory, device limit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from matplotlib.axes import Axes

from simcore.base.arrays import Array, NDArray
from simcore.base.units import GIGA
from simcore.memory.over_time import MemoryTimeline
from simcore.report.plots.canvas import SMALL, Drawing, fill_of, finish, single
from simcore.report.terms import memory_label

#: The axis ends at ``_HEADROOM`` times the highest value. A device limit above ``_FAR`` times that
#: is outside the plot, and only the legend states it.
_HEADROOM, _FAR = 1.15, 2.5
#: Points of the plot; each shows the event with the most memory of its part of the step.
_COLUMNS = 300
#: A phase narrower than this share of the plot is not labelled.
_NARROW_FRAC = 0.02


def draw(timeline: MemoryTimeline) -> Drawing:
    """Memory in GB over the allocations and frees in their order."""
    total = sum(timeline.terms.values(), np.zeros(len(timeline.reserved)))
    at = _fullest(total)
    figure, axes = single()
    base = np.full(len(at), timeline.outside_bytes / GIGA)
    _area(axes, at, np.zeros(len(at)), base, "outside", "CUDA context, NCCL")
    for name, values in timeline.terms.items():
        top = base + values[at] / GIGA
        _area(axes, at, base, top, name, memory_label(name))
        base = top
    reserved = (timeline.reserved[at] + timeline.outside_bytes) / GIGA
    axes.step(at, reserved, "k-", where="post", linewidth=1.4, label="reserved, on the device")
    limit = timeline.limit_bytes / GIGA
    axes.axhline(
        limit, color="black", linestyle="--", linewidth=1.8, label=f"device limit, {limit:.1f} GB"
    )
    _phases(axes, timeline, len(total))
    axes.set_xlim(0, max(len(total) - 1, 1))
    highest = max(float(reserved.max(initial=0.0)), 1.0 / GIGA) * _HEADROOM
    near = limit < _FAR * highest
    axes.set_ylim(0.0, max(highest, limit * 1.05) if near else highest)
    steps = f"allocations and frees of one step: {timeline.model} on {timeline.cluster}"
    whose = f"a {timeline.gpu}" if timeline.gpu else "the fullest GPU"
    finish(axes, "", steps, f"memory of {whose} [GB]", grid=None)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=SMALL,
        frameon=False, handlelength=2.4, handleheight=1.4,
    )  # fmt: skip
    return figure


def _area(axes: Axes, at: NDArray[np.intp], base: Array, top: Array, term: str, label: str) -> None:
    """Fill between two stepped lines, with points only where one of them changes."""
    changes = (np.diff(base, prepend=np.nan) != 0) | (np.diff(top, prepend=np.nan) != 0)
    changes[-1:] = True
    axes.fill_between(
        at[changes], base[changes], top[changes], step="post", label=label, **fill_of(term)
    )


def _phases(axes: Axes, timeline: MemoryTimeline, n_events: int) -> None:
    """Draw a line at the start of every phase, such as forward, and its name above the axes."""
    starts = [*timeline.phases, (n_events, "")]
    shown = [
        (first, following, name)
        for (first, name), (following, _) in pairwise(starts)
        if following - first > n_events * _NARROW_FRAC
    ]
    for first, following, name in shown:
        axes.axvline(first, color="black", linestyle=":", linewidth=0.8)
        axes.annotate(
            name, ((first + following) / 2, 1.01), xycoords=("data", "axes fraction"),
            ha="center", va="bottom", fontsize=SMALL,
        )  # fmt: skip


def _fullest(total: NDArray[np.float64]) -> NDArray[np.intp]:
    """The index of the event with the most memory in each of ``_COLUMNS`` parts of the step."""
    if len(total) <= _COLUMNS:
        return np.arange(len(total))
    edges = np.linspace(0, len(total), _COLUMNS + 1).astype(np.intp)
    return np.array([a + int(total[a:b].argmax()) for a, b in pairwise(edges)])
