"""Time of a stage's micro-step, and the breakdown of the stage that holds up the others.

# C configs, all arrays [C]
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
    result: Array = np.where(points.grad_accum > 1, steps.terms_s["accumulation"] / more, once)
    return result


def forward_share(steps: Steps) -> Array:
    """Share of a micro-step's compute that is forward."""
    forward, backward = steps.terms_s["forward"], steps.terms_s["backward"]
    share: Array = forward / np.maximum(forward + backward, TINY)
    return share


def of_slowest(stages: list[dict[str, Array]], slowest: NDArray[np.intp]) -> dict[str, Array]:
    """The terms of the slowest stage of each configuration."""
    if (slowest == slowest[0]).all():
        return stages[int(slowest[0])]
    names = tuple(dict.fromkeys(name for terms in stages for name in terms))
    if not names:
        return {}
    zero = np.zeros(len(slowest))
    every = np.array([[terms.get(name, zero) for terms in stages] for name in names])
    return dict(zip(names, every[:, slowest, np.arange(len(slowest))], strict=True))
