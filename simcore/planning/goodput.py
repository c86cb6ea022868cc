"""What failures, checkpoints, restarts and slow nodes leave of a cluster's time.

A job of N GPUs fails as a Poisson process of rate N·f (f failures a GPU and hour, M = 1/(N·f)
the mean time between failures). It saves every tau seconds of work, which takes delta seconds; a
failure loses the work since the last save, then takes R seconds of restart and warm-up, in which
it may fail again. One segment of tau seconds of work then lasts on average (Daly 2006, eq. 20;
exact for a Poisson process)

    E[S] = M · exp(R/M) · (exp((tau + delta)/M) - 1)           goodput = tau / E[S]

Its best tau solves 1 - tau/M = exp(-(tau + delta)/M); Young (1974) and Daly (2006) give the first
and third order of it. The spread of a whole run follows from the variance of one segment.

All functions take arrays or floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig
from simcore.base.interval import HIGH_QUANTILE, LOW_QUANTILE, Z80
from simcore.base.numbers import number_problems
from simcore.base.units import HOUR, MEGA

Array = NDArray[np.float64]

#: Unexpected interruptions a GPU and hour: 419 in 54 days on 16,384 H100 (Llama Team 2024, "The
#: Llama 3 Herd of Models", table 5).
FAILURES_PER_GPU_H = 419 / (54 * 24 * 16_384)
#: Checkpoint bandwidth a GPU: 2 TB/s sustained for 24,000 GPUs (the same, section 3.3.1).
CHECKPOINT_BYTES_PER_S_PER_GPU = 2e6 * MEGA / 24_000
#: Detecting a failure, replacing the node, loading, warming up. Assumed: more than 90 % of the
#: time was effective there with an interruption every 3.1 h, which leaves at most 19 min each.
RESTART_S = 600.0
FAILURES_SOURCE = "419 interruptions in 54 days of 16,384 H100 (Llama 3, 2024)"
CHECKPOINT_SOURCE = "2 TB/s for 24,000 GPUs (Llama 3, 2024)"
RESTART_SOURCE = "assumed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How often a GPU fails, how fast a checkpoint is written, how long a restart takes.

    ``slow_prob`` of the nodes run ``slow_frac`` slower; besides, node times spread log-normally
    by ``node_sd_log``: a synchronous step takes as long as the slowest node's.
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
        """Mean time between failures of a job [s]; infinite where nothing fails."""
        rate = np.asarray(n_gpus, dtype=float) * self.failures_per_gpu_h / HOUR
        with np.errstate(divide="ignore"):
            return np.where(rate > 0, 1.0 / np.maximum(rate, np.finfo(float).tiny), np.inf)

    def save_s(self, checkpoint_bytes: Array | float, n_gpus: Array | float) -> Array:
        """Seconds that one checkpoint takes, all ranks writing at once."""
        total = self.checkpoint_bytes_per_s
        rate = (
            np.asarray(n_gpus, dtype=float) * CHECKPOINT_BYTES_PER_S_PER_GPU
            if total is None
            else np.full_like(np.asarray(n_gpus, dtype=float), total)
        )
        seconds: Array = np.asarray(checkpoint_bytes, dtype=float) / rate
        return seconds


def young_interval_s(mtbf_s: Array | float, save_s: Array | float) -> Array:
    """sqrt(2 delta M): first order (Young 1974)."""
    found: Array = np.sqrt(2.0 * np.asarray(save_s) * np.asarray(mtbf_s))
    return found


def daly_interval_s(mtbf_s: Array | float, save_s: Array | float) -> Array:
    """Daly's higher-order estimate (2006, eq. 37): M where delta is 2 M or more."""
    m, delta = np.asarray(mtbf_s, dtype=float), np.asarray(save_s, dtype=float)
    x = delta / (2.0 * m)
    series = np.sqrt(2.0 * delta * m) * (1.0 + np.sqrt(x) / 3.0 + x / 9.0) - delta
    return np.where(delta < 2.0 * m, series, m)


