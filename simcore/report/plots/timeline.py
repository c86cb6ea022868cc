"""When each stream works in one step, by kind of work."""

from __future__ import annotations

from matplotlib.patches import Patch

from simcore.base.units import MILLI
from simcore.engine.result import Prediction
from simcore.engine.timeline import Timeline
from simcore.report.plots.canvas import SMALL, TEXT, Drawing, canvas, fill_of, headline, plain
from simcore.report.terms import time_label

#: The schedule's words for what the breakdown calls otherwise.
_TERMS = {
    "frozen": "frozen_networks",
    "communication": "communication_exposed",
    "input copy": "input_copy",
}
_LABELS = {"communication": "communication", "host": "host: issuing kernels"}
#: Gaps below this share of the step do not part two pieces of the same work.
_GAP_FRAC = 0.0015

#: From this many pieces on, their edges would be all that shows.
_MANY = 12

Piece = tuple[float, float]


def draw(data: Timeline | Prediction) -> Drawing:
    """One row a stream; work of one kind that follows on itself is one bar. Time in ms."""
    line, title = _line_of(data)
    streams = line.graph.streams
    pieces = _pieces(line)
    figure = canvas(8.0, 1.6 + 0.42 * len(streams))
    axes = figure.add_subplot()
    for (stream, term), bars in pieces.items():
        axes.broken_barh(
            [(a / MILLI, (b - a) / MILLI) for a, b in bars],
            (streams.index(stream) - 0.36, 0.72),
            **{**fill_of(_TERMS.get(term, term)), "linewidth": 0.6 if len(bars) < _MANY else 0.15},
        )  # fmt: skip
    terms = dict.fromkeys(term for _, term in pieces)
    axes.legend(
        handles=[
            Patch(label=_LABELS.get(t) or time_label(k), **fill_of(k))
            for t, k in ((t, _TERMS.get(t, t)) for t in terms)
        ],
        loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=SMALL, frameon=False,
        handlelength=2.4, handleheight=1.4,
    )  # fmt: skip
    end = float(line.finish_s[:, 0].max())
    if isinstance(data, Prediction) and (mean := data.step_time_s.value) > 1.005 * end:
        axes.axvline(mean / MILLI, color="black", linestyle="--", linewidth=1.4)
        beyond = "with exchanges and bubble" if data.layout else "next step: data loading is slower"
        axes.annotate(
            beyond, (mean / MILLI, 0.5),
            xycoords=("data", "axes fraction"), xytext=(-4, 0), textcoords="offset points",
            rotation=90, ha="right", va="center", fontsize=SMALL,
        )  # fmt: skip
        end = mean
    axes.set_yticks(range(len(streams)), streams, fontsize=TEXT)
    axes.invert_yaxis()
    axes.set_xlim(0.0, end / MILLI * 1.02)
    axes.set_xlabel("time in the step [ms]", fontsize=TEXT)
    headline(axes, title)
    plain(axes, grid="x")
    axes.tick_params(axis="y", length=0)
    return figure


def _line_of(data: Timeline | Prediction) -> tuple[Timeline, str]:
    if isinstance(data, Timeline):
        return data, "one step"
    if data.timeline is None:
        raise ValueError("predict with keep_timeline=True to draw a timeline")
    what = f"the slowest stage of {data.layout}, alone" if data.layout else data.strategy
    return data.timeline, f"one step of {data.model} on {data.cluster}, {what}"


def _pieces(line: Timeline) -> dict[tuple[str, str], list[Piece]]:
    """Stretches of work by (stream, term), touching ones joined."""
    gap = _GAP_FRAC * float(line.finish_s[:, 0].max())
    found: dict[tuple[str, str], list[Piece]] = {}
    for i, task in enumerate(line.graph.tasks):
        start, finish = float(line.start_s[i, 0]), float(line.finish_s[i, 0])
        if finish <= start:
            continue
        bars = found.setdefault((task.stream, task.term), [])
        if bars and start - bars[-1][1] <= gap:
            bars[-1] = (bars[-1][0], max(finish, bars[-1][1]))
        else:
            bars.append((start, finish))
    return found
