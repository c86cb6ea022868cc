"""Compute rate of each pipeline stage, which the slowest of its devices sets.

The variation among equal devices is one normal value for each (``physics.slowest``). The devices of
one stage wait for each other in every micro-batch (tensor, context and expert ranks) or at the end
of the step (data-parallel replicas). Devices of different stages only pass on their results. So a
stage waits for the slowest of its own devices, not of the whole job's. Where the last stage has the
head and therefore most work, it alone sets the rate of the pipeline.

# C configs, S kinds of stages; arrays [S, C]
"""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray, equal_neighbours
from simcore.base.record import dataclass
from simcore.physics.slowest import slowest_rates
from simcore.strategy.layout import Layout
from simcore.timing.points import Points

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Paces:
    """Compute rates over that of the job's slowest device; 1 or more.

    ``slowest`` [S, C]: of the slowest device in all replicas of such a stage. ``typical`` [C]: of
    the average group of ranks that wait for each other in every micro-batch; their times add up
    where one micro-batch passes through all stages.
    """

    slowest: Array
    typical: Array


def stage_paces(
    points: Points, layout: Layout, counts: tuple[int, ...], device_sd_frac: float
) -> Paces:
    """The rates of each kind of stage.

    ``points`` of the whole job; ``counts``: number of stages of each kind; ``device_sd_frac``:
    standard deviation of a device's rate.
    """
    starts, lengths = equal_neighbours(points.n_ranks)
    ranks = points.n_ranks[starts]
    shares = np.array(counts, dtype=np.float64) / sum(counts)
    meeting = float(max(layout.tp * layout.cp, layout.ep * layout.expert_tp))
    group = np.minimum(meeting, ranks / sum(counts))
    every, typical, *own = slowest_rates(
        np.array([ranks, group, *(ranks * shares[:, None])]), device_sd_frac
    )
    return Paces(
        np.repeat(np.array(own) / every, lengths, axis=1), np.repeat(typical / every, lengths)
    )
