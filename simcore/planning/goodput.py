"""Goodput: the share of a job's time that remains useful with failures, checkpoints and slow nodes.

The failures of a job on N GPUs are a Poisson process of rate N·f (f failures per GPU and hour;
M = 1/(N·f) is the mean time between failures). The job saves a checkpoint every tau seconds of
work, which takes delta seconds. A failure loses the work since the last checkpoint and costs R
seconds of restart and warm-up, during which the job may fail again. A segment of tau seconds of
work then takes on average (Daly 2006, eq. 20; exact for a Poisson process)

    E[S] = M · exp(R/M) · (exp((tau + delta)/M) - 1)           goodput = tau / E[S]

The best tau solves 1 - tau/M = exp(-(tau + delta)/M); Young (1974) and Daly (2006) give its first-
and third-order approximations. The spread of a whole run follows from the variance of one segment.

All functions take arrays or floats.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from simcore.base.arrays import Array
from simcore.base.errors import InvalidConfig
from simcore.base.figures import HIGH_QUANTILE, LOW_QUANTILE, Z80
from simcore.base.record import dataclass
from simcore.base.units import HOUR, MEGA, number_problems

#: Unexpected interruptions per GPU and hour: 419 in 54 days on 16,384 H100 (Llama Team 2024, "The
#: Llama 3 Herd of Models", table 5).
FAILURES_PER_GPU_H = 419 / (54 * 24 * 16_384)
#: Checkpoint bandwidth per GPU: 2 TB/s sustained for 24,000 GPUs (same paper, section 3.3.1).
CHECKPOINT_BYTES_PER_S_PER_GPU = 2e6 * MEGA / 24_000
#: Time to detect a failure, replace the node, load the checkpoint and warm up. Assumed: in the same
#: paper more than 90 % of the time was effective with an interruption every 3.1 h, so that one
#: interruption cost at most 19 min.
RESTART_S = 600.0
FAILURES_SOURCE = "419 interruptions in 54 days of 16,384 H100 (Llama 3, 2024)"
CHECKPOINT_SOURCE = "2 TB/s for 24,000 GPUs (Llama 3, 2024)"
RESTART_SOURCE = "assumed"


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Failure rate, checkpoint bandwidth, restart time and slow nodes. Raises InvalidConfig.

    checkpoint_bytes_per_s  bandwidth of all ranks together; None: the default per GPU
    interval_s              time between checkpoints; None: the best one
    slow_prob               share of nodes that are slow, by ``slow_frac`` of the step time
    node_sd_log             standard deviation of the logarithm of the nodes' step times, besides

    A synchronous step takes as long as that of the slowest node.
    """

    failures_per_gpu_h: float = FAILURES_PER_GPU_H
    checkpoint_bytes_per_s: float | None = None
    restart_s: float = RESTART_S
    interval_s: float | None = None
    slow_prob: float = 0.0
    slow_frac: float = 0.0
    node_sd_log: float = 0.0

    def __post_init__(self) -> None:
        problems = [
            problem
            for what, value in (
                ("failures", self.failures_per_gpu_h), ("restart", self.restart_s),
                ("slow-node slowdown", self.slow_frac), ("straggler spread", self.node_sd_log),
                ("the share of slow nodes", self.slow_prob),
            )
            for problem in number_problems(what, value, least=0)
        ]  # fmt: skip
        if not number_problems("", self.slow_prob, least=0) and self.slow_prob > 1:
            problems.append(f"the share of slow nodes must be 0 to 1, not {self.slow_prob:g}")
        for what, given in (
            ("checkpoint bandwidth", self.checkpoint_bytes_per_s),
            ("checkpoint interval", self.interval_s),
        ):
            problems += number_problems(what, given)
        if problems:
            raise InvalidConfig(problems)

    def mtbf_s(self, n_gpus: Array | float) -> Array:
        """Mean time between failures of a job [s]; infinite for a failure rate of zero."""
        rate = np.asarray(n_gpus, dtype=float) * self.failures_per_gpu_h / HOUR
        with np.errstate(divide="ignore"):
            return np.where(rate > 0, 1.0 / np.maximum(rate, np.finfo(float).tiny), np.inf)

    def save_s(self, checkpoint_bytes: Array | float, n_gpus: Array | float) -> Array:
        """Time to write one checkpoint [s], with all ranks writing at once."""
        total = self.checkpoint_bytes_per_s
        rate = (
            np.asarray(n_gpus, dtype=float) * CHECKPOINT_BYTES_PER_S_PER_GPU
            if total is None
            else np.full_like(np.asarray(n_gpus, dtype=float), total)
        )
        return np.asarray(checkpoint_bytes, dtype=float) / rate


