"""How a step's time moves with what hardware delivers: the engine's axis, asked by a fit.

On GPUs of several types compute and host have an axis of each rank class beside the common one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.engine.points import KNOBS, Points
from simcore.engine.predict import steps_of, values_of
from simcore.engine.resolved import Request, rank_groups
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


#: What rank classes have axes of their own of, after the common ones.
_BY_CLASS: tuple[CalibratedKnob, ...] = ("compute", "host")


def axis_of(knob: CalibratedKnob) -> int:
    """The axis that a multiplier shifts."""
    return KNOBS.index(knob)


def axes_of(knob: CalibratedKnob, request: Request, gpu: str) -> tuple[int, ...]:
    """The axes that a multiplier shifts, of the classes of one type of GPU where it names one."""
    groups = rank_groups(request.cluster)
    if knob not in _BY_CLASS or not gpu or len(groups) == 1:
        return (axis_of(knob),)
    first = N_AXES + _BY_CLASS.index(knob) * len(groups)
    return tuple(first + i for i, group in enumerate(groups) if group.gpu.name == gpu)


def shares_of(request: Request) -> tuple[int, ...]:
    """The resource of each axis of a request's response, as ``FitRow.shares`` has it."""
    classes = len(rank_groups(request.cluster))
    own = [axis_of(k) for k in _BY_CLASS for _ in range(classes)] if classes > 1 else []
    return (*SHARES, *own)


def points_at(request: Request, shifts: Array) -> Points:
    """The request under logarithmic shifts [axes, C]."""
    size = shifts.shape[1]
    columns: dict[str, Any] = dict(values_of(request))
    for name, shift in zip(KNOBS, shifts, strict=False):
        columns[name] = columns.get(name, 1.0) * np.exp(shift)
    if len(shifts) > N_AXES:
        compute, host = np.split(np.exp(shifts[N_AXES:]), len(_BY_CLASS))
        columns |= {"class_compute": compute, "class_host": host}
    return Points.of(columns, size)


def response(request: Request, run: RunTime | None = None) -> Callable[[Array], Array]:
    """ln(seconds) [C] of a step, or of a run, under shifts [axes, C]."""
    # A pipeline's last stage begins when the first has done as many micro-steps as lie between.
    stages = request.placed.layout.pp if request.placed is not None else 1
    micro_steps = request.grad_accum + stages - 1

    def log_s(shifts: Array) -> Array:
        points = points_at(request, shifts)
        step = steps_of(request, points).step_s
        added = shifts[STEP] + micro_steps * shifts[MICRO_STEP]
        step = np.maximum(step + added, _LEAST_FRAC * step)
        total = step if run is None else run(points, step, np.exp(shifts[WORK]))
        found: Array = np.log(total)
        return found

    return log_s
