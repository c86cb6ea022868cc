"""Time, money and energy of a whole run of one predicted job, and the odds of a deadline.

    power = TDP · (idle + (training - idle) · busy)          busy = compute seconds / step seconds

Only GPUs count, not hosts, switches or cooling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TypeVar

import numpy as np

from simcore.answer.result import Cost, Prediction, Run
from simcore.base.arrays import NDArray
from simcore.base.figures import Z80, Interval
from simcore.base.units import HOUR, KILO, MEGA
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.prices import PriceBook
from simcore.planning.moments import deadline_of, start_of

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


def sides_of(t: Interval) -> tuple[float, float]:
    """Standard deviations of the logarithm above and below the central value of an interval."""
    return math.log(t.high / t.value) / Z80, math.log(t.value / t.low) / Z80


def odds_within(ratio: float, sd_above: float, sd_below: float) -> float:
    """Probability that a value is at most ``ratio`` times its central estimate.

    The distribution is log-normal on each side, with the spread of that side of the 80 % interval.
    """
    sd = sd_above if ratio >= 1.0 else sd_below
    if sd <= 0.0:
        return 1.0 if ratio >= 1.0 else 0.0
    return NormalDist().cdf(math.log(ratio) / sd)


def gpus_of(p: Prediction) -> ClusterSpec:
    """A cluster of the GPUs of a prediction, in any nodes: prices and power depend on GPUs only."""
    groups = "+".join(f"{c.n_gpus}x1x{c.gpu}" for c in p.rank_classes)
    return parse_cluster(groups, network="25 Gbit/s")


def watts_of(p: Prediction, cluster: ClusterSpec) -> float:
    """Mean power of all GPUs in the step [W]; NaN where a rated power is unknown."""
    return power_w(tdp_w(cluster), busy_frac(p.time_s, p.step_time_s.value))


def cost_of(p: Prediction, prices: PriceBook) -> Cost:
    """What the job of a prediction costs an hour and for a million tokens (or samples)."""
    cluster = gpus_of(p)
    usd, watts = prices.cluster_usd_per_h(cluster), watts_of(p, cluster)
    hours = MEGA / p.work_per_s / HOUR
    return Cost(
        unit=p.sample_unit if p.tokens_per_s is None else "token",
        usd_per_h=usd,
        usd_per_million=None if usd is None else hours * usd,
        kwh_per_million=hours * watts / KILO if math.isfinite(watts) else None,
        sources=tuple(f"{gpu}: {text}" for gpu, text in prices.sources([cluster]).items()),
    )


def run_of(p: Prediction, steps: float, prices: PriceBook, *, deadline: str | None = None) -> Run:
    """The run of ``steps`` steps of a predicted job.

    ``deadline``: "30d" or a date. Raises InvalidConfig for one that is neither.
    """
    cluster = gpus_of(p)
    usd, watts = prices.cluster_usd_per_h(cluster), watts_of(p, cluster)
    step = p.step_time_s
    time = Interval(steps * step.value, steps * step.low, steps * step.high, step.origin)
    until = None if deadline is None else deadline_of(deadline, start_of(None)).seconds
    return Run(
        steps=steps,
        tokens=None if p.tokens_per_s is None else steps * p.global_batch * p.tokens_per_sample,
        time_s=time,
        cost_usd=None if usd is None else usd * time.value / HOUR,
        energy_kwh=watts * time.value / (KILO * HOUR) if math.isfinite(watts) else None,
        deadline_s=until,
        deadline_prob=None if until is None else odds_within(until / time.value, *sides_of(time)),
    )
