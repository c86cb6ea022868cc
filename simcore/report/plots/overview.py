"""The step time and the peak memory by term, as bars in two panels."""

from __future__ import annotations

from collections.abc import Sequence

from simcore.answer.result import Prediction
from simcore.report.plots import memory, time
from simcore.report.plots.bars import names_of
from simcore.report.plots.canvas import Drawing, canvas


def draw(predictions: Sequence[Prediction]) -> Drawing:
    """The step time in the upper panel, the memory of the fullest GPU in the lower one."""
    figure = canvas(8.0, 5.0 + 0.9 * (len(predictions) - 1))
    above, below = figure.subplots(2, 1)
    time.panel(above, predictions)
    moment = f", at its peak in {predictions[0].memory.moment}" if len(predictions) == 1 else ""
    memory.panel(
        below, [p.memory for p in predictions], names_of(predictions), predictions,
        f"memory of the fullest GPU{moment}",
    )  # fmt: skip
    return figure
