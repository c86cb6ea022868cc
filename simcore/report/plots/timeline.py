"""The timeline of one step: when each stream or pipeline stage works, and on what."""

from __future__ import annotations

from matplotlib.patches import Patch

from simcore.answer.result import Prediction
from simcore.base.record import dataclass
from simcore.base.units import MILLI
from simcore.report.plots.canvas import SMALL, Drawing, fill_of, finish, rows, single
from simcore.report.terms import time_label
from simcore.report.trace.slices import COMPUTE, EXCHANGE, Slice, lines_of
from simcore.step.graph import Timeline

#: The timeline's names of terms -> the names that the time breakdown uses.
_TERMS = {
    "frozen": "frozen_networks",
    "communication": "communication_exposed",
    "input copy": "input_copy",
}
_LABELS = {"communication": "communication", "host": "host: issuing kernels"}
#: Pieces of the same work are joined if the gap between them is below this share of the step.
_GAP_FRAC = 0.0015

#: From this many pieces of a kind on, the outlines are thin: they would hide the pieces.
_MANY = 12

#: Start and finish in seconds.
Piece = tuple[float, float]
#: The vertical position of a bar within its row: its middle and its height, in rows.
Band = tuple[float, float]
_WHOLE: Band = (0.0, 0.72)
#: Bands of a pipeline stage: compute at the top, exchanges below it, all else at the bottom.
_STAGE: dict[str, Band] = {COMPUTE: (-0.12, 0.48), EXCHANGE: (0.18, 0.12)}
_BELOW: Band = (0.3, 0.12)
#: If a stage has more pieces than this, forward and backward are drawn in separate bands:
#: alternating in one band, the bars would be thinner than the lines between them.
_DENSE = 200
_DENSE_GAP_FRAC = 0.006
_HALVES: dict[str, Band] = {"forward": (-0.24, 0.24), "backward": (0.0, 0.24)}


@dataclass(frozen=True)
class _Row:
    label: str
    dense: bool
    work: tuple[tuple[Band, str, float, float], ...]  # term, start and finish [s]

    @property
    def gap_frac(self) -> float:
        """The share of the step below which a gap between pieces of one kind is not drawn."""
        return _DENSE_GAP_FRAC if self.dense else _GAP_FRAC


def draw(data: Timeline | Prediction) -> Drawing:
    """One row per stream or pipeline stage over the time in ms.

    Consecutive work of one kind is one bar. Raises ValueError if a prediction has no timeline.
    """
    drawn, title = _rows_of(data)
    end = max(finished for row in drawn for _, _, _, finished in row.work)
    figure, axes = single(8.0, 1.6 + 0.42 * len(drawn))
    terms: dict[str, None] = {}  # in the order of their first bars
    for at, row in enumerate(drawn):
        for ((middle, height), term), bars in _pieces(row, row.gap_frac * end).items():
            terms[term] = None
            axes.broken_barh(
                [(a / MILLI, (b - a) / MILLI) for a, b in bars],
                (at + middle - height / 2, height),
                **{**fill_of(_fill(term)), "linewidth": 0.6 if len(bars) < _MANY else 0.15},
            )  # fmt: skip
    axes.legend(
        handles=[
            Patch(label=_LABELS.get(t) or time_label(_fill(t)), **fill_of(_fill(t)))
            for t in terms
        ],
        loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=SMALL, frameon=False,
        handlelength=2.4, handleheight=1.4,
    )  # fmt: skip
    if isinstance(data, Prediction) and abs((mean := data.step_time_s.value) - end) > 0.005 * end:
        axes.axvline(mean / MILLI, color="black", linestyle="--", linewidth=1.4)
        axes.annotate(
            _beyond(data), (mean / MILLI, 0.5),
            xycoords=("data", "axes fraction"), xytext=(-4, 0), textcoords="offset points",
            rotation=90, ha="right", va="center", fontsize=SMALL,
        )  # fmt: skip
        end = max(mean, end)
    rows(axes, [row.label for row in drawn])
    axes.set_xlim(0.0, end / MILLI * 1.02)
    finish(axes, title, "time in the step [ms]", grid="x")
    return figure


def _fill(term: str) -> str:
    return _TERMS.get(term, term)


def _beyond(p: Prediction) -> str:
    if p.pipeline:
        return "predicted step"
    return "with exchanges and bubble" if p.layout else "next step: data loading is slower"


def _rows_of(data: Timeline | Prediction) -> tuple[list[_Row], str]:
    if isinstance(data, Timeline):
        return _streams(data), "one step"
    title = f"one step of {data.model} on {data.cluster}"
    if data.pipeline is not None:
        return _stages(data), f"{title}, {data.layout}"
    if data.timeline is None:
        raise ValueError("predict with keep_timeline=True to draw a timeline")
    what = f"the slowest stage of {data.layout}, alone" if data.layout else data.strategy
    return _streams(data.timeline), f"{title}, {what}"


def _streams(line: Timeline) -> list[_Row]:
    work: dict[str, list[tuple[Band, str, float, float]]] = {s: [] for s in line.graph.streams}
    for i, task in enumerate(line.graph.tasks):
        start, finish = float(line.start_s[i, 0]), float(line.finish_s[i, 0])
        if finish > start:
            work[task.stream].append((_WHOLE, task.term, start, finish))
    return [_Row(stream, False, tuple(done)) for stream, done in work.items()]


def _stages(p: Prediction) -> list[_Row]:
    assert p.pipeline is not None
    dense = max(len(stage.slots) for stage in p.pipeline.stages) > _DENSE

    def bar(s: Slice) -> tuple[Band, str, float, float]:
        band = _STAGE.get(s.track, _BELOW)
        if dense and s.track == COMPUTE:
            band = _HALVES.get(s.term, band)
        term = "communication" if s.track == EXCHANGE else s.term
        return band, term, s.start_s, s.finish_s

    return [
        _Row(f"stage {i}", dense, tuple(bar(s) for s in line.slices if s.finish_s > s.start_s))
        for i, line in enumerate(lines_of(p).lines)
    ]


def _pieces(row: _Row, gap_s: float) -> dict[tuple[Band, str], list[Piece]]:
    """The pieces of work by (band, term), joined if the gap between them is at most ``gap_s``.

    In a band of a pipeline stage, a piece of another term between two pieces keeps them separate.
    """
    pieces: dict[tuple[Band, str], list[Piece]] = {}
    latest: dict[Band, str] = {}
    for band, term, start, end in sorted(row.work, key=lambda w: w[2]):
        bars = pieces.setdefault((band, term), [])
        joinable = band == _WHOLE or latest.get(band) == term
        latest[band] = term
        if bars and joinable and start - bars[-1][1] <= gap_s:
            bars[-1] = (bars[-1][0], max(end, bars[-1][1]))
        else:
            bars.append((start, end))
    return pieces