def best_interval_s(mtbf_s: Array | float, save_s: Array | float) -> Array:
    """The exact optimum: tau = M (1 + W(-exp(-1 - delta/M))), by Newton's method."""
    m, delta = np.broadcast_arrays(np.asarray(mtbf_s, dtype=float), np.asarray(save_s, dtype=float))
    d = delta / m
    # f(x) = x + exp(-(x + d)) - 1 with x = tau/M: convex, its zero above 0 is reached from 1.
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
    """Mean and variance of the time that one checkpoint interval of work takes; arrays."""

    work_s: Array
    mean_s: Array
    variance_s2: Array

    @property
    def goodput_frac(self) -> Array:
        """Share of the time that is work which is kept."""
        return self.work_s / self.mean_s


def segment(
    mtbf_s: Array | float, work_s: Array | float, save_s: Array | float, restart_s: float
) -> Segment:
    """One segment of ``work_s`` and a save, failures included, by renewal theory.

    N failed tries (geometric), each a time X < L = work + save up to its failure (exponential,
    truncated) and a restart A of R seconds without a failure: S = L + sum of N (X + A).
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
    # Below this a failure in one segment is so rare that X is uniform: L/2, L^2/3.
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
    """How much longer the mean synchronous step is: that of the slowest of ``n_nodes``.

    Node times are (1 + slow_frac with probability slow_prob) times exp(sd · normal); the mean of
    their maximum is the integral of 1 - F(x)^n, F the distribution of one.
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
    found: Array = factor.reshape(np.shape(n_nodes))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Effective time of one job, and how long a run of it takes with failures."""

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
        """80 % of runs end within, of failures alone.

        Normal (many segments), but never before a run without a failure ends; where more than a
        tenth (nine tenths) of runs have none, the lower (upper) end is when these end.
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
        """Plain values, units in the names."""
        out = {f.name: getattr(self, f.name) for f in fields(Goodput) if f.name != "sources"}
        return {**out, "sources": dict(self.sources)}


def goodput_of(
    rel: Reliability,
    *,
    n_gpus: int,
    n_nodes: int,
    checkpoint_bytes: float,
    work_s: float | None = None,
    cluster: str = "",
) -> Goodput:
    """Effective time of a job; with ``work_s`` seconds of work to do, how long that takes."""
    mtbf, save = float(rel.mtbf_s(n_gpus)), float(rel.save_s(checkpoint_bytes, n_gpus))
    exact = float(best_interval_s(mtbf, save))
    tau = rel.interval_s if rel.interval_s is not None else exact
    stretch = float(straggler_factor(float(n_nodes), rel))
    if work_s is not None:
        tau = min(tau, work_s * stretch)
    if not np.isfinite(tau):
        one = Segment(np.array(1.0), np.array(1.0), np.array(0.0))
    else:
        one = segment(mtbf, tau, save, rel.restart_s)
    mean, work = float(one.mean_s), float(one.work_s)
    failing = np.isfinite(mtbf)
    tries = float(np.expm1((work + save) / mtbf)) if failing else 0.0
    restart = tries * mtbf * float(np.expm1(rel.restart_s / mtbf)) if failing else 0.0
    saving = save / mean if np.isfinite(tau) else 0.0
    kept = work / mean
    run = None if work_s is None else work_s * stretch / kept
    segments = 0.0 if work_s is None else work_s * stretch / work
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
        goodput_frac=kept / stretch,
        saving_frac=saving / stretch,
        lost_frac=max(0.0, 1.0 - kept - saving - restart / mean) / stretch,
        restart_frac=restart / mean / stretch,
        straggler_factor=stretch,
        failures=None if run is None else (run / mtbf if failing else 0.0),
        run_s=run,
        run_sd_s=None if work_s is None else float(np.sqrt(segments * one.variance_s2)),
        sources=_sources(rel),
    )


def goodput_over(found: Goodput, interval_s: Array) -> Array:
    """Share of the time that counts had the job saved every so many seconds of work [C]."""
    one = segment(found.mtbf_s, interval_s, found.save_s, found.restart_s)
    return one.goodput_frac / found.straggler_factor


def effective_frac(
    rel: Reliability, n_gpus: Array, n_nodes: Array, checkpoint_bytes: Array
) -> Array:
    """Share of the time that moves the run forward, for many jobs at once; arrays [C]."""
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
