"""Energy of GPUs from their TDP and the share of a step in which they compute.

    power = TDP · (idle + (training - idle) · busy)          busy = compute seconds / step seconds

Only GPUs count, not hosts, switches or cooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from simcore.base.arrays import NDArray
from simcore.hardware.cluster import ClusterSpec

T = TypeVar("T", float, NDArray[np.float64])

#: Share of the rated power that computationally intensive training draws: measured as 0.76 of an
#: 8 x H100 node's 10.2 kW (Newkirk et al. 2025, arXiv 2506.14551), used here for the GPU's TDP.
TRAINING_FRAC = 0.76
#: Share of the rated power that a waiting GPU draws: about 0.15 (nemulai.com, 2026,
#: "gpu-electricity-cost"; not verified against a datasheet).
IDLE_FRAC = 0.15
#: The source that the output states.
SOURCE = (
    "GPUs only: TDP x (0.15 idle + 0.61 x compute share), 0.76 of rated power in training "
    "(arXiv 2506.14551)"
)


def busy_frac(time_s: Mapping[str, float], step_s: float) -> float:
    """Share of a step in which the device computes, from the ``time_s`` of a prediction."""
    parts = ("compute", "optimizer", "ema")
    return min(1.0, sum(time_s.get(p, 0.0) for p in parts) / step_s)


def tdp_w(cluster: ClusterSpec) -> float:
    """Rated power of all GPUs of a cluster [W]; NaN where a GPU's record has none."""
    return sum(g.gpu.tdp_w * g.n_gpus for g in cluster.groups)


def power_w(tdp: T, busy: T) -> T:
    """Mean power [W] of GPUs of rated power ``tdp`` [W] that compute for a share ``busy`` of the
    time.
    """
    return tdp * (IDLE_FRAC + (TRAINING_FRAC - IDLE_FRAC) * busy)