def young_interval_s(mtbf_s: Array | float, save_s: Array | float) -> Array:
    """First-order estimate of the best checkpoint interval [s]: sqrt(2 delta M) (Young 1974)."""
    return np.sqrt(2.0 * np.asarray(save_s) * np.asarray(mtbf_s))


def daly_interval_s(mtbf_s: Array | float, save_s: Array | float) -> Array:
    """Higher-order estimate of the best checkpoint interval [s] (Daly 2006, eq. 37); M where delta
    is 2 M or more.
    """
    m, delta = np.asarray(mtbf_s, dtype=float), np.asarray(save_s, dtype=float)
    x = delta / (2.0 * m)
    series = np.sqrt(2.0 * delta * m) * (1.0 + np.sqrt(x) / 3.0 + x / 9.0) - delta
    return np.where(delta < 2.0 * m, series, m)


def best_interval_s(mtbf_s: Array | float, save_s: Array | float) -> Array:
    """The best checkpoint interval [s]: tau = M (1 + W(-exp(-1 - delta/M))).

    M: mean time between failures ``mtbf_s``. delta: time to write a checkpoint ``save_s``. W: the
    Lambert function, solved by Newton's method. Infinite if M is infinite.
    """
    m, delta = np.broadcast_arrays(np.asarray(mtbf_s, dtype=float), np.asarray(save_s, dtype=float))
    d = delta / m
    # f(x) = x + exp(-(x + d)) - 1 with x = tau/M is convex: from x = 1, Newton's method converges
    # to its positive zero.
    x = np.ones_like(d)
    for _ in range(60):
        e = np.exp(-(x + d))
        step = (x + e - 1.0) / np.maximum(1.0 - e, np.finfo(float).tiny)
        x = np.maximum(x - step, 0.0)
        if np.all(np.abs(step) <= 1e-15 * np.maximum(x, 1e-300)):
            break
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(m), m * x, np.inf)


@dataclass(frozen=True)
class Segment:
    """Mean and variance of the time that one checkpoint interval of work takes, as arrays."""

    work_s: Array
    mean_s: Array
    variance_s2: Array

    @property
    def goodput_frac(self) -> Array:
        """Share of the time that is work which no failure loses."""
        return self.work_s / self.mean_s


def segment(
    mtbf_s: Array | float, work_s: Array | float, save_s: Array | float, restart_s: float
) -> Segment:
    """Time of one segment of work and its checkpoint, with failures, by renewal theory.

    There are N failed tries (geometric). Each takes a time X < L = work + save up to the failure
    (truncated exponential) and a time A until a restart of R seconds has run without a failure:
    S = L + sum of N (X + A).
    """
    m, work, save = np.broadcast_arrays(
        np.asarray(mtbf_s, dtype=float), np.asarray(work_s, dtype=float),
        np.asarray(save_s, dtype=float),
    )  # fmt: skip
    length = work + save
    safe = np.isfinite(m)
    mm = np.where(safe, m, 1.0)
    u = np.where(safe, length / mm, 0.0)
    r = np.where(safe, restart_s / mm, 0.0)
    grow = np.expm1(u)  # E[N]
    with np.errstate(divide="ignore", invalid="ignore"):
        x1 = mm - length / grow
        x2 = 2.0 * mm**2 - (length**2 + 2.0 * mm * length) / grow
    # For such rare failures X is uniform on [0, L]: its moments are L/2 and L^2/3.
    tiny = u < 1e-5
    x1 = np.where(tiny, length / 2.0, x1)
    x2 = np.where(tiny, length**2 / 3.0, x2)
    a1 = mm * np.expm1(r)
    a_var = mm**2 * (np.exp(2.0 * r) - 1.0 - 2.0 * r * np.exp(r))
    z = x1 + a1
    variance = grow * (x2 - x1**2 + a_var) + grow * (1.0 + grow) * z**2
    return Segment(
        work_s=work,
        mean_s=np.where(safe, length + grow * z, length),
        variance_s2=np.where(safe, variance, 0.0),
    )


