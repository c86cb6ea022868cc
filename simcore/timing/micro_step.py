"""Time of a stage's micro-step, and the breakdown of the stage that holds up the others.

# C configs, arrays [C], or [N, C] of N kinds of stages
"""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import TINY, NDArray
from simcore.timing.evaluate import Steps
from simcore.timing.points import Points

Array = NDArray[np.float64]


def micro_step_s(steps: Steps, points: Points) -> Array:
    """Compute seconds of one micro-step [C], with the gradient sum where there are several."""
    once = steps.terms_s["forward"] + steps.terms_s["backward"]
    more = np.maximum(points.grad_accum - 1.0, 1.0)
    return np.where(points.grad_accum > 1, steps.terms_s["accumulation"] / more, once)


def forward_share(steps: Steps) -> Array:
    """Share of a micro-step's compute that is forward."""
    forward, backward = steps.terms_s["forward"], steps.terms_s["backward"]
    return forward / np.maximum(forward + backward, TINY)


def of_slowest(terms_s: dict[str, Array], slowest: NDArray[np.intp]) -> dict[str, Array]:
    """The terms [N, C] of the slowest kind of stage of each configuration [C]."""
    if (slowest == slowest[0]).all():
        return {name: x[slowest[0]] for name, x in terms_s.items()}
    return {name: x[slowest, np.arange(len(slowest))] for name, x in terms_s.items()}
