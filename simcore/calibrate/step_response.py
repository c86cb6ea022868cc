"""The response of a step's time to multipliers on the hardware's figures, computed by the engine.

With several GPU types, compute and host have one axis per rank class besides the common one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.hardware.calibrations import CalibratedKnob
from simcore.request.resolved import Request, rank_groups
from simcore.timing.points import KNOBS, Points
from simcore.timing.steps import steps_of, values_of

Array = NDArray[np.float64]

#: Axes of a response: first the multipliers of KNOBS, then the amount of work of a run, and the
#: seconds that a program adds to each step and to each micro-step.
WORK, STEP, MICRO_STEP = len(KNOBS), len(KNOBS) + 1, len(KNOBS) + 2
N_AXES = len(KNOBS) + 3
#: The resource of each axis, as in ``FitRow.shares``.
SHARES = (*range(len(KNOBS)), -1, -1, -1)
#: The least share of a step's time that remains if the added seconds are negative.
_LEAST_FRAC = 0.2

#: A function from points, seconds of a step and amount of work, all [C], to the seconds of a run.
RunTime = Callable[[Points, Array, Array], Array]


#: Multipliers that have one axis per rank class, after the common axes.
_BY_CLASS: tuple[CalibratedKnob, ...] = ("compute", "host")


def axis_of(knob: CalibratedKnob) -> int:
    """The axis that a multiplier shifts."""
    return KNOBS.index(knob)


def axes_of(knob: CalibratedKnob, request: Request, gpu: str) -> tuple[int, ...]:
    """The axes that a multiplier shifts; if it is for one GPU type, those of its rank classes."""
    groups = rank_groups(request.cluster)
    if knob not in _BY_CLASS or not gpu or len(groups) == 1:
        return (axis_of(knob),)
    first = N_AXES + _BY_CLASS.index(knob) * len(groups)
    return tuple(first + i for i, group in enumerate(groups) if group.gpu.name == gpu)


def shares_of(request: Request) -> tuple[int, ...]:
    """The resource of each axis of a request's response, as in ``FitRow.shares``."""
    classes = len(rank_groups(request.cluster))
    own = [axis_of(k) for k in _BY_CLASS for _ in range(classes)] if classes > 1 else []
    return (*SHARES, *own)


def points_at(request: Request, shifts: Array) -> Points:
    """The engine's points for a request with logarithmic shifts [axes, C] of its multipliers."""
    size = shifts.shape[1]
    columns: dict[str, Any] = dict(values_of(request))
    for name, shift in zip(KNOBS, shifts, strict=False):
        columns[name] = columns.get(name, 1.0) * np.exp(shift)
    if len(shifts) > N_AXES:
        compute, host = np.split(np.exp(shifts[N_AXES:]), len(_BY_CLASS))
        columns |= {"class_compute": compute, "class_host": host}
    return Points.of(columns, size)


def response(request: Request, run: RunTime | None = None) -> Callable[[Array], Array]:
    """A function from shifts [axes, C] to ln(seconds) [C] of a step, or of a ``run``."""
    # With pp stages, a pipeline takes pp - 1 micro-steps more until its last stage begins.
    stages = request.placed.layout.pp if request.placed is not None else 1
    micro_steps = request.grad_accum + stages - 1

    def log_s(shifts: Array) -> Array:
        points = points_at(request, shifts)
        step = steps_of(request, points).step_s
        added = shifts[STEP] + micro_steps * shifts[MICRO_STEP]
        step = np.maximum(step + added, _LEAST_FRAC * step)
        total = step if run is None else run(points, step, np.exp(shifts[WORK]))
        log_total: Array = np.log(total)
        return log_total

    return log_s