def straggler_factor(n_nodes: Array | float, rel: Reliability) -> Array:
    """Mean time of a synchronous step, that of the slowest of ``n_nodes``, over that of one node.

    Step times of nodes are exp(sd · normal), times 1 + slow_frac with probability slow_prob. The
    mean of their maximum is the integral of 1 - F(x)^n, where F is the distribution of one node.
    """
    n = np.atleast_1d(np.asarray(n_nodes, dtype=float))
    slow, p, sd = 1.0 + rel.slow_frac, rel.slow_prob, rel.node_sd_log
    if sd == 0.0:
        any_slow = 1.0 - (1.0 - p) ** n
        factor = 1.0 + rel.slow_frac * any_slow
    else:
        from math import erf

        low, high = np.exp(-8.0 * sd), slow * np.exp(8.0 * sd)
        x = np.linspace(low, high, 4001)
        phi = np.vectorize(lambda v: 0.5 * (1.0 + erf(v / 2.0**0.5)))
        one = (1.0 - p) * phi(np.log(x) / sd) + p * phi(np.log(x / slow) / sd)
        tail = 1.0 - one[None, :] ** n[:, None]
        factor = low + ((tail[:, 1:] + tail[:, :-1]) / 2.0 * np.diff(x)).sum(axis=1)
    return factor.reshape(np.shape(n_nodes))


