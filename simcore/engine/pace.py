"""At what pace each stage of a pipeline works: that of the slowest device of its own.

What varies between equal devices is read as one normal value each (``physics.slowest``). Devices
of one stage meet in every micro-batch (tensor, context and expert ranks) or at the end of the step
(its data-parallel replicas); those of other stages only pass on what they have. So a stage waits
for the slowest of its own devices, not of the whole job's: where the last one has the head and
therefore most work, that one alone sets the pace, whatever the others' devices are.

# C configs, S kinds of stages; arrays [S, C]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simcore.base.arrays import NDArray, equal_neighbours
from simcore.engine.points import Points
from simcore.physics.slowest import slowest_rates
from simcore.strategy.layout import Layout

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Paces:
    """Rates of compute over those of the job's slowest device, 1 or more.

    ``slowest`` [S, C]: of the slowest device that such stages have, all replicas together;
    ``typical`` [C]: of the average group of ranks that meet in every micro-batch, whose times add
    up where a micro-batch passes through all stages.
    """

    slowest: Array
    typical: Array


def stage_paces(
    points: Points, layout: Layout, counts: tuple[int, ...], device_sd_frac: float
) -> Paces:
    """``counts``: how many stages there are of each kind; ``points`` of the whole job."""
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
