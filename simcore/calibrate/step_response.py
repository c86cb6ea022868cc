"""How a step's time moves with what hardware delivers: the engine's axis, asked by a fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.points import KNOBS, Points
from simcore.engine.predict import Request, steps_of, values_of
from simcore.hardware.calibrations import CalibratedKnob

Array = NDArray[np.float64]

#: Axes of a response: multipliers on what hardware delivers, the amount of work of a run, and
#: seconds that a program adds to each step and to each micro-step.
WORK, STEP, MICRO_STEP = len(KNOBS), len(KNOBS) + 1, len(KNOBS) + 2
N_AXES = len(KNOBS) + 3
#: The resource of each axis, as ``FitRow.shares`` has it.
SHARES = (*range(len(KNOBS)), -1, -1, -1)
#: What added seconds may take off a step at most: a step cannot take less than nothing.
_LEAST_FRAC = 0.2

#: Seconds of a whole run from points, seconds of a step and the amount of work, all [C].
RunTime = Callable[[Points, Array, Array], Array]


def axis_of(knob: CalibratedKnob) -> int:
    """The axis that a multiplier shifts."""
    return KNOBS.index(knob)


def points_at(request: Request, knobs: Array) -> Points:
    """The request under logarithmic shifts of the knobs [K, C]."""
    size = knobs.shape[1]
    columns = values_of(request)
    for name, shift in zip(KNOBS, knobs, strict=True):
        columns[name] = columns.get(name, 1.0) * np.exp(shift)
    return Points.of(columns, size)


def response(request: Request, run: RunTime | None = None) -> Callable[[Array], Array]:
    """ln(seconds) [C] of a step, or of a run, under shifts [``N_AXES``, C]."""
    # A pipeline's last stage begins when the first has done as many micro-steps as lie between.
    stages = request.placed.layout.pp if request.placed is not None else 1
    micro_steps = request.grad_accum + stages - 1

    def log_s(shifts: Array) -> Array:
        points = points_at(request, shifts[: len(KNOBS)])
        step = steps_of(request, points).step_s
        added = shifts[STEP] + micro_steps * shifts[MICRO_STEP]
        step = np.maximum(step + added, _LEAST_FRAC * step)
        total = step if run is None else run(points, step, np.exp(shifts[WORK]))
        found: Array = np.log(total)
        return found

    return log_s