@dataclass(frozen=True, kw_only=True)
class Goodput:
    """Goodput of one job, and the length of a run with failures.

    save_s            time to write a checkpoint
    interval_s        time between checkpoints, in seconds of work
    young_s, daly_s, exact_s   the best interval, by the estimates and exactly
    goodput_frac      share of the time that moves the run forward
    saving_frac, lost_frac, restart_frac   shares of checkpoints, lost work and restarts
    straggler_factor  mean step time with slow nodes over that without
    failures          expected number of failures of the run
    run_s, run_sd_s   mean and standard deviation of the length of the run
    """

    n_gpus: int
    cluster: str = ""
    mtbf_s: float
    checkpoint_bytes: float
    save_s: float
    restart_s: float
    interval_s: float
    young_s: float
    daly_s: float
    exact_s: float
    goodput_frac: float
    saving_frac: float
    lost_frac: float
    restart_frac: float
    straggler_factor: float
    failures: float | None = None
    run_s: float | None = None
    run_sd_s: float | None = None
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def run_low_high_s(self) -> tuple[float, float] | None:
        """Interval [s] that holds the length of 80 % of runs, as far as failures spread it.

        The distribution is close to normal for many segments, but no run is shorter than one
        without failures. Where more than a tenth (nine tenths) of runs have no failure, the lower
        (upper) end is the length of these.
        """
        if self.run_s is None or self.run_sd_s is None:
            return None
        share = (self.goodput_frac + self.saving_frac) * self.straggler_factor
        calm_s = self.run_s * share
        none = math.exp(-calm_s / self.mtbf_s)
        low, high = self.run_s - Z80 * self.run_sd_s, self.run_s + Z80 * self.run_sd_s
        return (
            calm_s if none > LOW_QUANTILE else max(low, calm_s),
            max(self.run_s, calm_s) if none > HIGH_QUANTILE else high,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with units in the names."""
        out = {f.name: getattr(self, f.name) for f in fields(Goodput) if f.name != "sources"}
        return {**out, "sources": dict(self.sources)}


#: Shorter runs are none [s]; shares of far shorter ones would be 0 in floating point.
SHORTEST_S = 1e-12


def goodput_of(
    rel: Reliability,
    *,
    n_gpus: int,
    n_nodes: int,
    checkpoint_bytes: float,
    work_s: float | None = None,
    cluster: str = "",
) -> Goodput:
    """Goodput of a job; with ``work_s``, the length of a run without failures, that with them.

    Raises InvalidConfig for a run that is shorter than ``SHORTEST_S``.
    """
    if work_s is not None and work_s < SHORTEST_S:
        raise InvalidConfig([f"the run takes {work_s:g} s: give a longer one"])
    mtbf, save = float(rel.mtbf_s(n_gpus)), float(rel.save_s(checkpoint_bytes, n_gpus))
    exact = float(best_interval_s(mtbf, save))
    tau = rel.interval_s if rel.interval_s is not None else exact
    slowdown = float(straggler_factor(float(n_nodes), rel))
    if work_s is not None:
        tau = min(tau, work_s * slowdown)
    if not np.isfinite(tau):
        one = Segment(np.array(1.0), np.array(1.0), np.array(0.0))
    else:
        one = segment(mtbf, tau, save, rel.restart_s)
    failing = np.isfinite(mtbf)
    shares = _shares(one, mtbf, save if np.isfinite(tau) else 0.0, rel.restart_s)
    useful, saving, lost, restart = (float(share) for share in shares.values())
    work = float(one.work_s)
    run = None if work_s is None else work_s * slowdown / useful
    segments = 0.0 if work_s is None else work_s * slowdown / work
    return Goodput(
        n_gpus=n_gpus,
        cluster=cluster,
        mtbf_s=mtbf,
        checkpoint_bytes=checkpoint_bytes,
        save_s=save,
        restart_s=rel.restart_s,
        interval_s=tau,
        young_s=float(young_interval_s(mtbf, save)),
        daly_s=float(daly_interval_s(mtbf, save)) if failing else float("inf"),
        exact_s=exact,
        goodput_frac=useful / slowdown,
        saving_frac=saving / slowdown,
        lost_frac=lost / slowdown,
        restart_frac=restart / slowdown,
        straggler_factor=slowdown,
        failures=None if run is None else (run / mtbf if failing else 0.0),
        run_s=run,
        run_sd_s=None if work_s is None else float(np.sqrt(segments * one.variance_s2)),
        sources=_sources(rel),
    )


def _shares(one: Segment, mtbf_s: float, save_s: float, restart_s: float) -> dict[str, Array]:
    """Shares of the time that are useful, saving, lost work and restarts; they sum to 1."""
    failures = np.expm1((one.work_s + save_s) / mtbf_s)
    useful, saving = one.goodput_frac, save_s / one.mean_s
    restart = np.zeros_like(useful)
    if np.isfinite(mtbf_s):
        restart = failures * mtbf_s * np.expm1(restart_s / mtbf_s) / one.mean_s
    lost = np.maximum(0.0, 1.0 - useful - saving - restart)
    return {"useful": useful, "saving": saving, "lost": lost, "restart": restart}


def shares_over(found: Goodput, interval_s: Array, failure_ratio: float = 1.0) -> dict[str, Array]:
    """Shares of the time by checkpoint interval [s], arrays [C] that sum to 1, as in ``_shares``.

    ``straggler`` is the time in which fast nodes wait for slow ones. ``failure_ratio`` multiplies
    the failure rate.
    """
    mtbf_s = found.mtbf_s / failure_ratio
    one = segment(mtbf_s, interval_s, found.save_s, found.restart_s)
    slowdown = found.straggler_factor
    shares = _shares(one, mtbf_s, found.save_s, found.restart_s)
    waiting = np.full_like(one.work_s, 1.0 - 1.0 / slowdown)
    return {**{k: v / slowdown for k, v in shares.items()}, "straggler": waiting}


def effective_frac(
    rel: Reliability, n_gpus: Array, n_nodes: Array, checkpoint_bytes: Array
) -> Array:
    """Share of the time that moves the run forward, for many jobs at once, arrays [C]."""
    mtbf, save = rel.mtbf_s(n_gpus), rel.save_s(checkpoint_bytes, n_gpus)
    tau = (
        best_interval_s(mtbf, save)
        if rel.interval_s is None
        else np.full_like(mtbf, rel.interval_s)
    )
    endless = ~np.isfinite(tau)
    one = segment(mtbf, np.where(endless, 1.0, tau), np.where(endless, 0.0, save), rel.restart_s)
    return one.goodput_frac / straggler_factor(n_nodes, rel)


def _sources(rel: Reliability) -> tuple[tuple[str, str], ...]:
    default = Reliability()
    return (
        ("failures", FAILURES_SOURCE if rel.failures_per_gpu_h == default.failures_per_gpu_h
         else "given"),
        ("checkpoint bandwidth",
         CHECKPOINT_SOURCE if rel.checkpoint_bytes_per_s is None else "given"),
        ("restart", RESTART_SOURCE if rel.restart_s == default.restart_s else "given"),
    )  # fmt: skip
